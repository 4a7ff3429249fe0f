// Models of pages that read a text: language models continue it, classifiers and taggers label it.

import { bestTokens, indexOfBest, integers, PageModel, rowsOf } from "./page-model.js";
import { bestPath, logMarginals } from "./tag-chain.js";

const LINE_END = "\u21b5"; // how EOS is shown

/** Numbers from 0 to 1 that depend on a seed (mulberry32, by T. Ettinger). */
function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The most probable token, or one that is drawn at a temperature. */
function tokenChooser({ temperature = 0, seed = 1 }, excluded) {
  const random = randomNumbers(seed);
  return (logProbs) => {
    const scores = Float64Array.from(logProbs, (value, token) => (excluded.includes(token) ? -Infinity : value));
    const best = indexOfBest(scores);
    if (temperature === 0) return best;
    const weights = scores.map((score) => Math.exp((score - scores[best]) / temperature));
    let rest = random() * weights.reduce((sum, weight) => sum + weight, 0);
    const chosen = weights.findIndex((weight) => { rest -= weight; return rest < 0; });
    return chosen < 0 ? best : chosen;
  };
}

/** A text goes on. */
export class LanguageModel extends PageModel {
  /** The ids of a prompt, whose last line may be continued. */
  #encodePrompt(text) {
    const { eos } = this.description.info;
    if (this.target.settings.has_line_breaks) {
      const ids = this.target.encode(text);
      return ids.length > 0 ? ids : [eos];
    }
    return text.split("\n").flatMap((line) => [eos, ...this.target.encode(line)]);
  }

  /** Returns what reads tokens after those of its former calls, and returns the scores of what follows each. */
  #reader(edits, record = undefined) {
    let [state, step] = [this.firstState({ batch: 1 }), 0];
    return (tokens) => {
      const outputs = this.run("language_model", { tokens: integers(tokens, [1, tokens.length]), ...state }, { edits, firstStep: step, record });
      step += tokens.length;
      state = Object.fromEntries(Object.entries(state).map(([name, value]) => [name, outputs[`next.${name}`] ?? value]));
      return rowsOf(outputs.log_probs);
    };
  }

  /** Tokens that follow. After `context_length` the model goes on from the latter half of them. */
  #continue(ids, count, choose, edits = []) {
    const { context_length: context } = this.description;
    const tokens = [...ids];
    while (tokens.length < ids.length + count) {
      const before = tokens.slice(0, -1);
      const window = before.length >= context ? before.slice(before.length - Math.floor(context / 2)) : before;
      const read = this.#reader(edits);
      if (window.length > 0) read(window);
      const most = Math.min(ids.length + count - tokens.length, context - window.length);
      for (let k = 0; k < most; k += 1) tokens.push(choose(read(tokens.slice(-1))[0]));
    }
    return tokens.slice(ids.length);
  }

  output(ids, { max_length: count }) {
    return { tokens: this.#continue(ids, count, indexOfBest) };
  }

  /** The text of tokens after a prompt; a line that was begun keeps its characters. */
  #textAfter(prompt, promptIds, ids) {
    const { eos } = this.description.info;
    const lines = /** @type {number[][]} */ ([promptIds.slice(promptIds.lastIndexOf(eos) + 1)]);
    const shown = this.target.decode(lines[0]).length;
    for (const id of ids) {
      if (id === eos) lines.push([]);
      else lines[lines.length - 1] = [...lines.at(-1) ?? [], id];
    }
    return prompt + lines.map((line) => this.target.decode(line)).join("\n").slice(shown);
  }

  #names(ids) {
    const { eos } = this.description.info;
    return this.target.display(ids).map((name, index) => (ids[index] === eos ? LINE_END : name));
  }

  /** A continuation under edits, and what led to it. @param {any} request */
  explain({ input, options = {}, edits = [] }) {
    const { max_new_tokens: count = this.description.max_new_tokens, prefix_tokens: prefix = [] } = options;
    const promptIds = this.#encodePrompt(input);
    const { pad, unk, bos } = this.description.info;
    const begun = [...promptIds, ...prefix];
    const left = Math.max(0, count - prefix.length);
    const ids = [...begun, ...this.#continue(begun, left, tokenChooser(options, [pad, unk, bos]), edits)];
    const recorder = this.recorder();
    const read = ids.slice(0, this.description.context_length + 1);
    const rows = read.length > 1 ? this.#reader(edits, recorder.record)(read.slice(0, -1)) : [];
    const names = this.#names(read);
    const layers = recorder.layers(() => [names.slice(1), names.slice(0, -1)]);
    const text = this.#textAfter(input, promptIds, ids.slice(promptIds.length));
    const result = { text, tokens: this.#names(ids), num_prompt_tokens: promptIds.length };
    return this.explanation(result, edits, layers, {
      token_ids: ids.slice(promptIds.length), num_prompt_steps: promptIds.length - 1,
      top: rows.map((row) => bestTokens(row, (id) => this.#names([id])[0])),
    });
  }
}

/** A label for a text. */
export class Classifier extends PageModel {
  /** @param {number[]} ids */
  #score(ids, options = {}) {
    return this.run("classifier", this.sourceInputs(ids), options).log_probs.values;
  }

  output(text) {
    const scores = [...this.#score(this.encodeSource(text))];
    return { tokens: [indexOfBest(scores)], scores };
  }

  /** @param {any} request */
  explain({ input, edits = [] }) {
    const ids = this.encodeSource(input);
    const recorder = this.recorder();
    const scores = this.#score(ids, { edits, record: recorder.record });
    const { classes, labels } = this.description;
    const order = [...scores.keys()].sort((one, two) => scores[two] - scores[one] || one - two);
    const probabilities = Object.fromEntries(order.map((index) => [classes[index], Math.exp(scores[index])]));
    const tokens = [...this.source.display(ids), labels.end];
    const result = { source: input, label: classes[order[0]], probabilities, source_tokens: tokens };
    const layers = recorder.layers((type) => [type === "pooling" ? [result.label] : tokens, tokens]);
    return this.explanation(result, edits, layers, { top: [bestTokens(scores, (index) => classes[index])] });
  }
}

/** A tag for each word. */
export class Tagger extends PageModel {
  /** The inputs of the graph: words with EOS, each a row with its characters where the model reads these. */
  #wordInputs(ids) {
    const { info, row_size: size } = this.description;
    const tokens = [...ids, info.eos];
    if (size === null) return { source_tokens: integers(tokens, [1, tokens.length]), source_lengths: integers([tokens.length]) };
    const numWords = this.source.settings.tokens.length;
    const rows = /** @type {number[][]} */ ([]);
    for (const token of tokens) {
      if (token < numWords) rows.push([token]);
      else rows.at(-1)?.push(token - numWords + 1);
    }
    const padded = rows.flatMap((row) => [...row, ...new Array(size - row.length).fill(0)]);
    return { source_tokens: integers(padded, [1, rows.length, size]), source_lengths: integers([rows.length]) };
  }

  /** Scores of tags, a row for each word. */
  #score(text, options = {}) {
    const words = text.split(" ").filter(Boolean);
    const { emissions } = this.run("tagger", this.#wordInputs(this.encodeSource(text)), options);
    return { words, rows: rowsOf(emissions).slice(0, words.length) };
  }

  #predict(rows) {
    const { transitions, decoding_transitions: decoding } = this.description;
    return { tags: bestPath(rows, decoding ?? transitions), marginals: logMarginals(rows, transitions) };
  }

  output(text) {
    const { rows } = this.#score(text);
    const { tags, marginals } = this.#predict(rows);
    return { tokens: tags, scores: marginals.flatMap((row) => [...row]) };
  }

  /** @param {any} request */
  explain({ input, edits = [] }) {
    const { classes, labels } = this.description;
    const recorder = this.recorder();
    const { words, rows } = this.#score(input, { edits, record: recorder.record });
    const { tags, marginals } = this.#predict(rows);
    const probabilities = marginals.map((row) => Object.fromEntries(classes.map((name, index) => [name, Math.exp(row[index])])));
    const tokens = [...words, labels.end];
    const result = { words, tags: tags.map((index) => classes[index]), probabilities };
    const layers = recorder.layers(() => [tokens, tokens]);
    return this.explanation(result, edits, layers, { top: marginals.map((row) => bestTokens(row, (index) => classes[index])) });
  }
}
