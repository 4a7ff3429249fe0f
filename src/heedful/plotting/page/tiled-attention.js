// The attention of a long text: a map that is read from a server, the words around its chosen cell, and how far
// the row is spread.

import { AttentionHeatmap } from "./attention-heatmap.js";
import { create, followPointer } from "./dom.js";
import { formatNumber, percentage } from "./numbers.js";
import { TokenRow } from "./token-row.js";

const AROUND = 20; // words before and after a chosen one

/** Of how many equal weights a row would have the entropy. @type {(weights: Float32Array) => number} */
function spreadOf(weights) {
  return Math.exp(weights.reduce((sum, weight) => (weight > 0 ? sum - weight * Math.log(weight) : sum), 0));
}

/** As AttentionView: hover shows a cell, a click or the keyboard keeps it, and dispatches "keep". */
export class TiledAttention extends HTMLElement {
  /** @param {import("./types").MapData} data */
  set data(data) {
    const { source, target, names = ["output", "source"] } = data;
    this.tokens = { output: target, source };
    this.names = names;
    this.readRow = data.readRow;
    this.kept = { row: null, column: null };
    this.map = Object.assign(new AttentionHeatmap(), { data });
    this.words = create("div", "alignment running");
    this.legend = Object.assign(create("p", "checks"), { ariaLive: "polite" });
    const views = create("div", "views", this.map, this.#createSwitch(data.pyramid), this.words, this.legend);
    this.replaceChildren(views);
    const show = (view) => this.#show(view ?? this.kept);
    followPointer(views, (event) => this.map.cellAt(event), { show, keep: (view) => view && this.keep(view), type: "pointermove" });
    views.addEventListener("cell", (/** @type {any} */ { detail }) => this.keep(detail));
    views.addEventListener("keydown", ({ key }) => key === "Escape" && this.keep(null));
  }

  #createSwitch(pyramid) {
    const box = Object.assign(create("input", ""), { type: "checkbox", checked: pyramid.exponent === 1 });
    box.addEventListener("change", () => {
      pyramid.exponent = box.checked ? 1 : 4;
      pyramid.onLoad(); // draws again
    });
    return create("label", "switch", box, "show small weights: a shade is the fourth root of its weight");
  }

  /** @param {import("./types").MapView | null} view */
  keep(view) {
    this.kept = view ?? { row: null, column: null };
    this.#show(this.kept);
    this.dispatchEvent(new CustomEvent("keep", { detail: this.kept }));
  }

  async #show(view) {
    this.shown = view;
    this.map.choose(view);
    const { row, column } = view;
    const weights = row === null ? null : /** @type {Float32Array | null} */ (await this.readRow(row));
    if (this.shown !== view) return;
    const rows = [this.#createWords("source", column, weights), this.#createWords("output", row, null)];
    this.words.replaceChildren(...rows.filter((one) => one !== null));
    this.legend.textContent = weights ? `row ${formatNumber(row + 1)} is spread over ${formatNumber(+spreadOf(weights).toFixed(1))} words; its largest weight is ${percentage(weights.reduce((one, two) => Math.max(one, two)))}` : "";
  }

  /** The words around a chosen one, as dark as their weights in the row. */
  #createWords(name, chosen, weights) {
    if (chosen === null) return null;
    const first = Math.max(0, chosen - AROUND);
    const tokens = this.tokens[name].slice(first, chosen + AROUND + 1);
    const row = Object.assign(new TokenRow(), { className: name });
    const label = (text, index) => (weights ? `${text}: ${percentage(weights[first + index])}` : text);
    row.data = { name: `${this.names[name === "output" ? 0 : 1]} around word ${chosen + 1}`, tokens: tokens.map((text, index) => ({ text, label: label(text, index) })) };
    row.choose(chosen - first);
    if (weights) row.shade(Array.from(weights.subarray(first, first + tokens.length)));
    row.addEventListener("click", (event) => {
      const index = row.indexOf(/** @type {Element} */ (event.target));
      if (index !== null) this.keep({ ...this.kept, [name === "output" ? "row" : "column"]: first + index });
    });
    return row;
  }
}

customElements.define("tiled-attention", TiledAttention);
