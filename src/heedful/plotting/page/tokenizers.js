// Tokenizers: the ids of a text, as the run's tokenizer gives them in Python (heedful.tokenization), and back.
//
// A tokenizer is { type, normalization, tokens, ... }: `tokens` are the spellings by id. What counts as white
// space or as part of a word comes from Python's tables, so that versions of Unicode do not matter.

import { ByteLevelTokenizer, UNK, WHITE_SPACE, WordPieceTokenizer } from "./pretrained-tokenizers.js";

const NUM_BYTES = 256;
const FIRST_BYTE = 4; // after padding, unknown, BOS and EOS
const SPACE_MARK = "\u2581";
const ESCAPE = "\ue000";
const ESCAPED = new Map([[ESCAPE, "\ue000\ue000"], [SPACE_MARK, "\ue000\ue001"], ["\u2585", "\ue000\ue002"]]);
const UNESCAPED = new Map([...ESCAPED].map(([plain, escaped]) => [escaped, plain]));
const LONE_SURROGATES = /[\ud800-\udfff]/gu; // of pairs, none is matched
const SMILES = /\[[^\]]+\]|Br?|Cl?|%[0-9]{2}|./gsu;

function splitSpaces(text) {
  return text.split(" ").filter(Boolean);
}

function splitWhite(text) {
  return text.split(new RegExp(`[${WHITE_SPACE}]+`, "u")).filter(Boolean);
}

function stripWhite(text) {
  return text.replace(new RegExp(`^[${WHITE_SPACE}]+|[${WHITE_SPACE}]+$`, "gu"), "");
}

// Signs at the end of a word or alone; quotes and dashes alone or before a word, but not "'s".
function punctuationPattern(alphanumeric) {
  const word = `[${alphanumeric}]`;
  const signs = "[.,;:!?\"()\\[\\]\\{\\}\\u201c\\u201d\\u2026]+";
  return new RegExp(`${signs}(?!${word})|(?<!${word})["(\\[\\{\\u201c]+|(?<![^${WHITE_SPACE}])[\\-'\`]+(?![^${WHITE_SPACE}])`, "gu");
}

/** Changes a text before it is split. */
function normalizeText(text, { unicode, lowercase, strip, punctuation }, alphanumeric) {
  let result = unicode === "none" ? text : text.normalize(unicode.toUpperCase());
  if (lowercase) result = result.toLowerCase();
  if (punctuation === "remove") {
    const pattern = punctuationPattern(alphanumeric);
    for (let former = null; former !== result;) {
      former = result;
      result = splitWhite(result.replace(pattern, " ")).join(" ");
    }
  }
  return strip ? stripWhite(result) : result;
}

const SPLITTERS = {
  word: (text, { word }) => (text ? ` ${text}`.match(new RegExp(` ?[${word}]+| ?[^${WHITE_SPACE}]|[${WHITE_SPACE}]`, "gu")) ?? [] : []),
  character: (text) => [...text],
  label: (text) => (text ? [text] : []),
  smiles: (text) => text.match(SMILES) ?? [],
  whitespace: splitSpaces,
};

// ----- subwords

function escapeMarks(text) {
  return [...text].map((character) => ESCAPED.get(character) ?? character).join("");
}

function unescapeMarks(text) {
  return text.replace(/\ue000[\ue000-\ue002]/gu, (escaped) => UNESCAPED.get(escaped));
}

/** The most probable pieces, in the arithmetic of SentencePiece: sums as 32-bit numbers (Kudo 2018). */
function segmentUnigram(characters, { ids, scores, unk_score: unkScore, max_length: maxLength }) {
  const best = new Array(characters.length + 1).fill(null); // { score, start, id } of what ends there
  best[0] = { score: 0, start: -1, id: -1 };
  const offer = (end, sum, start, id) => {
    if (best[end] === null || sum > best[end].score) best[end] = { score: Math.fround(sum), start, id };
  };
  for (let start = 0; start < characters.length; start += 1) {
    const before = best[start].score;
    let [piece, hasCharacter] = ["", false];
    for (let end = start + 1; end <= Math.min(characters.length, start + maxLength); end += 1) {
      piece += characters[end - 1];
      const id = ids.get(piece);
      if (id === undefined) continue;
      offer(end, scores[id] + before, start, id);
      hasCharacter ||= end === start + 1;
    }
    if (!hasCharacter) offer(start + 1, Math.fround(unkScore + before), start, UNK);
  }
  const pieces = [];
  for (let end = characters.length; end > 0; end = best[end].start) {
    pieces.unshift({ text: characters.slice(best[end].start, end).join(""), id: best[end].id });
  }
  return pieces;
}

