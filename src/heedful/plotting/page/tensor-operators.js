// Operators of ONNX: what the graphs of exported models use. An operator takes its inputs, attributes and the
// number of outputs, and returns a tensor, or an array of several.
//
// The exporter reads the keys of OPERATORS, each at the start of a line, and refuses a graph with others.

import { convolve, gemm, matMul, maxPool, normalizeBatch } from "./tensor-products.js";
import { axesOf, concat, expand, gather, gatherElements, gatherND, padConstant, reshape, scatterElements, scatterND,
  sliceSteps, splitAxis, squeeze, tileAxes, transpose, unsqueeze, chooseWhere } from "./tensor-shapes.js";
import { axisOf, broadcastIndex, broadcastShape, isSame, newTensor, roundHalfToEven, sizeOf, tensor, toTyped } from "./tensors.js";

const ONNX_TYPES = { 1: "f32", 6: "i32", 7: "i32", 9: "u8", 10: "f32", 11: "f64" };

/** @type {(compute: (x: number, y: number) => number, type?: string) => (inputs: any[]) => any} */
const binary = (compute, type) => ([left, right]) => {
  const [x, y] = [left.values, right.values];
  if (isSame(left.shape, right.shape) || (y.length === 1 && right.shape.length <= left.shape.length)) {
    const result = newTensor(left.shape, type ?? left.type);
    const step = y.length === 1 ? 0 : 1;
    for (let k = 0; k < x.length; k += 1) result.values[k] = compute(x[k], y[k * step]);
    return result;
  }
  const result = newTensor(broadcastShape(left.shape, right.shape), type ?? left.type);
  const [first, second] = [left, right].map(({ shape }) => broadcastIndex(shape, result.shape));
  for (let k = 0; k < first.length; k += 1) result.values[k] = compute(x[first[k]], y[second[k]]);
  return result;
};

/** @type {(compute: (x: number) => number, type?: string) => (inputs: any[]) => any} */
const unary = (compute, type) => ([input]) => {
  const result = newTensor(input.shape, type ?? input.type);
  for (let k = 0; k < input.values.length; k += 1) result.values[k] = compute(input.values[k]);
  return result;
};

function divide(inputs) {
  const isInteger = inputs[0].type === "i32";
  return binary(isInteger ? (x, y) => Math.trunc(x / y) : (x, y) => x / y)(inputs);
}

/** The error function, by its series and, above 2.5, its continued fraction. */
function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.5) {
    let [sum, term] = [x, x];
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n += 1) {
      term *= -(x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = size;
  for (let n = 60; n > 0; n -= 1) fraction = size + n / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-size * size) / (Math.sqrt(Math.PI) * fraction));
}

function gelu([input], { approximate }) {
  const isTanh = approximate === "tanh";
  return unary((x) => 0.5 * x * (1 + (isTanh ? Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)) : erf(x / Math.SQRT2))))([input]);
}

// ----- rows

/** Applies `compute(input, output, start, stride, size)` to each row along an axis. */
function mapRows(input, axis, compute, type = input.type) {
  const dim = axisOf(axis, input.shape.length);
  const [size, inner] = [input.shape[dim], sizeOf(input.shape.slice(dim + 1))];
  const result = newTensor(input.shape, type);
  for (let outer = 0; outer < input.values.length; outer += size * inner) {
    for (let k = 0; k < inner; k += 1) compute(input.values, result.values, outer + k, inner, size);
  }
  return result;
}

function largestOf(x, start, stride, size) {
  let largest = -Infinity;
  for (let k = 0, at = start; k < size; k += 1, at += stride) if (x[at] > largest) largest = x[at];
  return largest;
}

function softmaxRow(x, y, start, stride, size) {
  const largest = largestOf(x, start, stride, size);
  let sum = 0;
  for (let k = 0, at = start; k < size; k += 1, at += stride) sum += y[at] = Math.exp(x[at] - largest);
  for (let k = 0, at = start; k < size; k += 1, at += stride) y[at] /= sum;
}

function logSoftmaxRow(x, y, start, stride, size) {
  const largest = largestOf(x, start, stride, size);
  let sum = 0;
  for (let k = 0, at = start; k < size; k += 1, at += stride) sum += Math.exp(x[at] - largest);
  const normalizer = largest + Math.log(sum);
  for (let k = 0, at = start; k < size; k += 1, at += stride) y[at] = x[at] - normalizer;
}

function cumulativeSum([input, axis], { exclusive = 0, reverse = 0 }) {
  return mapRows(input, axis.values[0], (x, y, start, stride, size) => {
    let sum = 0;
    for (let k = 0; k < size; k += 1) {
      const at = start + (reverse ? size - 1 - k : k) * stride;
      if (exclusive) y[at] = sum;
      sum += x[at];
      if (!exclusive) y[at] = sum;
    }
  });
}

