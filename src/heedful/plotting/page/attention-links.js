// Links between two rows of words.

import { createSvg, findAll } from "./dom.js";

const MIN_LINK_WEIGHT = 0.01;
const MAX_ARC = 110; // pixels of its height, of which the curve reaches three quarters
const MAX_THICKNESS = 12; // pixels of a line of weight one, where lines are the figure

/** The path from a target word to a source word: up, or in columns to the left. */
function linkPath(target, source, origin, inColumns) {
  const [fromX, fromY, toX, toY] = (inColumns
    ? [target.left, target.top + target.height / 2, source.right, source.top + source.height / 2]
    : [target.left + target.width / 2, target.top, source.left + source.width / 2, source.bottom]
  ).map((value, index) => value - (index % 2 ? origin.top : origin.left));
  const [middleX, middleY] = [(fromX + toX) / 2, (fromY + toY) / 2];
  const bends = inColumns ? [middleX, fromY, middleX, toY] : [fromX, middleY, toX, middleY];
  return `M${fromX},${fromY} C${bends} ${toX},${toY}`;
}

/** The arc between two words of one row: above them, or in columns beside them. */
function arcPath(from, to, origin, inColumns) {
  const [start, end] = [from, to].map((box) => (inColumns ? box.top + box.height / 2 - origin.top : box.left + box.width / 2 - origin.left));
  const side = inColumns ? from.left - origin.left : from.top - origin.top;
  const peak = side - Math.min(Math.abs(end - start) * 0.6 + 8, MAX_ARC);
  const point = (along, across) => (inColumns ? `${across},${along}` : `${along},${across}`);
  return `M${point(start, side)} C${point(start, peak)} ${point(end, peak)} ${point(end, side)}`;
}

/** Links as strong, or as thick, as their weights. */
export class AttentionLinks extends HTMLElement {
  /** @param {{ weights: ArrayLike<number>[], form: string }} data */
  set data({ weights, form }) {
    this.toPath = form === "arcs" ? arcPath : linkPath;
    this.svg = createSvg("svg", "links", { "aria-hidden": "true" });
    weights.forEach((weightsOfRow, row) => Array.from(weightsOfRow).forEach((weight, column) => {
      if (weight < MIN_LINK_WEIGHT) return;
      const link = createSvg("path", "link", form === "lines"
        ? { "stroke-width": MAX_THICKNESS * weight }
        : { "stroke-opacity": weight, "stroke-width": 1 + 4 * weight });
      Object.assign(link.dataset, { row, column });
      this.svg.append(link);
    }));
    this.replaceChildren(this.svg);
  }

  /** Draws the links between words where these stand now. @param {Element[]} targets @param {Element[]} sources @param {boolean} inColumns */
  place(targets, sources, inColumns) {
    const origin = this.svg.getBoundingClientRect();
    const [from, to] = [targets, sources].map((words) => words.map((word) => word.getBoundingClientRect()));
    for (const link of findAll("path", this.svg)) {
      const { row, column } = link.dataset;
      link.setAttribute("d", this.toPath(from[row], to[column], origin, inColumns));
    }
  }

  /** Shows the links of a word or a cell, or all of them. @param {import("./types").MapView} view */
  choose({ row, column }) {
    this.svg.classList.toggle("whole", row === null && column === null);
    for (const link of findAll("path", this.svg)) {
      const isShown = (row ?? +link.dataset.row) === +link.dataset.row
        && (column ?? +link.dataset.column) === +link.dataset.column;
      link.classList.toggle("hidden", !isShown);
    }
  }
}

customElements.define("attention-links", AttentionLinks);
