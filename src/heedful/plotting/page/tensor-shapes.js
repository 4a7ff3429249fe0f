// Operators that move values: other shapes, parts, and what indices name.

import { axisOf, broadcastIndex, broadcastShape, isSame, newTensor, sizeOf, stridesOf, tensor, walk } from "./tensors.js";

export function transpose([input], { perm = input.shape.map((_, dim) => dim).reverse() }) {
  const strides = stridesOf(input.shape);
  const result = newTensor(perm.map((dim) => input.shape[dim]), input.type);
  walk(result.shape, perm.map((dim) => strides[dim]), (k, index) => { result.values[k] = input.values[index]; });
  return result;
}

export function sliceAxis(input, axis, start, end) {
  const [outer, inner] = [sizeOf(input.shape.slice(0, axis)), sizeOf(input.shape.slice(axis + 1))];
  const count = Math.max(0, end - start);
  const result = newTensor(input.shape.map((size, dim) => (dim === axis ? count : size)), input.type);
  for (let k = 0; k < outer; k += 1) {
    const from = (k * input.shape[axis] + start) * inner;
    result.values.set(input.values.subarray(from, from + count * inner), k * count * inner);
  }
  return result;
}

export function concat(inputs, { axis }) {
  const dim = axisOf(axis, inputs[0].shape.length);
  const shape = [...inputs[0].shape];
  shape[dim] = inputs.reduce((sum, input) => sum + input.shape[dim], 0);
  const result = newTensor(shape, inputs[0].type);
  const [outer, row] = [sizeOf(shape.slice(0, dim)), sizeOf(shape.slice(dim))];
  let offset = 0;
  for (const { values, shape: of } of inputs) {
    const width = sizeOf(of.slice(dim));
    for (let k = 0; k < outer; k += 1) result.values.set(values.subarray(k * width, (k + 1) * width), k * row + offset);
    offset += width;
  }
  return result;
}

export function splitAxis([input, sizes], { axis = 0 }, numOutputs) {
  const dim = axisOf(axis, input.shape.length);
  const size = Math.ceil(input.shape[dim] / numOutputs);
  const counts = sizes ? [...sizes.values] : Array.from({ length: numOutputs }, (_, k) => Math.min(size, input.shape[dim] - k * size));
  let start = 0;
  return counts.map((count) => sliceAxis(input, dim, start, (start += count)));
}

export function sliceSteps([input, starts, ends, axes, steps]) {
  let result = input;
  [...(axes ? axes.values : starts.values.keys())].forEach((axis, k) => {
    const dim = axisOf(axis, input.shape.length);
    const [size, step] = [result.shape[dim], steps ? steps.values[k] : 1];
    const clamp = (index, low, high) => Math.min(high, Math.max(low, index < 0 ? index + size : index));
    if (step === 1) {
      result = sliceAxis(result, dim, clamp(starts.values[k], 0, size), clamp(ends.values[k], 0, size));
      return;
    }
    const [first, last] = step > 0 ? [clamp(starts.values[k], 0, size), clamp(ends.values[k], 0, size)]
      : [clamp(starts.values[k], 0, size - 1), clamp(ends.values[k], -1, size - 1)];
    const indices = [];
    for (let index = first; step > 0 ? index < last : index > last; index += step) indices.push(index);
    result = gather([result, tensor([indices.length], Int32Array.from(indices), "i32")], { axis: dim });
  });
  return result;
}

export function reshape([input, shape], { allowzero = 0 }) {
  const result = [...shape.values].map((size, dim) => (size === 0 && !allowzero ? input.shape[dim] : size));
  const free = result.indexOf(-1);
  if (free >= 0) {
    result[free] = 1;
    result[free] = input.values.length / sizeOf(result);
  }
  return tensor(result, input.values, input.type);
}

export function axesOf([, axes], attributes, rank) {
  const given = attributes.axes ?? (axes ? [...axes.values] : null);
  return given && given.map((axis) => axisOf(axis, rank));
}

export function squeeze(inputs, attributes) {
  const [{ shape, values, type }] = inputs;
  const axes = axesOf(inputs, attributes, shape.length);
  return tensor(shape.filter((size, dim) => (axes ? !axes.includes(dim) : size !== 1)), values, type);
}

export function unsqueeze(inputs, attributes) {
  const [{ shape, values, type }] = inputs;
  const rank = shape.length + (attributes.axes ?? inputs[1].values).length;
  const axes = axesOf(inputs, attributes, rank);
  const sizes = shape.values();
  return tensor(Array.from({ length: rank }, (_, dim) => (axes.includes(dim) ? 1 : sizes.next().value)), values, type);
}

export function expand([input, shape]) {
  const to = broadcastShape(input.shape, [...shape.values]);
  if (isSame(to, input.shape)) return input;
  const result = newTensor(to, input.type);
  broadcastIndex(input.shape, to).forEach((index, k) => { result.values[k] = input.values[index]; });
  return result;
}

