// The attention of words over an image: the picture, its words, and a player from word to word.
//
// The state is { word, cell }: the word whose attention is blended into the picture, and the cell
// whose weights the words show; each may be null.

import { create, followPointer, onSchemeChange } from "./dom.js";
import { createPicture, drawStrength, isPixelated, outlineCell } from "./image-blend.js";
import { clamp, percent, percentage, STRONG } from "./numbers.js";
import { StepPlayer } from "./step-player.js";
import { TokenRow } from "./token-row.js";

const NOTHING = { word: null, cell: null };
const CANVAS_SIDE = 480;
const SMALL_SIDE = 320; // shown side of a picture that is enlarged
const [THUMB_HEIGHT, THUMB_WIDTH] = [96, 192];
const MAX_THUMBNAILS = 40; // of more words the page shows the text alone
const WIDE = 2.5; // width per height of a picture that gets a line of its own
export const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** The weights relative to the largest one, and where that is. */
function summarize(grid) {
  let peak = { row: 0, column: 0, weight: 0 };
  grid.forEach((weights, row) => weights.forEach((weight, column) => {
    if (weight > peak.weight) peak = { row, column, weight };
  }));
  return { peak, strength: grid.map((weights) => weights.map((weight) => weight / (peak.weight || 1))) };
}

/** The mean over the words, for a card that shows no word. @type {(grids: number[][][]) => number[][]} */
export function meanGrid(grids) {
  return (grids[0] ?? []).map((weights, row) => weights.map((_, column) =>
    grids.reduce((sum, grid) => sum + grid[row][column], 0) / grids.length));
}

/** @type {(src: string) => Promise<HTMLImageElement>} */
export async function decodeImage(src) {
  const image = Object.assign(new Image(), { src });
  await image.decode();
  return image;
}

function describeCell({ row, column }) {
  return `row ${row + 1}, column ${column + 1}`;
}

function describeWord(word, { peak }, gate) {
  const text = `${word}: max ${percentage(peak.weight)} at ${describeCell(peak)}`;
  return gate === null ? text : `${text}, gate ${percentage(gate)}`;
}

function createGate(gate) {
  const bar = create("span", "gate");
  bar.style.setProperty("--gate", gate);
  bar.dataset.gate = gate;
  return bar;
}

// A picture is shown in its own pixels; a small one, and a grid without a picture, is enlarged.
/** @type {(image: HTMLImageElement | null, size: number[]) => import("./types").Picture} */
function createCanvas(image, [height, width]) {
  const isSmall = image === null || isPixelated(height, width);
  const scale = isSmall ? Math.max(1, Math.floor(CANVAS_SIDE / Math.max(height, width))) : 1;
  const picture = createPicture(image, [height * scale, width * scale], isSmall ? "picture pixelated" : "picture");
  const side = image && isSmall ? SMALL_SIDE : Math.max(width * scale, CANVAS_SIDE);
  picture.canvas.style.maxWidth = `${width > WIDE * height ? 2 * CANVAS_SIDE : side}px`;
  Object.assign(picture.canvas, { tabIndex: 0, role: "img" });
  return picture;
}

// A table of as many cells as the grid has, which is filled with the weights of a word.
/** @type {(grid: number[]) => { details: HTMLElement, fill: (grid: number[][], strength: number[][]) => void }} */
function createNumbers([rows, columns]) {
  const header = (scope, index) => Object.assign(create("th", "", String(index + 1)), { scope });
  const heads = Array.from({ length: columns }, (_, column) => header("col", column));
  const cells = Array.from({ length: rows }, () => Array.from({ length: columns }, () => create("td", "cell")));
  const lines = cells.map((line, row) => create("tr", "", header("row", row), ...line));
  const table = create("table", "", create("thead", "", create("tr", "", create("td", ""), ...heads)), create("tbody", "", ...lines));
  const details = create("details", "numbers", create("summary", "", "Weights as numbers"), create("div", "", table));
  const fill = (grid, strength) => cells.forEach((line, row) => line.forEach((cell, column) => {
    cell.textContent = percent(grid[row][column]);
    cell.style.setProperty("--weight", String(strength[row][column]));
    cell.classList.toggle("strong", strength[row][column] > STRONG);
  }));
  return { details, fill };
}

