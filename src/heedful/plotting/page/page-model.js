// A model in a page: text to output, with attention and edits, by the graphs of its export.
//
// `explain` answers as /v1/explain of a server does, so that the same elements show it.

import { Graph } from "./interpreter.js";
import { constantReader } from "./page-weights.js";
import { searchBeam } from "./search.js";
import { gather } from "./tensor-shapes.js";
import { newTensor, tensor } from "./tensors.js";
import { PageTokenizer } from "./tokenizers.js";

const TYPES = { float32: "f32", float64: "f64", int64: "i32", int32: "i32", bool: "u8" };
const NUM_TOP = 5;
const MIN_SHARE = 1e-30;
const EMPTY = { result: { text: "", tokens: [] }, token_ids: [], num_prompt_steps: 0, edits: [], layers: [], top: [], checks: [] };

function integers(values, shape = [values.length]) {
  return tensor(shape, Int32Array.from(values), "i32");
}

/** The state between steps: tensors by name, with a row for each hypothesis. */
class DecoderState {
  constructor(description, values) {
    this.description = description;
    this.values = values;
  }

  /** The state of chosen rows. Rows of the encoded source are all the same. */
  select(rows) {
    const values = { ...this.values };
    for (const { name, shape, is_constant: isConstant } of this.description) {
      const axis = shape.indexOf("batch");
      const isKept = axis < 0 || (isConstant && values[name].shape[axis] === rows.length);
      if (!isKept) values[name] = gather([values[name], integers(rows)], { axis });
    }
    return new DecoderState(this.description, values);
  }
}

