// Runs graphs: nodes in their order, on slots instead of names.
//
// A graph as it is exported: { inputs, outputs, nodes: [[operator, inputs, outputs, attributes]], constants }.
// `Scan` runs the graph of a recurrence step by step. `EditMask` and `EditWeights` stand where the attention of
// a model has its mask and its weights; see attention-edits.js.

import { applyEdits, visibleMask } from "./attention-edits.js";
import { OPERATORS } from "./tensor-operators.js";
import { elementAt, stack } from "./tensor-shapes.js";
import { axisOf } from "./tensors.js";

const CONTEXT_OPERATORS = {
  EditMask: ([mask], { path }, context) => visibleMask(mask, path, context),
  EditWeights: ([weights, mask], { path }, context) => {
    const edited = applyEdits(weights, mask, path, context);
    context.record?.(path, edited);
    return edited;
  },
};

const SUBGRAPH_OPERATORS = {
  Scan: runScan,
};

/** A graph whose values have slots; `outer` has the values that it may take from around it. */
export class Graph {
  #slots = new Map();

  constructor({ inputs, outputs, nodes, constants }, readConstant, outer = null) {
    this.outer = outer;
    this.captured = /** @type {[number, number][]} */ ([]); // slots outside and here
    this.template = /** @type {any[]} */ ([]);
    this.inputs = inputs.map((name) => this.#define(name));
    this.inputNames = inputs;
    this.outputNames = outputs;
    for (const [name, constant] of Object.entries(constants)) this.template[this.#define(name)] = readConstant(constant);
    this.nodes = nodes.map(([operator, inputNames, outputNames, attributes]) => this.#link(operator, inputNames, outputNames, attributes, readConstant));
    this.outputs = outputs.map((name) => this.find(name));
  }

  #define(name) {
    const slot = this.template.length;
    this.template.push(undefined);
    this.#slots.set(name, slot);
    return slot;
  }

  /** The slot of a name, taken from around the graph if it is not defined in it. */
  find(name) {
    if (this.#slots.has(name)) return this.#slots.get(name);
    if (!this.outer) throw new Error(`the graph has no value ${name}`);
    const outside = this.outer.find(name);
    const slot = this.#define(name);
    this.captured.push([outside, slot]);
    return slot;
  }

  #link(operator, inputNames, outputNames, attributes, readConstant) {
    const inputs = inputNames.map((name) => (name ? this.find(name) : -1));
    const read = (value) => (value?.nodes ? new Graph(value, readConstant, this) : value?.shape ? readConstant(value) : value);
    const ready = Object.fromEntries(Object.entries(attributes).map(([name, value]) => [name, read(value)]));
    if (operator === "Constant") {
      this.template[this.#define(outputNames[0])] = ready.value;
      return null;
    }
    return { operator, inputs, attributes: ready, outputs: outputNames.map((name) => (name ? this.#define(name) : -1)) };
  }

  /** The outputs for inputs in order. @param {any[]} inputs @param {import("./types").GraphContext} context */
  run(inputs, context, outside = /** @type {any[]} */ ([])) {
    const values = this.template.slice();
    this.inputs.forEach((slot, index) => { values[slot] = inputs[index]; });
    for (const [from, slot] of this.captured) values[slot] = outside[from];
    for (const node of this.nodes) if (node) this.#runNode(node, values, context);
    return this.outputs.map((slot) => values[slot]);
  }

  #runNode({ operator, inputs, attributes, outputs }, values, context) {
    const given = inputs.map((slot) => (slot < 0 ? undefined : values[slot]));
    const result = operator in SUBGRAPH_OPERATORS ? SUBGRAPH_OPERATORS[operator](given, attributes, context, values)
      : operator in CONTEXT_OPERATORS ? CONTEXT_OPERATORS[operator](given, attributes, context)
        : OPERATORS[operator](given, attributes, outputs.length);
    const results = Array.isArray(result) ? result : [result];
    outputs.forEach((slot, index) => { if (slot >= 0) values[slot] = results[index]; });
  }

  /** The outputs by name for inputs by name. @param {Record<string, any>} inputs @param {import("./types").GraphContext} context */
  runNamed(inputs, context) {
    const outputs = this.run(this.inputNames.map((name) => inputs[name]), context);
    return Object.fromEntries(this.outputNames.map((name, index) => [name, outputs[index]]));
  }
}

/** A recurrence: states, then sequences of which each step reads one element (ONNX, operator Scan-11). */
function runScan(inputs, attributes, context, values) {
  const { body, num_scan_inputs: numSequences } = attributes;
  const numStates = inputs.length - numSequences;
  const sequences = inputs.slice(numStates);
  const listOf = (name, count) => attributes[name] ?? new Array(count).fill(0);
  const axes = listOf("scan_input_axes", numSequences).map((axis, k) => axisOf(axis, sequences[k].shape.length));
  const isBackward = listOf("scan_input_directions", numSequences);
  const length = sequences[0].shape[axes[0]];
  let states = inputs.slice(0, numStates);
  const steps = /** @type {any[][]} */ ([]);
  for (let step = 0; step < length; step += 1) {
    const read = sequences.map((sequence, k) => elementAt(sequence, axes[k], isBackward[k] ? length - 1 - step : step));
    const outputs = body.run([...states, ...read], context, values);
    states = outputs.slice(0, numStates);
    steps.push(outputs.slice(numStates));
  }
  const numOutputs = body.outputs.length - numStates;
  const outputAxes = listOf("scan_output_axes", numOutputs);
  const isReversed = listOf("scan_output_directions", numOutputs);
  const stacked = outputAxes.map((axis, k) => {
    const parts = steps.map((outputs) => outputs[k]);
    return stack(isReversed[k] ? parts.reverse() : parts, axis);
  });
  return [...states, ...stacked];
}