function layerNormalization([input, scale, bias], { axis = -1, epsilon = 1e-5 }) {
  const size = sizeOf(input.shape.slice(axisOf(axis, input.shape.length)));
  const [result, x] = [newTensor(input.shape, input.type), input.values];
  for (let start = 0; start < x.length; start += size) {
    let [mean, variance] = [0, 0];
    for (let k = 0; k < size; k += 1) mean += x[start + k] / size;
    for (let k = 0; k < size; k += 1) variance += (x[start + k] - mean) ** 2 / size;
    const factor = 1 / Math.sqrt(variance + epsilon);
    for (let k = 0; k < size; k += 1) {
      result.values[start + k] = (x[start + k] - mean) * factor * scale.values[k] + (bias ? bias.values[k] : 0);
    }
  }
  return result;
}

const reduction = (initial, combine, finish = (/** @type {number} */ total, /** @type {number} */ _) => total) => (inputs, attributes) => {
  const [input] = inputs;
  const axes = axesOf(inputs, attributes, input.shape.length);
  if (attributes.noop_with_empty_axes && !axes?.length) return input;
  const isReduced = (dim) => !axes?.length || axes.includes(dim);
  const shape = input.shape.map((size, dim) => (isReduced(dim) ? 1 : size));
  const sums = new Float64Array(sizeOf(shape)).fill(initial);
  const indices = broadcastIndex(shape, input.shape);
  for (let k = 0; k < indices.length; k += 1) sums[indices[k]] = combine(sums[indices[k]], input.values[k]);
  const count = input.values.length / sums.length;
  const values = toTyped(sums.map((sum) => finish(sum, count)), input.type);
  return tensor((attributes.keepdims ?? 1) ? shape : shape.filter((_, dim) => !isReduced(dim)), values, input.type);
};

function logAddExp(x, y) {
  const largest = Math.max(x, y);
  return Number.isFinite(largest) ? largest + Math.log1p(Math.exp(-Math.abs(x - y))) : largest;
}

const argument = (isBetter) => ([input], { axis = 0, keepdims = 1, select_last_index: isLast = 0 }) => {
  const dim = axisOf(axis, input.shape.length);
  const best = mapRows(input, dim, (x, y, start, stride, size) => {
    let index = 0;
    for (let k = 1; k < size; k += 1) {
      const [value, former] = [x[start + k * stride], x[start + index * stride]];
      if (isBetter(value, former) || (isLast && value === former)) index = k;
    }
    y[start] = index;
  }, "i32");
  const first = gather([best, tensor([1], Int32Array.of(0), "i32")], { axis: dim });
  return keepdims ? first : squeeze([first], { axes: [dim] });
};

function topK([input, count], { axis = -1, largest = 1 }) {
  const dim = axisOf(axis, input.shape.length);
  const sign = largest ? -1 : 1;
  const order = mapRows(input, dim, (x, y, start, stride, size) => {
    const value = (index) => x[start + index * stride];
    const ranked = [...new Array(size).keys()].sort((one, two) => sign * (value(one) - value(two)) || one - two);
    ranked.forEach((index, k) => { y[start + k * stride] = index; });
  }, "i32");
  const indices = gather([order, tensor([count.values[0]], Int32Array.from(new Array(count.values[0]).keys()), "i32")], { axis: dim });
  return [gatherElements([input, indices], { axis: dim }), indices];
}

// ----- others

function cast([input], { to }) {
  const type = ONNX_TYPES[to];
  if (type === undefined) throw new Error(`Cast: type ${to}`);
  if (type === input.type) return input;
  const values = type === "u8" ? Uint8Array.from(input.values, (x) => Number(x !== 0))
    : type === "i32" ? Int32Array.from(input.values, Math.trunc) : toTyped(input.values, type);
  return tensor(input.shape, values, type);
}

function clip([input, low, high]) {
  const [least, most] = [low?.values[0] ?? -Infinity, high?.values[0] ?? Infinity];
  return unary((x) => Math.min(most, Math.max(least, x)))([input]);
}

function constantOfShape([shape], { value }) {
  const result = newTensor([...shape.values], value?.type ?? "f32");
  return { ...result, values: result.values.fill(value ? value.values[0] : 0) };
}

function eyeLike([input], { dtype, k: diagonal = 0 }) {
  const [rows, columns] = input.shape;
  const result = newTensor([rows, columns], ONNX_TYPES[dtype] ?? input.type);
  for (let row = Math.max(0, -diagonal); row < rows && row + diagonal < columns; row += 1) result.values[row * columns + row + diagonal] = 1;
  return result;
}

function range([start, limit, delta]) {
  const count = Math.max(0, Math.ceil((limit.values[0] - start.values[0]) / delta.values[0]));
  const result = newTensor([count], start.type);
  return { ...result, values: result.values.map((_, k) => start.values[0] + k * delta.values[0]) };
}

function shapeOf([input], { start = 0, end = input.shape.length }) {
  const sizes = Int32Array.from(input.shape.slice(start, end));
  return tensor([sizes.length], sizes, "i32");
}

