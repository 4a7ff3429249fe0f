// Matrix products and convolutions: where nearly all time goes.

import { transpose } from "./tensor-shapes.js";
import { broadcastIndex, broadcastShape, newTensor, tensor } from "./tensors.js";

/** c[m, n] += sum_k a[m, k] b[k, n]. @type {(a: any, aStart: number, b: any, bStart: number, c: any, cStart: number, sizes: number[]) => void} */
function multiplyInto(a, aStart, b, bStart, c, cStart, [M, K, N]) {
  for (let m = 0; m < M; m += 1) {
    const row = cStart + m * N;
    for (let k = 0; k < K; k += 1) {
      const factor = a[aStart + m * K + k];
      if (factor === 0) continue;
      const start = bStart + k * N;
      for (let n = 0; n < N; n += 1) c[row + n] += factor * b[start + n];
    }
  }
}

/** c[m, n] = sum_k a[m, k] b[n, k]: a row of b is used for all m while it is in the cache. */
function multiplyTransposed(a, b, c, [M, K, N]) {
  for (let n = 0; n < N; n += 1) {
    const y = n * K;
    for (let m = 0; m < M; m += 1) {
      const x = m * K;
      let [even, odd, k] = [0, 0, 0];
      for (; k + 1 < K; k += 2) {
        even += a[x + k] * b[y + k];
        odd += a[x + k + 1] * b[y + k + 1];
      }
      if (k < K) even += a[x + k] * b[y + k];
      c[m * N + n] = even + odd;
    }
  }
}

export function matMul([left, right]) {
  const [a, b] = [left.shape.length === 1 ? [1, ...left.shape] : left.shape, right.shape.length === 1 ? [...right.shape, 1] : right.shape];
  const sizes = [a.at(-2), a.at(-1), b.at(-1)];
  const [M, K, N] = sizes;
  const batch = broadcastShape(a.slice(0, -2), b.slice(0, -2));
  const result = newTensor([...batch, M, N], left.type);
  const first = broadcastIndex(a.slice(0, -2), batch);
  const second = broadcastIndex(b.slice(0, -2), batch);
  first.forEach((index, k) => multiplyInto(left.values, index * M * K, right.values, second[k] * K * N, result.values, k * M * N, sizes));
  const isRow = (dim) => (dim === batch.length && left.shape.length === 1) || (dim === batch.length + 1 && right.shape.length === 1);
  return tensor(result.shape.filter((_, dim) => !isRow(dim)), result.values, result.type);
}

export function gemm([left, right, bias], { transA = 0, transB = 0, alpha = 1, beta = 1 }) {
  const a = transA ? transpose([left], { perm: [1, 0] }) : left;
  const [M, K] = a.shape;
  const N = right.shape[transB ? 0 : 1];
  const result = newTensor([M, N], left.type);
  if (transB) multiplyTransposed(a.values, right.values, result.values, [M, K, N]);
  else multiplyInto(a.values, 0, right.values, 0, result.values, 0, [M, K, N]);
  if (alpha !== 1) for (let k = 0; k < result.values.length; k += 1) result.values[k] *= alpha;
  if (!bias) return result;
  const indices = broadcastIndex(bias.shape, result.shape);
  for (let k = 0; k < indices.length; k += 1) result.values[k] += beta * bias.values[indices[k]];
  return result;
}

/** How many positions a window has along an axis. */
function windowCount(size, kernel, stride, dilation, before, after, isCeiled = 0) {
  const free = size + before + after - dilation * (kernel - 1) - 1;
  const count = (isCeiled ? Math.ceil(free / stride) : Math.floor(free / stride)) + 1;
  return isCeiled && (count - 1) * stride >= size + before ? count - 1 : count; // none begins in the padding behind
}

/** The sizes of windows over an image: [height, width] of the kernel, its strides, dilations, pads and the output. */
function imageWindows([height, width], [rows, columns], { strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], ceil_mode: isCeiled = 0 }) {
  const [top, left, bottom, right] = pads;
  const outHeight = windowCount(height, rows, strides[0], dilations[0], top, bottom, isCeiled);
  const outWidth = windowCount(width, columns, strides[1], dilations[1], left, right, isCeiled);
  return { height, width, rows, columns, strides, dilations, top, left, outHeight, outWidth };
}

