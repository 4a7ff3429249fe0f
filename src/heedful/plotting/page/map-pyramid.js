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

/**
 * The levels of a map, finest first, as bytes relative to the largest weight; no weight above zero is 0.
 * @param {ArrayLike<number>[]} weights
 * @returns {{ levels: import("./types").MapLevel[], largest: number }}
 */
export function buildPyramid(weights) {
  const [rows, columns] = [weights.length, weights[0].length];
  let largest = 0;
  for (const row of weights) for (let column = 0; column < columns; column += 1) largest = Math.max(largest, row[column]);
  const values = new Uint8Array(rows * columns);
  weights.forEach((row, index) => {
    for (let column = 0; column < columns; column += 1) {
      values[index * columns + column] = Math.ceil((255 * row[column]) / (largest || 1));
    }
  });
  const levels = [{ rows, columns, values }];
  while (Math.min(levels.at(-1).rows, levels.at(-1).columns) > MIN_LEVEL_SIDE) levels.push(poolLevel(levels.at(-1)));
  return { levels, largest };
}

/** For each pixel the first cell, and the one after the last, that it shows. */
function cellRanges(size, start, perPixel, scale, count) {
  return Array.from({ length: size }, (_, pixel) => {
    const first = Math.min(Math.floor((start + pixel * perPixel) / scale), count - 1);
    return [first, Math.max(first + 1, Math.min(Math.ceil((start + (pixel + 1) * perPixel) / scale), count))];
  });
}

/** The colors of bytes, from the empty to the full cell, as pixels. */
function buildRamp() {
  const [empty, full] = [paletteColor("--empty-cell"), paletteColor("--full-cell")];
  return Uint32Array.from({ length: 256 }, (_, byte) => {
    const [red, green, blue] = empty.map((low, index) => Math.round(low + ((full[index] - low) * byte) / 255));
    return (255 << 24) | (blue << 16) | (green << 8) | red; // little-endian RGBA
  });
}

/**
 * Paints the part of a map that begins at a cell; a pixel has the color of its largest weight.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./types").MapLevel[]} levels
 * @param {{ top: number, left: number, perPixel: number[] }} part perPixel: rows and columns of a pixel
 */
export function paintPart(context, levels, { top, left, perPixel: [rowsPerPixel, columnsPerPixel] }) {
  const { width, height } = context.canvas;
  const coarsest = Math.floor(Math.log2(Math.max(1, Math.min(rowsPerPixel, columnsPerPixel))));
  const level = Math.min(coarsest, levels.length - 1);
  const { rows, columns, values } = levels[level];
  const acrosses = cellRanges(width, left, columnsPerPixel, 2 ** level, columns);
  const downs = cellRanges(height, top, rowsPerPixel, 2 ** level, rows);
  const [ramp, image] = [buildRamp(), context.createImageData(width, height)];
  const pixels = new Uint32Array(image.data.buffer);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      let byte = 0;
      for (let row = downs[y][0]; row < downs[y][1]; row += 1) {
        for (let column = acrosses[x][0]; column < acrosses[x][1]; column += 1) {
          byte = Math.max(byte, values[row * columns + column]);
        }
      }
      pixels[y * width + x] = ramp[byte];
    }
  }
  context.putImageData(image, 0, 0);
}