function trilu([input, diagonal], { upper = 1 }) {
  const [rows, columns] = input.shape.slice(-2);
  const offset = diagonal?.values[0] ?? 0;
  const values = input.values.map((x, k) => {
    const distance = (k % columns) - (Math.floor(k / columns) % rows) - offset;
    return (upper ? distance >= 0 : distance <= 0) ? x : 0;
  });
  return tensor(input.shape, values, input.type);
}

const sum = (x, y) => x + y;

/** @type {Record<string, (inputs: any[], attributes: any, numOutputs: number) => any>} */
export const OPERATORS = {
  Abs: unary(Math.abs),
  Add: binary(sum),
  And: binary((x, y) => x & y),
  ArgMax: argument((x, y) => x > y),
  ArgMin: argument((x, y) => x < y),
  BatchNormalization: normalizeBatch,
  Cast: cast,
  Ceil: unary(Math.ceil),
  Clip: clip,
  Concat: concat,
  ConstantOfShape: constantOfShape,
  Conv: convolve,
  Cos: unary(Math.cos),
  CumSum: cumulativeSum,
  Div: divide,
  Equal: binary((x, y) => Number(x === y), "u8"),
  Erf: unary(erf),
  Exp: unary(Math.exp),
  Expand: expand,
  EyeLike: eyeLike,
  Floor: unary(Math.floor),
  Gather: gather,
  GatherElements: gatherElements,
  GatherND: gatherND,
  Gelu: gelu,
  Gemm: gemm,
  Greater: binary((x, y) => Number(x > y), "u8"),
  GreaterOrEqual: binary((x, y) => Number(x >= y), "u8"),
  HardSigmoid: ([input], { alpha = 0.2, beta = 0.5 }) => unary((x) => Math.max(0, Math.min(1, alpha * x + beta)))([input]),
  Identity: ([input]) => input,
  IsInf: unary((x) => Number(Math.abs(x) === Infinity), "u8"),
  IsNaN: unary((x) => Number(Number.isNaN(x)), "u8"),
  LayerNormalization: layerNormalization,
  LeakyRelu: ([input], { alpha = 0.01 }) => unary((x) => (x < 0 ? alpha * x : x))([input]),
  Less: binary((x, y) => Number(x < y), "u8"),
  LessOrEqual: binary((x, y) => Number(x <= y), "u8"),
  Log: unary(Math.log),
  LogSoftmax: ([input], { axis = -1 }) => mapRows(input, axis, logSoftmaxRow),
  MatMul: matMul,
  Max: (inputs) => inputs.reduce((one, two) => binary(Math.max)([one, two])),
  MaxPool: maxPool,
  Min: (inputs) => inputs.reduce((one, two) => binary(Math.min)([one, two])),
  Mod: (inputs, { fmod = 0 }) => binary(fmod ? (x, y) => x % y : (x, y) => ((x % y) + y) % y)(inputs),
  Mul: binary((x, y) => x * y),
  Neg: unary((x) => -x),
  Not: unary((x) => Number(!x)),
  Or: binary((x, y) => x | y),
  Pad: padConstant,
  Pow: binary(Math.pow),
  Range: range,
  Reciprocal: unary((x) => 1 / x),
  ReduceL1: reduction(0, (x, y) => x + Math.abs(y)),
  ReduceL2: reduction(0, (x, y) => x + y * y, Math.sqrt),
  ReduceLogSumExp: reduction(-Infinity, logAddExp),
  ReduceMax: reduction(-Infinity, Math.max),
  ReduceMean: reduction(0, sum, (total, count) => total / count),
  ReduceMin: reduction(Infinity, Math.min),
  ReduceProd: reduction(1, (x, y) => x * y),
  ReduceSum: reduction(0, sum),
  ReduceSumSquare: reduction(0, (x, y) => x + y * y),
  Relu: unary((x) => (x <= 0 ? 0 : x)),
  Reshape: reshape,
  Round: unary(roundHalfToEven),
  ScatterElements: scatterElements,
  ScatterND: scatterND,
  Shape: shapeOf,
  Sigmoid: unary((x) => 1 / (1 + Math.exp(-x))),
  Sign: unary(Math.sign),
  Sin: unary(Math.sin),
  Size: ([input]) => tensor([], Int32Array.of(input.values.length), "i32"),
  Slice: sliceSteps,
  Softmax: ([input], { axis = -1 }) => mapRows(input, axis, softmaxRow),
  Softplus: unary((x) => (x > 20 ? x : Math.log1p(Math.exp(x)))),
  Split: splitAxis,
  Sqrt: unary(Math.sqrt),
  Squeeze: squeeze,
  Sub: binary((x, y) => x - y),
  Tan: unary(Math.tan),
  Tanh: unary(Math.tanh),
  Tile: tileAxes,
  TopK: topK,
  Transpose: transpose,
  Trilu: trilu,
  Unsqueeze: unsqueeze,
  Where: chooseWhere,
  Xor: binary((x, y) => x ^ y),
};
