// Models of pages that search for an output: translators, and captioners, whose source is an image.

import { cellLabels, resizeImage, toImage } from "./image-pixels.js";
import { bestTokens, integers, PageModel, rowsOf } from "./page-model.js";
import { searchBeam } from "./search.js";
import { gather } from "./tensor-shapes.js";
import { tensor } from "./tensors.js";

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

/**
 * What an output is searched for: the inputs of the encoder, how many tokens they count as, and how the
 * positions that are attended to are named.
 * @typedef {{ inputs: Record<string, any>, numTokens: number, numStates: number, names: string[], grid: number[] | null }} Source
 */

/** An encoder and a decoder; a subclass says what a source is. */
class SearchModel extends PageModel {
  /** The source of numbers, as the exporter gives them. @param {any} _input @returns {Source} */
  plainSource(_input) {
    throw new Error("not defined");
  }

  /** The source of an input of the page; null if it is empty. @param {any} input @returns {Promise<Source | null>} */
  async readSource(input) {
    return this.plainSource(input);
  }

  /** What a result says of its input. @param {any} _input @returns {object} */
  describeInput(_input) {
    return {};
  }

  /** The most tokens of an output. */
  maxLength(numTokens) {
    const { max_length_ratio: ratio, max_length_offset: offset, max_length: maximum } = this.description.decoding;
    return Math.min(Math.trunc((numTokens + 1) * ratio + offset), maximum ?? Infinity);
  }

  /** A function for the search: reads a token for each of the chosen rows. @param {Source} source */
  stepper({ inputs, numStates }, edits = [], record = undefined) {
    const { info } = this.description;
    const encoded = this.run("encoder", inputs, { edits, record });
    let [state, step] = [new DecoderState(info.state, this.firstState({ batch: 1, source: numStates }, encoded)), 0];
    return (tokens, rows) => {
      const selected = state.select(rows);
      const outputs = this.run("decoder_step", { tokens: integers(tokens), ...selected.values }, { edits, firstStep: step, record });
      const changed = Object.entries(outputs).filter(([name]) => name.startsWith("next.")).map(([name, value]) => [name.slice(5), value]);
      state = new DecoderState(info.state, { ...selected.values, ...Object.fromEntries(changed) });
      step += 1;
      return rowsOf(outputs.log_probs);
    };
  }

  /** The best output for a source. @param {Source} source @param {any} options */
  search(source, options = {}, edits = []) {
    const { info, decoding } = this.description;
    const settings = { ...decoding, ...info, ...options, max_length: options.max_length ?? this.maxLength(source.numTokens) };
    return searchBeam(this.stepper(source, edits), settings);
  }

  /** What the exporter compares: the tokens of an output. */
  output(input, options) {
    return { tokens: this.search(this.plainSource(input), options).tokens };
  }

  /** What an output is made of: attention of all layers, and the best tokens of each step. */
  #trace(source, tokens, edits) {
    const recorder = this.recorder();
    const { bos, eos } = this.description.info;
    const step = this.stepper(source, edits, recorder.record);
    const rows = [bos, ...tokens].map((token) => step([token], [0])[0]);
    const logProbs = [...tokens, eos].map((token, index) => rows[index][token]);
    const nameOf = (id) => (id === eos ? this.description.labels.end : this.target.display([id])[0]);
    return { recorder, logProbs, top: rows.map((row) => bestTokens(row, nameOf)) };
  }

  /** An output under edits, and what led to it. @param {any} request */
  async explain({ input, options = {}, edits = [] }) {
    const source = await this.readSource(input);
    if (source === null) return this.explanation({ text: "", tokens: [] }, edits);
    const { beam_size, prefix_tokens: prefix = [] } = options;
    const { tokens, score, log_prob } = this.search(source, { ...(beam_size && { beam_size }), prefix }, edits);
    const { recorder, logProbs, top } = this.#trace(source, tokens, edits);
    const target = this.target.display(tokens);
    const keys = [source.names, source.grid];
    const axes = {
      cross: [target, ...keys], "encoder-self": [source.names, ...keys],
      "decoder-self": [target, [this.description.labels.start, ...target].slice(0, target.length)],
    };
    const result = { ...this.describeInput(input), text: this.target.decode(tokens), tokens: target, score, log_prob, log_probs: logProbs };
    return this.explanation(result, edits, recorder.layers((type) => axes[type]), { token_ids: tokens, top });
  }
}

/** A text in another language. */
export class Translator extends SearchModel {
  /** @returns {Source} */
  plainSource(ids) {
    const names = [...this.source.display(ids), this.description.labels.end];
    return { inputs: this.sourceInputs(ids), numTokens: ids.length, numStates: ids.length + 1, names, grid: null };
  }

  async readSource(text) {
    const ids = this.encodeSource(text);
    return ids.length === 0 ? null : this.plainSource(ids);
  }

  describeInput(text) {
    return { source: text };
  }
}

/** A caption for an image. */
export class Captioner extends SearchModel {
  /** Pixels in the size of the model, (channels, height, width). @returns {Source} */
  plainSource(pixels) {
    const { channels, height, width, grid } = this.description.image;
    const numCells = grid[0] * grid[1];
    const inputs = { source_tokens: tensor([1, channels, height, width], Uint8Array.from(pixels), "u8"), source_lengths: integers([numCells]) };
    return { inputs, numTokens: Math.max(1, numCells - 1), numStates: numCells, names: cellLabels(grid), grid };
  }

  /** An image: a file in base64, or { width, height, values }, four bytes a pixel. */
  async readSource(input) {
    if (!input) return null;
    return this.plainSource(resizeImage(await toImage(input), this.description.image));
  }

  describeInput() {
    return { grid: this.description.image.grid };
  }
}
