// A model in a page: an input to an explanation, with attention and edits, by the graphs of its export.
//
// `explain` answers as /v1/explain of a server does, so that the same elements show it. `output` is what the
// exporter compares with Python.

import { Graph } from "./interpreter.js";
import { constantReader } from "./page-weights.js";
import { newTensor, tensor } from "./tensors.js";
import { PageTokenizer } from "./tokenizers.js";

const TYPES = { float32: "f32", float64: "f64", int64: "i32", int32: "i32", bool: "u8" };
const NUM_TOP = 5;
const MIN_SHARE = 1e-30;
const EMPTY = { token_ids: [], num_prompt_steps: 0, edits: [], layers: [], top: [], checks: [] };

export function integers(values, shape = [values.length]) {
  return tensor(shape, Int32Array.from(values), "i32");
}

/** The rows of a tensor of scores, (1, rows, tokens) or (rows, tokens). */
export function rowsOf({ values, shape }) {
  const size = shape.at(-1);
  return Array.from({ length: values.length / size }, (_, row) => values.subarray(row * size, (row + 1) * size));
}

export function indexOfBest(scores) {
  return scores.reduce((best, score, index) => (score > scores[best] ? index : best), 0);
}

/** The most probable tokens of a step. */
export function bestTokens(logProbs, nameOf) {
  const order = [...logProbs.keys()].sort((one, two) => logProbs[two] - logProbs[one] || one - two).slice(0, NUM_TOP);
  return order.filter((id) => logProbs[id] > -Infinity).map((id) => ({ id, token: nameOf(id), log_prob: logProbs[id] }));
}

/** exp(entropy) of each row: over how many positions it is spread. */
function effectiveSupport(weights) {
  return weights.map((rows) => rows.map((row) => {
    const sum = row.reduce((total, weight) => total + weight, 0);
    return sum > 0 ? Math.exp(-row.reduce((total, weight) => total + (weight / sum) * Math.log(Math.max(weight / sum, MIN_SHARE)), 0)) : 0;
  }));
}

/** The calls of each attention: weights by head, query and position. */
export class AttentionRecorder {
  constructor(sites) {
    this.sites = sites;
    this.calls = /** @type {Record<string, any[]>} */ ({});
    this.record = this.#record.bind(this);
  }

  #record(path, { shape, values }) {
    const [numQueries, numKeys] = shape.slice(-2);
    const { num_heads: numHeads = 1, has_sentinel: hasSentinel = false } = this.sites[path] ?? {};
    const rowAt = (row) => Array.from(values.subarray(row * numKeys, (row + 1) * numKeys - Number(hasSentinel)));
    const heads = Array.from({ length: numHeads }, (_, head) => Array.from({ length: numQueries }, (__, query) => rowAt(head * numQueries + query)));
    if (values.length === numHeads * numQueries * numKeys) (this.calls[path] ??= []).push(heads);
  }

  /** The maps of all layers whose weights have the axes of their kind: queries, keys, and the grid of these. */
  layers(axesOf) {
    return Object.entries(this.sites).flatMap(([path, { type, is_default, num_heads: numHeads }]) => {
      const [queries, keys, grid = null] = axesOf(type);
      const calls = this.calls[path] ?? [];
      const weights = Array.from({ length: numHeads }, (_, head) => calls.flatMap((call) => call[head]).slice(0, queries.length)
        .map((row) => [...row, ...new Array(Math.max(0, keys.length - row.length)).fill(0)]));
      const isShown = weights.every((rows) => rows.length === queries.length && rows.every((row) => row.length === keys.length));
      if (!isShown || queries.length === 0) return [];
      return [{ path, type, first_step: 0, queries, keys, grid, is_default, is_intra: false, weights, overlays: weights.map(() => ({})) }];
    });
  }
}

/** What all models of pages have. */
export class PageModel {
  /** @param {any} description @param {ArrayBuffer} buffer */
  constructor(description, buffer) {
    this.description = description;
    const read = constantReader(buffer);
    this.graphs = Object.fromEntries(Object.entries(description.graphs).map(([name, graph]) => [name, new Graph(graph, read)]));
    const { source, target, shared } = description.tokenizers;
    this.source = new PageTokenizer(shared ?? source);
    this.target = shared ? this.source : new PageTokenizer(target);
  }

  /** The outputs of a graph by name. @param {Record<string, any>} inputs */
  run(name, inputs, { edits = [], firstStep = 0, record = undefined } = /** @type {any} */ ({})) {
    return this.graphs[name].runNamed(inputs, { edits, firstStep, sites: this.description.sites, record });
  }

  recorder() {
    return new AttentionRecorder(this.description.sites);
  }

  /** The state before the first step: zeros where the encoder gives nothing. */
  firstState(sizes, encoded = {}) {
    const zeros = this.description.info.state.map(({ name, type, shape }) =>
      [name, newTensor(shape.map((size) => (typeof size === "number" ? size : sizes[size] ?? 0)), TYPES[type])]);
    return { ...Object.fromEntries(zeros), ...encoded };
  }

  /** The ids of a text as an encoder reads them, with EOS. */
  encodeSource(text) {
    const ids = this.source.encode(text);
    const { max_source_length: most = Infinity } = this.description.decoding ?? {};
    if (ids.length > most) throw new Error(`the text has ${ids.length} tokens; this model reads at most ${most}`);
    return ids;
  }

  /** The inputs of an encoder of texts. */
  sourceInputs(ids) {
    const tokens = [...ids, this.description.info.eos];
    return { source_tokens: integers(tokens, [1, tokens.length]), source_lengths: integers([tokens.length]) };
  }

  /** An explanation: a result, and what led to it. */
  explanation(result, edits, layers = [], others = {}) {
    const checks = layers.map(({ path, weights }) => ({ path, effective_support: effectiveSupport(weights), max_hidden_weight: 0, effects: null }));
    return { ...EMPTY, result, edits, layers, checks, ...others };
  }
}