/** Merges the best pair of neighbors, the first of equals, until no pair is a piece (Sennrich et al. 2016). */
function segmentBPE(characters, { ids, scores }) {
  const pieces = [...characters];
  const scoreAt = (index) => scores[ids.get(pieces[index] + pieces[index + 1])] ?? -Infinity;
  const pairs = pieces.slice(1).map((_, index) => scoreAt(index));
  while (true) {
    let best = -1;
    pairs.forEach((score, index) => { if (score > (pairs[best] ?? -Infinity)) best = index; });
    if (best < 0) return pieces.map((text) => ({ text, id: ids.get(text) ?? UNK }));
    pieces.splice(best, 2, pieces[best] + pieces[best + 1]);
    pairs.splice(best, 1);
    if (best > 0) pairs[best - 1] = scoreAt(best - 1);
    if (best < pairs.length) pairs[best] = scoreAt(best);
  }
}

const SEGMENTERS = { unigram: segmentUnigram, bpe: segmentBPE };

function decodePieces(tokens, ids) {
  const encoder = new TextEncoder();
  const parts = ids.map((id) => (id >= FIRST_BYTE && id < FIRST_BYTE + NUM_BYTES ? [id - FIRST_BYTE] : encoder.encode(tokens[id])));
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(parts.flatMap((part) => [...part])));
  return unescapeMarks(text.replaceAll(SPACE_MARK, " ").replace(/^ /, ""));
}

/** Whole tokens of a vocabulary, and subwords. */
class VocabularyTokenizer {
  /** @param {any} settings */
  constructor(settings) {
    this.settings = settings;
    this.ids = new Map(settings.tokens.map((token, id) => [token, id]).slice(settings.first_id));
    this.isSubword = settings.type in SEGMENTERS;
    if (this.isSubword) {
      this.scores = settings.tokens.map((_, id) => (id < settings.first_id ? undefined : Math.fround(settings.scores[id - settings.first_id])));
      this.maxLength = Math.max(1, ...[...this.ids.keys()].map((token) => [...token].length));
    }
  }

  idOf(token) {
    return this.ids.get(token) ?? UNK;
  }

  encode(text) {
    const { type, normalization, alphanumeric, word, unk_score } = this.settings;
    if (type === "word-character") return splitSpaces(text).flatMap((one) => this.#encodeWord(one));
    const normalized = normalizeText(text, normalization, alphanumeric);
    if (!this.isSubword) return SPLITTERS[type](normalized, { word }).map((token) => this.idOf(token));
    if (normalized === "") return [];
    const characters = [...(SPACE_MARK + escapeMarks(normalized).replaceAll(" ", SPACE_MARK))];
    const vocabulary = { ids: this.ids, scores: this.scores, unk_score, max_length: this.maxLength };
    const encoder = new TextEncoder();
    return SEGMENTERS[type](characters, vocabulary).flatMap(({ text: piece, id }) =>
      (id === UNK ? [...encoder.encode(piece)].map((byte) => FIRST_BYTE + byte) : [id]));
  }

  /** A word and its characters, as they are; of a long one those of both ends. */
  #encodeWord(word) {
    const { normalization, alphanumeric, tokens, max_characters: most, num_characters: count } = this.settings;
    const characters = [...word];
    const half = Math.floor(most / 2);
    const kept = characters.length <= most ? characters : [...characters.slice(0, half), ...characters.slice(-half)];
    const id = this.idOf(normalizeText(word, normalization, alphanumeric));
    return [id, ...kept.map((character) => tokens.length + (/** @type {number} */ (character.codePointAt(0)) % count))];
  }

  decode(ids) {
    const { type, tokens } = this.settings;
    if (this.isSubword) return decodePieces(tokens, ids);
    const words = ids.map((id) => tokens[id]);
    if (type === "whitespace" || type === "word-character") return words.filter(Boolean).join(" ");
    return type === "word" ? words.join("").replace(/^ /, "") : words.join("");
  }
}

const TOKENIZERS = { "byte-level-bpe": ByteLevelTokenizer, bart: ByteLevelTokenizer, wordpiece: WordPieceTokenizer };

/** A tokenizer of the page. */
export class PageTokenizer {
  /** @param {any} settings */
  constructor(settings) {
    this.settings = settings;
    this.inner = new (TOKENIZERS[settings.type] ?? VocabularyTokenizer)(settings);
  }

  /** The ids of a text, without BOS and EOS. @param {string} text @returns {number[]} */
  encode(text) {
    return this.inner.encode(text.replace(LONE_SURROGATES, "\ufffd"));
  }

  /** The text of ids. @param {number[]} ids @returns {string} */
  decode(ids) {
    return this.inner.decode(ids);
  }

  /** Each id as it is displayed. @param {number[]} ids */
  display(ids) {
    const { displayed, tokens } = this.settings;
    return ids.map((id) => displayed[id] ?? tokens[id] ?? String.fromCodePoint(id - tokens.length));
  }
}