/** Calls `visit(at, from)` for each output, with the pixel that a cell of the kernel sees there, inside the image. */
function visitWindows({ height, width, strides, dilations, top, left, outHeight, outWidth }, kernelRow, kernelColumn, visit) {
  for (let y = 0; y < outHeight; y += 1) {
    const row = y * strides[0] + kernelRow * dilations[0] - top;
    if (row < 0 || row >= height) continue;
    for (let x = 0; x < outWidth; x += 1) {
      const column = x * strides[1] + kernelColumn * dilations[1] - left;
      if (column >= 0 && column < width) visit(y * outWidth + x, row * width + column);
    }
  }
}

function convolveImages([input, weight, bias], { group = 1, ...attributes }) {
  const [[B, C, height, width], [O, D, rows, columns]] = [input.shape, weight.shape];
  const windows = imageWindows([height, width], [rows, columns], attributes);
  const [inner, size] = [height * width, windows.outHeight * windows.outWidth];
  const result = newTensor([B, O, windows.outHeight, windows.outWidth], input.type);
  for (let row = 0; row < B; row += 1) {
    for (let o = 0; o < O; o += 1) {
      const sums = new Float64Array(size).fill(bias ? bias.values[o] : 0);
      const first = row * C + Math.floor(o / (O / group)) * D;
      for (let d = 0; d < D; d += 1) {
        const plane = input.values.subarray((first + d) * inner, (first + d + 1) * inner);
        for (let k = 0; k < rows * columns; k += 1) {
          const factor = weight.values[(o * D + d) * rows * columns + k];
          visitWindows(windows, Math.floor(k / columns), k % columns, (at, from) => { sums[at] += factor * plane[from]; });
        }
      }
      result.values.set(sums, (row * O + o) * size);
    }
  }
  return result;
}

/** Convolutions of images, and of sequences, which are images of one row. */
export function convolve([input, weight, bias], attributes) {
  const { auto_pad: padding = "NOTSET" } = attributes;
  if (padding !== "NOTSET" || input.shape.length > 4) throw new Error(`Conv: ${padding}, ${input.shape.length} dimensions`);
  if (input.shape.length === 4) return convolveImages([input, weight, bias], attributes);
  const { strides = [1], dilations = [1], pads = [0, 0] } = attributes;
  const toImage = ({ shape: [first, second, length], values, type }) => tensor([first, second, 1, length], values, type);
  const wide = { ...attributes, strides: [1, ...strides], dilations: [1, ...dilations], pads: [0, pads[0], 0, pads[1]] };
  const { shape: [B, O, , length], values, type } = convolveImages([toImage(input), toImage(weight), bias], wide);
  return tensor([B, O, length], values, type);
}

export function maxPool([input], { kernel_shape: kernel, ...attributes }) {
  const [B, C, height, width] = input.shape;
  const windows = imageWindows([height, width], kernel, attributes);
  const size = windows.outHeight * windows.outWidth;
  const result = newTensor([B, C, windows.outHeight, windows.outWidth], input.type);
  result.values.fill(-Infinity);
  for (let plane = 0; plane < B * C; plane += 1) {
    for (let k = 0; k < kernel[0] * kernel[1]; k += 1) {
      visitWindows(windows, Math.floor(k / kernel[1]), k % kernel[1], (at, from) => {
        result.values[plane * size + at] = Math.max(result.values[plane * size + at], input.values[plane * height * width + from]);
      });
    }
  }
  return result;
}

/** Batch normalization with fixed statistics. */
export function normalizeBatch([input, scale, bias, mean, variance], { epsilon = 1e-5 }) {
  const [, C, ...inner] = input.shape;
  const size = inner.reduce((product, one) => product * one, 1);
  const result = newTensor(input.shape, input.type);
  for (let k = 0; k < input.values.length; k += 1) {
    const c = Math.floor(k / size) % C;
    result.values[k] = ((input.values[k] - mean.values[c]) * scale.values[c]) / Math.sqrt(variance.values[c] + epsilon) + bias.values[c];
  }
  return result;
}
