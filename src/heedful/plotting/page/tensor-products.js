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

export function convolve([input, weight, bias], { group = 1, strides = [1], dilations = [1], pads = [0, 0] }) {
  if (input.shape.length !== 3) throw new Error("Conv: only sequences are convolved");
  const [[B, C, L], [O, D, K]] = [input.shape, weight.shape];
  const length = Math.floor((L + pads[0] + pads[1] - dilations[0] * (K - 1) - 1) / strides[0]) + 1;
  const result = newTensor([B, O, length], input.type);
  for (let row = 0, at = 0; row < B; row += 1) {
    for (let o = 0; o < O; o += 1) {
      const first = Math.floor(o / (O / group)) * D;
      for (let n = 0; n < length; n += 1, at += 1) {
        let sum = bias ? bias.values[o] : 0;
        for (let k = 0; k < K; k += 1) {
          const x = n * strides[0] + k * dilations[0] - pads[0];
          if (x < 0 || x >= L) continue;
          for (let d = 0; d < D; d += 1) sum += input.values[(row * C + first + d) * L + x] * weight.values[(o * D + d) * K + k];
        }
        result.values[at] = sum;
      }
    }
  }
  return result;
}
