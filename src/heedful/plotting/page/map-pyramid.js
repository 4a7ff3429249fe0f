// A map of many weights at several resolutions. A cell of a coarser level is the largest of four cells,
// so a single large weight is seen at every zoom.

import { paletteColor } from "./dom.js";

const MIN_LEVEL_SIDE = 256; // a level that is no larger has no coarser one

function poolLevel({ rows, columns, values }) {
  const half = { rows: (rows + 1) >> 1, columns: (columns + 1) >> 1 };
  const pooled = new Uint8Array(half.rows * half.columns);
  for (let row = 0, index = 0; row < rows; row += 1) {
    const start = (row >> 1) * half.columns;
    for (let column = 0; column < columns; column += 1, index += 1) {
      const cell = start + (column >> 1);
      if (values[index] > pooled[cell]) pooled[cell] = values[index];
    }
  }
  return { ...half, values: pooled };
}

/** The levels of a map whose weights are there, finest first, as bytes relative to the largest weight; no weight above zero is 0. */
export class WeightPyramid {
  /** @param {ArrayLike<number>[]} weights */
  constructor(weights) {
    const [rows, columns] = [weights.length, weights[0].length];
    this.largest = 0;
    for (const row of weights) for (let column = 0; column < columns; column += 1) this.largest = Math.max(this.largest, row[column]);
    const values = new Uint8Array(rows * columns);
    weights.forEach((row, index) => {
      for (let column = 0; column < columns; column += 1) {
        values[index * columns + column] = Math.ceil((255 * row[column]) / (this.largest || 1));
      }
    });
    this.levels = [{ rows, columns, values }];
    while (Math.min(this.levels.at(-1).rows, this.levels.at(-1).columns) > MIN_LEVEL_SIDE) this.levels.push(poolLevel(this.levels.at(-1)));
  }

  get numLevels() {
    return this.levels.length;
  }

  /** The parts of a level that show some of its cells. @param {number} level @returns {import("./types").MapPart[]} */
  parts(level) {
    return [{ level, top: 0, left: 0, stride: this.levels[level].columns, ...this.levels[level] }];
  }
}

/** For each pixel the first cell, and the one after the last, that it shows. */
function cellRanges(size, start, perPixel, scale, count) {
  return Array.from({ length: size }, (_, pixel) => {
    const first = Math.min(Math.floor((start + pixel * perPixel) / scale), count - 1);
    return [first, Math.max(first + 1, Math.min(Math.ceil((start + (pixel + 1) * perPixel) / scale), count))];
  });
}

/** The colors of bytes, from the empty to the full cell, as pixels. @type {(exponent?: number) => Uint32Array} */
function buildRamp(exponent = 1) {
  const [empty, full] = [paletteColor("--empty-cell"), paletteColor("--full-cell")];
  return Uint32Array.from({ length: 256 }, (_, byte) => {
    const [red, green, blue] = empty.map((low, index) => Math.round(low + (full[index] - low) * (byte / 255) ** exponent));
    return (255 << 24) | (blue << 16) | (green << 8) | red; // little-endian RGBA
  });
}

/** The indices of the ranges that overlap others. @type {(ranges: number[][], first: number, end: number) => number[]} */
function overlapping(ranges, first, end) {
  let [start, stop] = [0, ranges.length];
  while (start < stop && ranges[start][1] <= first) start += 1;
  while (stop > start && ranges[stop - 1][0] >= end) stop -= 1;
  return [start, stop];
}

/** Raises bytes of pixels to the largest weight of a part below them. @type {(bytes: Uint8Array, downs: number[][], acrosses: number[][], part: import("./types").MapPart) => void} */
function raisePixels(bytes, downs, acrosses, { top, left, rows, columns, values, stride }) {
  const [[firstY, endY], [firstX, endX]] = [overlapping(downs, top, top + rows), overlapping(acrosses, left, left + columns)];
  for (let y = firstY; y < endY; y += 1) {
    const [fromRow, toRow] = [Math.max(downs[y][0], top), Math.min(downs[y][1], top + rows)];
    for (let x = firstX; x < endX; x += 1) {
      const [fromColumn, toColumn] = [Math.max(acrosses[x][0], left), Math.min(acrosses[x][1], left + columns)];
      let byte = bytes[y * acrosses.length + x];
      for (let row = fromRow; row < toRow; row += 1) {
        const start = (row - top) * stride - left;
        for (let column = fromColumn; column < toColumn; column += 1) byte = Math.max(byte, values[start + column]);
      }
      bytes[y * acrosses.length + x] = byte;
    }
  }
}

/**
 * Paints the part of a map that begins at a cell; a pixel has the color of its largest weight.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./types").MapPyramid} pyramid
 * @param {{ top: number, left: number, perPixel: number[], size: number[] }} part perPixel: rows and columns of a pixel; size: of the map
 */
export function paintPart(context, pyramid, { top, left, perPixel: [rowsPerPixel, columnsPerPixel], size }) {
  const { width, height } = context.canvas;
  const coarsest = Math.floor(Math.log2(Math.max(1, Math.min(rowsPerPixel, columnsPerPixel))));
  const finest = Math.min(coarsest, pyramid.numLevels - 1);
  /** @type {Map<number, number[][][]>} */
  const ranges = new Map(); // of pixels, in the cells of a level
  const rangesOf = (level) => {
    const [rows, columns] = size.map((count) => Math.ceil(count / 2 ** level));
    if (!ranges.has(level)) ranges.set(level, [cellRanges(height, top, rowsPerPixel, 2 ** level, rows), cellRanges(width, left, columnsPerPixel, 2 ** level, columns)]);
    return ranges.get(level);
  };
  const bytes = new Uint8Array(width * height);
  for (const part of pyramid.parts(finest, rangesOf(finest))) raisePixels(bytes, rangesOf(part.level)[0], rangesOf(part.level)[1], part);
  const [ramp, image] = [buildRamp(pyramid.exponent), context.createImageData(width, height)];
  const pixels = new Uint32Array(image.data.buffer);
  for (let index = 0; index < bytes.length; index += 1) pixels[index] = ramp[bytes[index]];
  context.putImageData(image, 0, 0);
}