export function padConstant([input, pads, value, axes], { mode = "constant" }) {
  if (mode !== "constant") throw new Error(`Pad: ${mode}`);
  const dims = axes ? [...axes.values].map((axis) => axisOf(axis, input.shape.length)) : [...input.shape.keys()];
  return dims.reduce((result, dim, k) => {
    const [before, after] = [pads.values[k], pads.values[k + dims.length]];
    const inner = sliceAxis(result, dim, Math.max(0, -before), result.shape[dim] + Math.min(0, after));
    const [first, last] = [before, after].map((count) => {
      const part = newTensor(inner.shape.map((size, other) => (other === dim ? Math.max(0, count) : size)), input.type);
      return value ? { ...part, values: part.values.fill(value.values[0]) } : part;
    });
    return concat([first, inner, last], { axis: dim });
  }, input);
}

export function tileAxes([input, repeats]) {
  return [...repeats.values].reduce((result, count, dim) => (count === 1 ? result : concat(new Array(count).fill(result), { axis: dim })), input);
}

// ----- indices

export function gather([input, indices], { axis = 0 }) {
  const dim = axisOf(axis, input.shape.length);
  const [outer, size, inner] = [sizeOf(input.shape.slice(0, dim)), input.shape[dim], sizeOf(input.shape.slice(dim + 1))];
  const result = newTensor([...input.shape.slice(0, dim), ...indices.shape, ...input.shape.slice(dim + 1)], input.type);
  for (let k = 0, at = 0; k < outer; k += 1) {
    for (const index of indices.values) {
      const from = (k * size + axisOf(index, size)) * inner;
      result.values.set(input.values.subarray(from, from + inner), at);
      at += inner;
    }
  }
  return result;
}

/** Calls `visit(k, index)` for each of `indices`, with the element of the input that it names along an axis. */
function visitElements(input, indices, axis, visit) {
  const dim = axisOf(axis, input.shape.length);
  const strides = stridesOf(input.shape);
  const size = input.shape[dim];
  walk(indices.shape, strides.map((stride, other) => (other === dim ? 0 : stride)), (k, index) =>
    visit(k, index + axisOf(indices.values[k], size) * strides[dim]));
}

export function gatherElements([input, indices], { axis = 0 }) {
  const result = newTensor(indices.shape, input.type);
  visitElements(input, indices, axis, (k, index) => { result.values[k] = input.values[index]; });
  return result;
}

const REDUCTIONS = { none: (_, y) => y, add: (x, y) => x + y, mul: (x, y) => x * y, max: Math.max, min: Math.min };

export function scatterElements([input, indices, updates], { axis = 0, reduction = "none" }) {
  const result = tensor(input.shape, input.values.slice(), input.type);
  const combine = REDUCTIONS[reduction];
  visitElements(input, indices, axis, (k, index) => { result.values[index] = combine(result.values[index], updates.values[k]); });
  return result;
}

/** Calls `visit(k, start)` for the k-th tuple of indices, with the start of the slice that it names. */
function visitSlices(input, indices, batchDims, visit) {
  const width = indices.shape.at(-1);
  const strides = stridesOf(input.shape);
  const count = sizeOf(indices.shape.slice(0, -1));
  const perBatch = count / sizeOf(input.shape.slice(0, batchDims));
  for (let k = 0; k < count; k += 1) {
    let start = batchDims ? Math.floor(k / perBatch) * strides[batchDims - 1] : 0;
    for (let dim = 0; dim < width; dim += 1) {
      start += axisOf(indices.values[k * width + dim], input.shape[batchDims + dim]) * strides[batchDims + dim];
    }
    visit(k, start);
  }
}

export function gatherND([input, indices], { batch_dims: batchDims = 0 }) {
  const rest = input.shape.slice(batchDims + indices.shape.at(-1));
  const result = newTensor([...indices.shape.slice(0, -1), ...rest], input.type);
  const inner = sizeOf(rest);
  visitSlices(input, indices, batchDims, (k, start) => result.values.set(input.values.subarray(start, start + inner), k * inner));
  return result;
}

export function scatterND([input, indices, updates], { reduction = "none" }) {
  const result = tensor(input.shape, input.values.slice(), input.type);
  const [inner, combine] = [sizeOf(input.shape.slice(indices.shape.at(-1))), REDUCTIONS[reduction]];
  visitSlices(input, indices, 0, (k, start) => {
    for (let i = 0; i < inner; i += 1) result.values[start + i] = combine(result.values[start + i], updates.values[k * inner + i]);
  });
  return result;
}

export function chooseWhere([condition, yes, no]) {
  const result = newTensor(broadcastShape(condition.shape, yes.shape, no.shape), yes.type);
  const [first, second, third] = [condition, yes, no].map(({ shape }) => broadcastIndex(shape, result.shape));
  for (let k = 0; k < first.length; k += 1) {
    result.values[k] = condition.values[first[k]] ? yes.values[second[k]] : no.values[third[k]];
  }
  return result;
}

/** The part of a tensor at an index of an axis, without that axis. */
export function elementAt(input, axis, index) {
  const part = sliceAxis(input, axis, index, index + 1);
  return tensor(input.shape.filter((_, dim) => dim !== axis), part.values, part.type);
}

/** Tensors of one shape along a new axis. */
export function stack(inputs, axis) {
  const dim = axisOf(axis, inputs[0].shape.length + 1);
  const parts = inputs.map(({ shape, values, type }) => tensor([...shape.slice(0, dim), 1, ...shape.slice(dim)], values, type));
  return concat(parts, { axis: dim });
}
