// A heat map: a table, so that screen readers can navigate it; of too many cells for that, a canvas, if the
// page has map-canvas.js.

import { create, createToken, findAll, moveFocus, neighborAt } from "./dom.js";
import { createShares, MechanismOverlay } from "./mechanism-overlay.js";
import { FAINT, percent, STRONG } from "./numbers.js";

const MAX_TABLE_CELLS = 2000;

function createCell(weight, row, column, title, text, isEdited) {
  const cell = Object.assign(create("td", "cell", text), { title, tabIndex: row || column ? -1 : 0 });
  const size = Math.abs(weight); // differences have a sign
  cell.style.setProperty("--weight", String(size));
  cell.classList.toggle("strong", size > STRONG);
  cell.classList.toggle("faint", size < FAINT);
  cell.classList.toggle("negative", weight < 0);
  cell.classList.toggle("edited", isEdited);
  Object.assign(cell.dataset, { row, column, weight });
  return cell;
}

/** @param {import("./types").MapData} data */
function createTable({ source, target, weights, note, texts, notes = [], overlays = {}, former, isEdited = () => false }) {
  const heads = source.map((token) =>
    Object.assign(create("th", "", createToken("span", "", token)), { scope: "col" }));
  const rows = target.map((token, row) => {
    const cells = Array.from(weights[row], (weight, column) => {
      const before = former ? `, before ${former[row][column].toFixed(2)}` : "";
      const title = `${token} \u2192 ${source[column]}: ${weight.toFixed(2)}${before}${isEdited(row, column) ? ", edited" : ""}`;
      return createCell(weight, row, column, title, texts?.[row][column] ?? percent(weight), isEdited(row, column));
    });
    const header = Object.assign(createToken("th", "", token), { scope: "row" });
    return create("tr", "", header, ...cells, ...(notes[row] ? [createShares(overlays, row, notes[row])] : []));
  });
  const head = create("tr", "", create("td", ""), ...heads, create("td", ""));
  const table = create("table", "", create("caption", "", note), create("thead", "", head), create("tbody", "", ...rows));
  table.role = "grid"; // arrow keys reach its cells
  return table;
}

function neighborCell(cell, key) {
  const line = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[key];
  if (line) return cell.parentElement[line]?.children[cell.cellIndex];
  return neighborAt(findAll(".cell", cell.parentElement), cell, key);
}

function markChosen(nodes, isChosen) {
  nodes.forEach((node, index) => node.classList.toggle("chosen", isChosen(node, index)));
}

/** A map of weights: rows are target words, columns source words. A canvas dispatches "cell", too. */
export class AttentionHeatmap extends HTMLElement {
  /** @param {import("./types").MapData} data */
  set data(data) {
    const map = { note: "A row shows what its word attends to.", ...data };
    /** @type {any} */
    const MapCanvas = data.source.length * data.target.length > MAX_TABLE_CELLS && customElements.get("map-canvas");
    this.classList.add("map");
    this.canvas = MapCanvas ? Object.assign(new MapCanvas(), { data: map }) : null;
    this.table = MapCanvas ? null : createTable(map);
    this.overlay = MapCanvas ? null : Object.assign(new MechanismOverlay(), { data: { overlays: {}, ...data, table: this.table } });
    this.replaceChildren(this.canvas ?? this.overlay);
    this.table?.addEventListener("keydown", (event) => moveFocus(event, neighborCell(event.target, event.key)));
  }

  /** The cell of an event, or null. @param {any} event @returns {import("./types").MapView | null} */
  cellAt(event) {
    if (this.canvas) return this.canvas.cellAt(event);
    const cell = event.target.closest(".cell");
    return cell && { row: +cell.dataset.row, column: +cell.dataset.column };
  }

  /** Makes the header as high as its longest slanted word. */
  arrange() {
    if (!this.table) return;
    const longest = Math.max(...findAll("th > span", this.table.tHead).map((word) => word.offsetWidth));
    this.table.style.setProperty("--label-height", `${Math.ceil(longest * Math.SQRT1_2) + 18}px`);
    this.overlay.place();
  }

  /** Highlights a cell, a row, a column, or nothing. @param {import("./types").MapView} view */
  choose(view) {
    this.canvas?.choose(view);
    if (this.canvas) return;
    const { row, column } = view;
    this.overlay.choose(row);
    this.table.classList.toggle("aside", row !== null || column !== null);
    markChosen(findAll(".cell", this.table), ({ dataset }) =>
      (row ?? +dataset.row) === +dataset.row && (column ?? +dataset.column) === +dataset.column);
    markChosen(findAll("th", this.table.tHead), (_, index) => index === column);
    markChosen(findAll("tbody th", this.table), (_, index) => index === row);
  }
}

customElements.define("attention-heatmap", AttentionHeatmap);
