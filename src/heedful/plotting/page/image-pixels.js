// Images as a model reads them: decoded, over white, in one size.
//
// `resizeImage` is heedful.data.images.image_files.resize_image: linear, and what shrinks is averaged.

import { decodeBase64 } from "./page-weights.js";
import { roundHalfToEven } from "./tensors.js";

const WHITE = 255;
const GRAY = [19595, 38470, 7471]; // of 65,536: red, green and blue, as Pillow weighs them

export function cellLabels([rows, columns]) {
  return Array.from({ length: rows * columns }, (_, cell) => `${Math.floor(cell / columns) + 1},${(cell % columns) + 1}`);
}

/** Decodes a file in base64; pixels stay as they are. @returns {Promise<{ width: number, height: number, values: ArrayLike<number> }>} */
export async function toImage(input) {
  if (typeof input !== "string") return input;
  const bytes = /** @type {any} */ (decodeBase64(input));
  const bitmap = await createImageBitmap(new Blob([bytes]), { colorSpaceConversion: "none" }).catch(() => {
    throw new Error("this is no image that this browser can read");
  });
  const { width, height } = bitmap;
  const context = /** @type {any} */ (new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true }));
  context.drawImage(bitmap, 0, 0);
  return { width, height, values: context.getImageData(0, 0, width, height).data };
}

/** Planes of color over white, or one of gray. */
function toPlanes({ width, height, values }, channels) {
  const planes = Array.from({ length: channels }, () => new Float32Array(width * height));
  for (let pixel = 0; pixel < width * height; pixel += 1) {
    const alpha = values[4 * pixel + 3] / WHITE;
    const color = [0, 1, 2].map((channel) => Math.round(values[4 * pixel + channel] * alpha + WHITE * (1 - alpha)));
    const gray = channels === 1 ? color.reduce((sum, value, channel) => sum + value * GRAY[channel], 0x8000) >> 16 : 0;
    planes.forEach((plane, channel) => { plane[pixel] = channels === 1 ? gray : color[channel]; });
  }
  return planes;
}

/** What each of `size` positions is made of: the first of `old` positions, and the weights of those from there. */
function linearWeights(old, size) {
  const scale = old / size;
  const reach = Math.max(scale, 1);
  return Array.from({ length: size }, (_, index) => {
    const center = scale * (index + 0.5);
    const first = Math.max(Math.trunc(center - reach + 0.5), 0);
    const count = Math.min(Math.trunc(center + reach + 0.5), old) - first;
    const weights = Array.from({ length: count }, (__, k) => Math.max(0, 1 - Math.abs((k + first - center + 0.5) / reach)));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return { first, weights: weights.map((weight) => weight / total) };
  });
}

/** Resamples rows that lie `stride` apart: `count` of them, each of `old` numbers `step` apart. */
function resampleRows(plane, { old, size, count, step, stride, outStep, outStride }) {
  const result = new Float32Array(size * count);
  linearWeights(old, size).forEach(({ first, weights }, index) => {
    for (let row = 0; row < count; row += 1) {
      let sum = 0;
      weights.forEach((weight, k) => { sum += weight * plane[row * stride + (first + k) * step]; });
      result[row * outStride + index * outStep] = sum;
    }
  });
  return result;
}

function resample(plane, width, height, newWidth, newHeight) {
  if (width === newWidth && height === newHeight) return plane;
  const wide = resampleRows(plane, { old: width, size: newWidth, count: height, step: 1, stride: width, outStep: 1, outStride: newWidth });
  const high = resampleRows(wide, { old: height, size: newHeight, count: newWidth, step: newWidth, stride: 1, outStep: newWidth, outStride: 1 });
  return high.map(roundHalfToEven);
}

/**
 * The bytes of an image in the size of a model, channel by channel. `crop` keeps the middle, `pad` adds white, `stretch` changes the proportions.
 * @param {any} image @param {{ channels: number, height: number, width: number, fit: string }} shape
 */
export function resizeImage(image, { channels, height, width, fit }) {
  const ratios = [height / image.height, width / image.width];
  const scale = { crop: Math.max(...ratios), pad: Math.min(...ratios) }[fit];
  const inner = (old, size) => (scale === undefined ? size : Math.max(1, roundHalfToEven(old * scale)));
  const [innerHeight, innerWidth] = [inner(image.height, height), inner(image.width, width)];
  const [top, left] = [Math.floor((innerHeight - height) / 2), Math.floor((innerWidth - width) / 2)];
  const result = new Uint8Array(channels * height * width).fill(WHITE);
  toPlanes(image, channels).forEach((plane, channel) => {
    const resampled = resample(plane, image.width, image.height, innerWidth, innerHeight);
    for (let y = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        const [row, column] = [y + top, x + left];
        const isInside = row >= 0 && row < innerHeight && column >= 0 && column < innerWidth;
        if (isInside) result[(channel * height + y) * width + x] = Math.min(WHITE, Math.max(0, resampled[row * innerWidth + column]));
      }
    }
  });
  return result;
}
