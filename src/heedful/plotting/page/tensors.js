// Tensors { shape, type, values }, and how their shapes are broadcast.
//
// A type is "f32", "f64", "i32" (also for int64) or "u8" (bool). A tensor is never changed after it was made;
// one that has another shape may share its values.

const ARRAYS = { f32: Float32Array, f64: Float64Array, i32: Int32Array, u8: Uint8Array };

export function tensor(shape, values, type) {
  return { shape, type, values };
}

export function sizeOf(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

export function newTensor(shape, type) {
  return tensor(shape, new ARRAYS[type](sizeOf(shape)), type);
}

/** @type {(values: any, type: string) => any} */
export function toTyped(values, type) {
  return ARRAYS[type].from(values);
}

export function axisOf(axis, rank) {
  return axis < 0 ? axis + rank : axis;
}

export function stridesOf(shape) {
  const strides = new Array(shape.length);
  for (let dim = shape.length - 1, stride = 1; dim >= 0; stride *= shape[dim], dim -= 1) strides[dim] = stride;
  return strides;
}

export function roundHalfToEven(x) {
  const rounded = Math.round(x);
  return Math.abs(x % 1) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded;
}

export function isSame(one, other) {
  return one.length === other.length && one.every((size, dim) => size === other[dim]);
}

export function broadcastShape(...shapes) {
  const rank = Math.max(...shapes.map((shape) => shape.length));
  const result = new Array(rank).fill(1);
  for (const shape of shapes) {
    shape.forEach((size, dim) => { if (size !== 1) result[rank - shape.length + dim] = size; });
  }
  return result;
}

/** Calls `visit(k, index)` for the k-th element of a shape, with its index in values of the given strides. */
export function walk(shape, strides, visit) {
  const counts = new Array(shape.length).fill(0);
  const size = sizeOf(shape);
  for (let k = 0, index = 0; k < size; k += 1) {
    visit(k, index);
    for (let dim = shape.length - 1; dim >= 0; dim -= 1) {
      counts[dim] += 1;
      index += strides[dim];
      if (counts[dim] < shape[dim]) break;
      index -= strides[dim] * shape[dim];
      counts[dim] = 0;
    }
  }
}

/** The index in values of `shape` of each element of the shape that it is broadcast to. */
export function broadcastIndex(shape, to) {
  const offset = to.length - shape.length;
  const strides = new Array(to.length).fill(0);
  stridesOf(shape).forEach((stride, dim) => { strides[offset + dim] = shape[dim] === 1 ? 0 : stride; });
  const indices = new Int32Array(sizeOf(to));
  walk(to, strides, (k, index) => { indices[k] = index; });
  return indices;
}
