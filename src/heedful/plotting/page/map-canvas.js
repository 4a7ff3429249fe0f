// A map of more weights than a table can show, drawn on a canvas that is zoomed and panned.

import { create, onSchemeChange } from "./dom.js";
import { paintPart, WeightPyramid } from "./map-pyramid.js";
import { clamp, formatNumber } from "./numbers.js";

const [MIN_HEIGHT, MAX_SIDE] = [160, 720]; // pixels
const MAX_CELL_SIDE = 24; // pixels of a cell at the closest zoom
const MARK_SIDE = 9; // pixels of the frame around an edited cell, at least
const MAX_TABLE_ROWS = 50; // of a row, the largest weights are listed

/** Dispatches "cell" with { row, column } when the keyboard moves to another cell. */
export class MapCanvas extends HTMLElement {
  /** @param {import("./types").MapData} data */
  set data({ source, target, weights, note = "", pyramid = new WeightPyramid(weights), readRow = (row) => weights[row], marks = [] }) {
    this.source = source;
    this.target = target;
    this.marks = marks;
    this.pyramid = pyramid;
    this.readRow = readRow;
    this.chosen = { row: null, column: null };
    this.zoom = 1;
    this.top = 0; // the first row and column that are shown
    this.left = 0;
    pyramid.onLoad = () => this.#drawSoon();
    const label = `attention map, ${target.length} rows, ${source.length} columns`;
    this.canvas = Object.assign(create("canvas", ""), { tabIndex: 0, role: "img", ariaLabel: label });
    this.canvas.setAttribute("aria-description", "Arrow keys move, plus and minus zoom, 0 shows the whole map.");
    this.reading = Object.assign(create("p", "reading"), { ariaLive: "polite" });
    const zooms = /** @type {[string, number][]} */ ([["Zoom in", 2], ["Zoom out", 0.5], ["Whole map", 0]]);
    const buttons = zooms.map(([text, factor]) => {
      const button = Object.assign(create("button", "", text), { type: "button" });
      button.addEventListener("click", () => this.zoomBy(factor));
      return button;
    });
    this.table = create("tbody", "");
    this.details = create("details", "", create("summary", "", "Weights of the row as a table"), create("table", "", this.table));
    this.details.addEventListener("toggle", () => this.#listRow());
    const caption = create("p", "caption", `${note.replace(/[^.]$/, "$&.")} The darkest shade is a weight of ${formatNumber(pyramid.largest)}.`);
    this.replaceChildren(this.canvas, create("div", "zoom", ...buttons), this.reading, caption, this.details);
    this.canvas.addEventListener("keydown", (event) => this.#onKey(event));
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return; // the page scrolls; a pinch has the key set
      event.preventDefault();
      this.zoomBy(2 ** (-event.deltaY / 200), this.cellAt(event));
    }, { passive: false });
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons !== 1) return;
      this.#panTo(this.top - event.movementY * this.#perPixel[0], this.left - event.movementX * this.#perPixel[1]);
    });
    onSchemeChange(this, () => this.draw());
  }

  connectedCallback() {
    this.observer = new ResizeObserver(() => requestAnimationFrame(() => this.#fit()));
    this.observer.observe(this.parentElement);
    this.#fit();
  }

  disconnectedCallback() {
    this.observer.disconnect();
  }

  /** Rows and columns of a pixel. */
  get #perPixel() {
    const { width, height } = this.canvas;
    return [this.target.length / this.zoom / height, this.source.length / this.zoom / width];
  }

  #fit() {
    const [rows, columns] = [this.target.length, this.source.length];
    const width = Math.floor(clamp(this.parentElement.clientWidth - 4, 1, Math.min(MAX_SIDE, columns * MAX_CELL_SIDE)));
    const height = Math.round(clamp((width * rows) / columns, MIN_HEIGHT, MAX_SIDE));
    if (width === this.canvas.width && height === this.canvas.height) return;
    [this.canvas.width, this.canvas.height] = [width, height];
    this.draw();
  }

  /** The cell of a pointer event on the canvas, or the chosen one of another event. @param {any} event */
  cellAt(event) {
    if (event.target !== this.canvas) return null;
    if (event.clientX === undefined) return this.chosen;
    const { left, top } = this.canvas.getBoundingClientRect();
    const [rowsPerPixel, columnsPerPixel] = this.#perPixel;
    return {
      row: clamp(Math.floor(this.top + (event.clientY - top) * rowsPerPixel), 0, this.target.length - 1),
      column: clamp(Math.floor(this.left + (event.clientX - left) * columnsPerPixel), 0, this.source.length - 1),
    };
  }

  /** Zooms about a cell; 0 shows the whole map. @param {number} factor @param {{ row: number | null, column: number | null }} about */
  zoomBy(factor, { row, column } = this.chosen) {
    const [rows, columns] = [this.target.length, this.source.length];
    const closest = Math.max(1, MAX_CELL_SIDE / Math.min(this.canvas.width / columns, this.canvas.height / rows));
    const before = this.zoom;
    this.zoom = clamp(before * factor, 1, closest);
    const start = (first, position, count) => {
      const fixed = position === null ? first + count / before / 2 : position + 0.5;
      return fixed - ((fixed - first) * before) / this.zoom;
    };
    this.#panTo(start(this.top, row, rows), start(this.left, column, columns));
  }

  #panTo(top, left) {
    this.top = clamp(top, 0, this.target.length * (1 - 1 / this.zoom));
    this.left = clamp(left, 0, this.source.length * (1 - 1 / this.zoom));
    this.#drawSoon();
  }

  #drawSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      if (this.isConnected) this.draw();
    });
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const [rowsPerPixel, columnsPerPixel] = this.#perPixel;
    paintPart(context, this.pyramid, { top: this.top, left: this.left, perPixel: this.#perPixel, size: [this.target.length, this.source.length] });
    const { row, column } = this.chosen;
    const { width, height } = this.canvas;
    context.strokeStyle = getComputedStyle(this).getPropertyValue("--accent");
    const [y, x] = [(row - this.top) / rowsPerPixel, (column - this.left) / columnsPerPixel];
    if (row !== null) context.strokeRect(-1, y - 0.5, width + 2, 1 / rowsPerPixel + 1);
    if (column !== null) context.strokeRect(x - 0.5, -1, 1 / columnsPerPixel + 1, height + 2);
    for (const [markedRow, markedColumn] of this.marks) {
      const [middleY, middleX] = [(markedRow + 0.5 - this.top) / rowsPerPixel, (markedColumn + 0.5 - this.left) / columnsPerPixel];
      const [down, across] = [1 / rowsPerPixel, 1 / columnsPerPixel].map((size) => Math.max(size + 2, MARK_SIDE));
      context.strokeRect(middleX - across / 2, middleY - down / 2, across, down);
    }
  }

  /** Outlines a row, a column or both, and reads the exact weight. @param {import("./types").MapView} view */
  async choose(view) {
    const isOtherRow = view.row !== this.chosen.row;
    this.chosen = view;
    this.#drawSoon();
    if (isOtherRow) this.#listRow();
    const { row, column } = view;
    const weights = row === null || column === null ? null : await this.readRow(row);
    if (this.chosen !== view) return; // another cell was chosen in the meantime
    this.reading.textContent = weights === null ? this.target[row] ?? this.source[column] ?? ""
      : `${this.target[row]} \u2192 ${this.source[column]}: ${formatNumber(weights[column])}`;
  }

  async #listRow() {
    const { row } = this.chosen;
    const weights = Array.from((this.details.open && row !== null && await this.readRow(row)) || []);
    if (row !== this.chosen.row) return;
    const largest = [...weights.keys()].sort((one, two) => weights[two] - weights[one]).slice(0, MAX_TABLE_ROWS);
    this.table.replaceChildren(...largest.filter((column) => weights[column] > 0).map((column) =>
      create("tr", "", create("th", "", this.source[column]), create("td", "", formatNumber(weights[column])))));
  }

  #onKey(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const factor = { "+": 2, "=": 2, "-": 0.5, 0: 0 }[event.key];
    if (factor !== undefined) this.zoomBy(factor);
    if (!step) return;
    event.preventDefault();
    const { row, column } = this.chosen;
    const cell = {
      row: row === null ? 0 : clamp(row + step[0], 0, this.target.length - 1),
      column: column === null ? 0 : clamp(column + step[1], 0, this.source.length - 1),
    };
    const [rows, columns] = [this.target.length / this.zoom, this.source.length / this.zoom];
    this.top = clamp(this.top, cell.row + 1 - rows, cell.row);
    this.left = clamp(this.left, cell.column + 1 - columns, cell.column);
    this.dispatchEvent(new CustomEvent("cell", { detail: cell, bubbles: true }));
  }
}

customElements.define("map-canvas", MapCanvas);