/** The most probable tokens of a step. */
function bestTokens(logProbs, nameOf) {
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
class AttentionRecorder {
  constructor(sites) {
    this.sites = sites;
    this.calls = /** @type {Record<string, any[]>} */ ({});
  }

  record(path, { shape, values }) {
    const [numQueries, numKeys] = shape.slice(-2);
    const numHeads = this.sites[path]?.num_heads ?? 1;
    const rowAt = (row) => Array.from(values.subarray(row * numKeys, (row + 1) * numKeys));
    const heads = Array.from({ length: numHeads }, (_, head) => Array.from({ length: numQueries }, (__, query) => rowAt(head * numQueries + query)));
    if (values.length === numHeads * numQueries * numKeys) (this.calls[path] ??= []).push(heads);
  }

  /** The maps of all layers whose weights have the axes of their kind. */
  layers(axesOf) {
    return Object.entries(this.sites).flatMap(([path, { type, is_default, num_heads: numHeads }]) => {
      const [queries, keys] = axesOf(type);
      const calls = this.calls[path] ?? [];
      const weights = Array.from({ length: numHeads }, (_, head) => calls.flatMap((call) => call[head]).slice(0, queries.length)
        .map((row) => [...row, ...new Array(Math.max(0, keys.length - row.length)).fill(0)]));
      const isShown = weights.every((rows) => rows.length === queries.length && rows.every((row) => row.length === keys.length));
      if (!isShown || queries.length === 0) return [];
      return [{ path, type, first_step: 0, queries, keys, grid: null, is_default, is_intra: false, weights, overlays: weights.map(() => ({})) }];
    });
  }
}

/** @param {any} description @param {ArrayBuffer} buffer */
export class PageModel {
  constructor(description, buffer) {
    this.description = description;
    const read = constantReader(buffer);
    this.graphs = Object.fromEntries(Object.entries(description.graphs).map(([name, graph]) => [name, new Graph(graph, read)]));
    const { source, target, shared } = description.tokenizers;
    this.source = new PageTokenizer(shared ?? source);
    this.target = shared ? this.source : new PageTokenizer(target);
  }

  /** The most tokens of an output. */
  maxLength(numTokens) {
    const { max_length_ratio: ratio, max_length_offset: offset, max_length: maximum } = this.description.decoding;
    return Math.min(Math.trunc((numTokens + 1) * ratio + offset), maximum ?? Infinity);
  }

  #context(edits, firstStep, record) {
    return { edits, firstStep, sites: this.description.sites, record };
  }

  /** The state before the first step. @param {number[]} ids */
  encode(ids, edits = [], record = undefined) {
    const { info } = this.description;
    const tokens = [...ids, info.eos];
    const inputs = { source_tokens: integers(tokens, [1, tokens.length]), source_lengths: integers([tokens.length]) };
    const encoded = this.graphs.encoder.runNamed(inputs, this.#context(edits, 0, record));
    const sizes = { batch: 1, source: tokens.length };
    const zeros = Object.fromEntries(info.state.map(({ name, type, shape }) =>
      [name, newTensor(shape.map((size) => (typeof size === "number" ? size : sizes[size] ?? 0)), TYPES[type])]));
    return new DecoderState(info.state, { ...zeros, ...encoded });
  }

  /** A function for the search: reads a token for each of the chosen rows. */
  stepper(first, edits = [], record = undefined) {
    let [state, step] = [first, 0];
    return (tokens, rows) => {
      const selected = state.select(rows);
      const context = this.#context(edits, step, record);
      const outputs = this.graphs.decoder_step.runNamed({ tokens: integers(tokens), ...selected.values }, context);
      const changed = Object.entries(outputs).filter(([name]) => name.startsWith("next.")).map(([name, value]) => [name.slice(5), value]);
      state = new DecoderState(state.description, { ...selected.values, ...Object.fromEntries(changed) });
      step += 1;
      const { values, shape } = outputs.log_probs;
      return tokens.map((_, row) => values.subarray(row * shape[1], (row + 1) * shape[1]));
    };
  }

  /** The best output for a source. @param {number[]} ids @param {any} options */
  search(ids, options = {}, edits = []) {
    const { info, decoding } = this.description;
    const settings = { ...decoding, ...info, ...options, max_length: options.max_length ?? this.maxLength(ids.length) };
    return searchBeam(this.stepper(this.encode(ids, edits), edits), settings);
  }

  /** What an output is made of: attention of all layers, and the best tokens of each step. */
  #trace(ids, tokens, edits) {
    const recorder = new AttentionRecorder(this.description.sites);
    const record = recorder.record.bind(recorder);
    const { bos, eos } = this.description.info;
    const step = this.stepper(this.encode(ids, edits, record), edits, record);
    const rows = [bos, ...tokens].map((token) => step([token], [0])[0]);
    const logProbs = [...tokens, eos].map((token, index) => rows[index][token]);
    const nameOf = (id) => (id === eos ? this.description.labels.end : this.target.display([id])[0]);
    return { recorder, logProbs, top: rows.map((row) => bestTokens(row, nameOf)) };
  }

  /** A translation under edits, and what led to it. @param {any} request */
  explain({ input, options = {}, edits = [] }) {
    const ids = this.source.encode(input);
    const { max_source_length: most } = this.description.decoding;
    if (ids.length > most) throw new Error(`the text has ${ids.length} tokens; this model reads at most ${most}`);
    if (ids.length === 0) return { ...EMPTY, edits };
    const { beam_size, prefix_tokens: prefix = [] } = options;
    const { tokens, score, log_prob } = this.search(ids, { ...(beam_size && { beam_size }), prefix }, edits);
    const { recorder, logProbs, top } = this.#trace(ids, tokens, edits);
    const { start, end } = this.description.labels;
    const source = [...this.source.display(ids), end];
    const target = this.target.display(tokens);
    const axes = { cross: [target, source], "encoder-self": [source, source], "decoder-self": [target, [start, ...target].slice(0, target.length)] };
    const layers = recorder.layers((type) => axes[type]);
    const checks = layers.map(({ path, weights }) => ({ path, effective_support: effectiveSupport(weights), max_hidden_weight: 0, effects: null }));
    const result = { source: input, text: this.target.decode(tokens), tokens: target, score, log_prob, log_probs: logProbs };
    return { result, token_ids: tokens, num_prompt_steps: 0, edits, layers, top, checks };
  }
}
