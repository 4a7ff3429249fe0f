// Attention over the cells of an image, blended into its pixels as plotting/raster.py does.

import { create, paletteColor } from "./dom.js";
import { clamp } from "./numbers.js";

const FADED = 0.35; // contrast that is left where there is no attention
const TINT = 0.25; // of the full cell where there is most
const PIXELATED_BELOW = 100; // sides of an image that is enlarged without smoothing
const LUMA = [0.299, 0.587, 0.114];

/** For each of `size` pixels the two cells between whose centers it lies, and its part of the second. */
function cellsBetween(size, cells, isSmooth) {
  return Array.from({ length: size }, (_, pixel) => {
    const position = (pixel + 0.5) * cells / size;
    if (!isSmooth) return [Math.floor(position), Math.floor(position), 0];
    const first = Math.floor(position - 0.5);
    return [clamp(first, 0, cells - 1), clamp(first + 1, 0, cells - 1), position - 0.5 - first];
  });
}

function blend(pixels, strength, isSmooth) {
  const [background, full] = [paletteColor("--background"), paletteColor("--full-cell")];
  const { width, height, data } = pixels;
  const result = new ImageData(width, height);
  const rows = cellsBetween(height, strength.length, isSmooth);
  const columns = cellsBetween(width, strength[0].length, isSmooth);
  for (let y = 0; y < height; y += 1) {
    const [above, below, down] = rows[y];
    for (let x = 0; x < width; x += 1) {
      const [left, right, across] = columns[x];
      const share =
        (strength[above][left] * (1 - across) + strength[above][right] * across) * (1 - down) +
        (strength[below][left] * (1 - across) + strength[below][right] * across) * down;
      const start = 4 * (y * width + x);
      const gray = LUMA.reduce((sum, factor, index) => sum + factor * data[start + index], 0);
      for (let index = 0; index < 3; index += 1) {
        const unattended = background[index] + FADED * (gray - background[index]);
        const attended = data[start + index] + TINT * (full[index] - data[start + index]);
        result.data[start + index] = unattended + share * (attended - unattended);
      }
      result.data[start + 3] = 255;
    }
  }
  return result;
}

function drawCells(context, strength) {
  const [empty, full] = [paletteColor("--empty-cell"), paletteColor("--full-cell")];
  const { width, height } = context.canvas;
  const [cellWidth, cellHeight] = [width / strength[0].length, height / strength.length];
  const gap = Math.min(3, cellWidth / 4, cellHeight / 4);
  context.clearRect(0, 0, width, height);
  strength.forEach((values, row) => values.forEach((value, column) => {
    context.fillStyle = `rgb(${empty.map((low, index) => Math.round(low + (full[index] - low) * value))})`;
    context.fillRect(column * cellWidth + gap / 2, row * cellHeight + gap / 2, cellWidth - gap, cellHeight - gap);
  }));
}

/** Whether an image is so small that it is enlarged, with its pixels visible. @type {(height: number, width: number) => boolean} */
export function isPixelated(height, width) {
  return Math.max(height, width) < PIXELATED_BELOW;
}

/** A canvas with an image, if there is one, and its pixels. @type {(image: HTMLImageElement | null, size: number[], className: string) => import("./types").Picture} */
export function createPicture(image, [height, width], className) {
  const canvas = Object.assign(create("canvas", className), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (image === null) return { canvas, context, pixels: null };
  context.imageSmoothingEnabled = !isPixelated(image.height, image.width);
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, width, height);
  return { canvas, context, pixels: context.getImageData(0, 0, width, height) };
}

/** Draws strengths in [0, 1]: into the picture, or as cells. @type {(picture: import("./types").Picture, strength: number[][], isSmooth: boolean) => void} */
export function drawStrength({ context, pixels }, strength, isSmooth) {
  if (pixels === null) drawCells(context, strength);
  else context.putImageData(blend(pixels, strength, isSmooth), 0, 0);
}

/** @type {(context: CanvasRenderingContext2D, cell: { row: number, column: number }, grid: number[]) => void} */
export function outlineCell(context, { row, column }, [rows, columns]) {
  const { width, height } = context.canvas;
  const line = Math.max(1.5, Math.max(width, height) / 240);
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  context.lineWidth = line;
  context.strokeRect(column * width / columns + line / 2, row * height / rows + line / 2,
    width / columns - line, height / rows - line);
}
