// Tokenizers of pretrained models: byte-level BPE (Radford et al. 2019) and WordPiece (Devlin et al. 2019).
//
// Classes of characters come from Python's tables, as in tokenizers.js. Invariant: no text is encoded as a special token.

export const UNK = 1;
export const WHITE_SPACE = "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const SPACES = WHITE_SPACE.replace("\\x1c- ", " "); // of Unicode
const CONTINUATION = "##";
const REPLACEMENT_CHARACTER = "\ufffd";

function idsOf({ tokens, first_id: first }) {
  return new Map(tokens.map((token, id) => [token, id]).slice(first));
}

/** Merges all occurrences of the pair of the lowest rank, until no pair has a rank. */
function applyMerges(pieces, ranks) {
  let result = pieces;
  while (result.length > 1) {
    const pairs = result.slice(1).map((piece, index) => `${result[index]} ${piece}`);
    const best = pairs.reduce((one, two) => ((ranks.get(two) ?? Infinity) < (ranks.get(one) ?? Infinity) ? two : one));
    if (!ranks.has(best)) return result;
    const merged = /** @type {string[]} */ ([]);
    for (const piece of result) {
      if (merged.length > 0 && `${merged.at(-1)} ${piece}` === best) merged[merged.length - 1] += piece;
      else merged.push(piece);
    }
    result = merged;
  }
  return result;
}

/** Merged bytes of words, signs and white space; with `special_ids` that of BART. */
export class ByteLevelTokenizer {
  /** @param {any} settings */
  constructor(settings) {
    const { letter, number, word, merges, bytes } = settings;
    this.settings = settings;
    this.ids = idsOf(settings);
    this.ranks = new Map(merges.map((merge, rank) => [merge, rank]));
    this.byteOf = new Map(bytes.map((character, byte) => [character, byte]));
    const signs = `(?:[^${SPACES}${word}]|_)+`;
    this.pattern = new RegExp(`'(?:s|t|re|ve|m|ll|d)| ?[${letter}]+| ?[${number}]+| ?${signs}|[${SPACES}]+(?![^${SPACES}])|[${SPACES}]+`, "gu");
  }

  encode(text) {
    const { add_prefix_space: addsSpace, bytes, special_ids: special } = this.settings;
    const encoder = new TextEncoder();
    const begun = addsSpace && text && !text.startsWith(" ") ? ` ${text}` : text;
    const ids = (begun.match(this.pattern) ?? []).flatMap((word) =>
      applyMerges([...encoder.encode(word)].map((byte) => bytes[byte]), this.ranks).map((piece) => this.ids.get(piece) ?? UNK));
    return special && ids.length > 0 ? [special[0], ...ids] : ids;
  }

  #spell(id) {
    const { tokens, special_ids: special = [] } = this.settings;
    const encoder = new TextEncoder();
    if (special.includes(id)) return [];
    const characters = [...tokens[id]];
    const isMerged = id !== UNK && characters.every((character) => this.byteOf.has(character));
    return isMerged ? characters.map((character) => this.byteOf.get(character)) : [...encoder.encode(tokens[id])];
  }

  decode(ids) {
    const bytes = Uint8Array.from(ids.flatMap((id) => this.#spell(id)));
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
    return this.settings.add_prefix_space ? text.replace(/^ /, "") : text;
  }
}

/** The longest pieces of words, from left to right. */
export class WordPieceTokenizer {
  /** @param {any} settings */
  constructor(settings) {
    this.settings = settings;
    this.ids = idsOf(settings);
    const pattern = (characters) => new RegExp(`[${characters}]`, "gu");
    const { spaces, controls, marks, chinese, punctuation } = settings;
    this.patterns = { spaces: pattern(`\\t\\n\\r${spaces}`), controls: pattern(controls), marks: pattern(marks), chinese: pattern(chinese), punctuation: pattern(punctuation) };
  }

  #words(text) {
    const { clean_text: cleans, split_chinese: splits, strip_accents: strips, lowercase } = this.settings;
    const { spaces, controls, marks, chinese, punctuation } = this.patterns;
    let result = text;
    if (cleans) result = result.replace(spaces, " ").replace(controls, "").replaceAll(REPLACEMENT_CHARACTER, "");
    if (splits) result = result.replace(chinese, " $& ");
    if (strips) result = result.normalize("NFD").replace(marks, "");
    if (lowercase) result = Array.from(result, (character) => character.toLowerCase()).join(""); // no final sigma
    return result.replace(punctuation, " $& ").split(new RegExp(`[${WHITE_SPACE}]+`, "u")).filter(Boolean);
  }

  #match(word) {
    const characters = [...word];
    if (characters.length > this.settings.max_word_length) return [UNK];
    const ids = /** @type {number[]} */ ([]);
    for (let start = 0; start < characters.length;) {
      const prefix = start > 0 ? CONTINUATION : "";
      let end = characters.length;
      while (end > start && !this.ids.has(prefix + characters.slice(start, end).join(""))) end -= 1;
      if (end === start) return [UNK]; // the whole word
      ids.push(this.ids.get(prefix + characters.slice(start, end).join("")));
      start = end;
    }
    return ids;
  }

  encode(text) {
    return this.#words(text).flatMap((word) => this.#match(word));
  }

  decode(ids) {
    const parts = ids.map((id) => this.settings.tokens[id]).filter(Boolean)
      .map((token) => (token.startsWith(CONTINUATION) ? token.slice(CONTINUATION.length) : ` ${token}`));
    return parts.join("").replace(/^ /, "");
  }
}