/** Hover shows a word or a cell, a click, the player or the focus keeps it, Escape resets; dispatches "keep". */
export class ImageAttention extends HTMLElement {
  /** @param {import("./types").ImageAttentionData} data */
  set data({ image, size, words, gates, weights }) {
    if (words.length === 0) {
      this.replaceChildren(create("p", "empty", "nothing to draw"));
      return;
    }
    this.kept = NOTHING; // chosen by a click, the player or the keyboard
    this.texts = words;
    this.gates = gates;
    this.weights = weights;
    this.mean = meanGrid(weights);
    this.grid = [weights[0].length, weights[0][0].length];
    this.summaries = weights.map(summarize);
    this.picture = createCanvas(image, size);
    const scale = Math.min(THUMB_HEIGHT / size[0], THUMB_WIDTH / size[1]);
    const thumbSize = size.map((side) => Math.max(1, Math.round(side * scale)));
    this.thumbnails = words.length > MAX_THUMBNAILS ? [] : words.map(() => createPicture(image, thumbSize, "thumbnail"));
    this.row = Object.assign(new TokenRow(), { className: "caption-words", data: { name: "words", tokens: this.#tokens() } });
    this.player = Object.assign(new StepPlayer(), { className: "scrubber" });
    this.player.data = {
      name: "word", max: words.length, first: 1,
      describe: (step) => (step ? `${words[step - 1]}, ${step} of ${words.length}` : "all words"),
    };
    this.box = Object.assign(create("input", ""), { type: "checkbox", checked: image !== null });
    const smoothing = create("label", "smoothing", this.box, " interpolate between cells");
    smoothing.hidden = image === null;
    this.numbers = createNumbers(this.grid);
    this.reading = Object.assign(create("p", "reading"), { ariaLive: "polite" });
    const isWide = size[1] > WIDE * size[0];
    const panel = create("div", "picture-panel", this.picture.canvas, this.player, this.reading, smoothing);
    panel.classList.toggle("wide-picture", isWide);
    if (!isWide) panel.style.maxWidth = this.picture.canvas.style.maxWidth;
    this.replaceChildren(create("div", "caption-views", panel, create("div", "word-panel", this.row, this.numbers.details)));
    this.#listen();
    this.#redraw();
  }

  #tokens() {
    return this.texts.map((text, index) => {
      const gate = this.gates?.[index] ?? null;
      const title = describeWord(text, this.summaries[index], gate);
      const above = this.thumbnails.length ? [this.thumbnails[index].canvas] : [];
      return { text, title, label: title, above, below: gate === null ? [] : [createGate(gate)] };
    });
  }

  #redraw() {
    this.thumbnails.forEach((thumbnail, index) =>
      drawStrength(thumbnail, this.summaries[index].strength, this.box.checked));
    this.#show(this.kept);
  }

  #show({ word, cell }) {
    const { canvas, context, pixels } = this.picture;
    const [grid, summary] = word === null
      ? [this.mean, summarize(this.mean)] : [this.weights[word], this.summaries[word]];
    if (word === null && pixels !== null) context.putImageData(pixels, 0, 0);
    else drawStrength(this.picture, summary.strength, this.box.checked);
    if (cell !== null) outlineCell(context, cell, this.grid);
    const weights = this.weights.map((one) => (cell === null ? null : one[cell.row][cell.column]));
    this.row.choose(word);
    this.row.showWeights(weights, Math.max(...weights.map((weight) => weight ?? 0)));
    this.numbers.fill(grid, summary.strength);
    this.player.step = word === null ? 0 : word + 1;
    this.reading.textContent = this.#describe(word, cell);
    canvas.ariaLabel = word === null ? "the picture" : this.#describe(word, null);
    this.parentElement?.setAttribute("data-word", word ?? "");
  }

  #describe(word, cell) {
    if (cell === null) {
      return word === null ? `${this.texts.length} ${this.texts.length === 1 ? "word" : "words"}`
        : describeWord(this.texts[word], this.summaries[word], this.gates?.[word] ?? null);
    }
    const grid = word === null ? this.mean : this.weights[word];
    const owner = word === null ? "of all words' attention" : `of ${this.texts[word]}`;
    return `${describeCell(cell)}: ${percentage(grid[cell.row][cell.column])} ${owner}`;
  }

  #cellAt({ clientX, clientY }) {
    const { left, top, width, height } = this.picture.canvas.getBoundingClientRect();
    const [rows, columns] = this.grid;
    return {
      row: clamp(Math.floor((clientY - top) / height * rows), 0, rows - 1),
      column: clamp(Math.floor((clientX - left) / width * columns), 0, columns - 1),
    };
  }

  #listen() {
    const { row, player, picture: { canvas } } = this;
    const keep = (state) => {
      this.kept = state;
      this.#show(state);
      this.dispatchEvent(new CustomEvent("keep"));
    };
    const wordAt = ({ target }) => row.indexOf(target);
    const keepWord = (word) => { player.stop(); keep({ word, cell: null }); };
    const showWord = (word) => this.#show(word === null ? this.kept : { word, cell: null });
    followPointer(row, wordAt, { show: showWord, keep: keepWord });
    row.addEventListener("focusin", (event) => keepWord(wordAt(event)));
    followPointer(canvas, (event) => this.#cellAt(event), {
      show: (cell) => this.#show(cell === null ? this.kept : { ...this.kept, cell }),
      keep: (cell) => keep({ ...this.kept, cell }),
      type: "pointermove",
    });
    player.addEventListener("step", () => keep({
      word: player.step ? player.step - 1 : null, cell: player.timer ? null : this.kept.cell,
    }));
    this.box.addEventListener("change", () => this.#redraw());
    this.addEventListener("keydown", (event) => {
      if (event.key === "Escape") keepWord(null);
      if (event.target !== canvas || !ARROWS[event.key]) return;
      event.preventDefault();
      keep({ ...this.kept, cell: this.#moveCell(ARROWS[event.key]) });
    });
    onSchemeChange(this, () => this.#redraw());
  }

  // The first key enters the grid at its corner.
  #moveCell([down, across]) {
    const { row, column } = this.kept.cell ?? { row: -down, column: -across };
    return { row: clamp(row + down, 0, this.grid[0] - 1), column: clamp(column + across, 0, this.grid[1] - 1) };
  }
}

customElements.define("image-attention", ImageAttention);
