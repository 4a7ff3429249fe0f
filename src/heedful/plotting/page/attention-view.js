// The attention of one sentence: words, links between them, and the map, which show the same view.
//
// A view is { row, column }: a row alone is an output word, a column alone a source word, both a cell of
// the map, neither the whole map.

import { AttentionHeatmap } from "./attention-heatmap.js";
import { AttentionLinks } from "./attention-links.js";
import { create, followPointer } from "./dom.js";
import { describeShares } from "./mechanism-overlay.js";
import { percent } from "./numbers.js";
import { TokenRow } from "./token-row.js";

const WHOLE_MAP = { row: null, column: null };
const MAX_LINKED = 40; // more words than these are running text without links
const MAX_DESCRIBED = 20; // words of a label

/** The label for screen readers: "girl: puella 93%, videt 3%". */
function describeWeights(token, others, weights) {
  const parts = others
    .map((other, index) => ({ other, percentage: Math.round(100 * weights[index]) }))
    .filter(({ percentage }) => percentage > 0)
    .sort((one, two) => two.percentage - one.percentage)
    .slice(0, MAX_DESCRIBED)
    .map(({ other, percentage }) => `${other} ${percentage}%`);
  return `${token}: ${parts.join(", ") || "nothing"}`;
}

function createRow(axis, name, tokens, labelOf) {
  const row = Object.assign(new TokenRow(), { className: axis });
  row.data = { name, tokens: tokens.map((text, index) => ({ text, label: labelOf(text, index) })) };
  return row;
}

/** Hover shows a view, a click or the focus keeps it, Escape resets. */
export class AttentionView extends HTMLElement {
  /** @param {import("./types").MapData} data */
  set data(data) {
    const { source, target, weights, names = ["output", "source"], overlays = {}, is_intra: isIntra = false } = data;
    const { notes = target.map((_, row) => describeShares(overlays, row)) } = data;
    const form = isIntra ? "arcs" : data.form ?? "map";
    if (source.length === 0 || target.length === 0) {
      this.replaceChildren(create("p", "empty", "nothing to draw"));
      return;
    }
    this.weights = weights;
    this.kept = WHOLE_MAP; // chosen by a click or the keyboard
    this.isIntra = isIntra;
    this.isLong = Math.max(source.length, target.length) > MAX_LINKED;
    this.sources = createRow("source", names[1], source, (word, column) =>
      describeWeights(word, target, weights.map((row) => row[column])));
    this.targets = createRow("target", names[0], target, (word, row) =>
      [describeWeights(word, source, weights[row]), notes[row]].filter(Boolean).join("; "));
    this.links = Object.assign(new AttentionLinks(), { data: { weights: this.isLong ? [] : weights, form } });
    this.map = Object.assign(new AttentionHeatmap(), { data: { ...data, notes } });
    this.legend = create("span", "");
    const legend = this.isLong ? [create("p", "legend", "0", create("span", "scale"), this.legend)] : [];
    this.alignment = create("div", this.isLong ? "alignment running" : "alignment",
      this.links, this.sources, ...legend, this.targets);
    this.replaceChildren(create("div", form === "map" ? "views" : `views ${form}`, this.alignment, this.map));
    this.#listen(this.firstElementChild);
    this.#show(WHOLE_MAP);
  }

  connectedCallback() {
    if (!this.map) return;
    this.#arrange();
    this.observer = new ResizeObserver(() => requestAnimationFrame(() => this.#arrange()));
    this.observer.observe(this.alignment);
  }

  disconnectedCallback() {
    this.observer?.disconnect();
  }

  // Words stand in two rows if each fits on a line, else in two columns, so that no link has to pass
  // behind words.
  #arrange() {
    this.map.arrange();
    if (this.isLong) return;
    this.alignment.classList.remove("columns");
    const isTooWide = [this.sources, this.targets].some((row) => row.scrollWidth > row.clientWidth);
    this.alignment.classList.toggle("columns", isTooWide);
    this.links.place(this.targets.words, this.isIntra ? this.targets.words : this.sources.words, isTooWide);
  }

  #show({ row, column }) {
    const { weights, sources, targets } = this;
    const shown = (words, chosen, other, weightOf) => words.map((_, index) =>
      (other !== null && (chosen ?? index) === index ? weightOf(index) : null));
    sources.showWeights(shown(sources.words, column, row, (index) => weights[row][index]));
    // Arcs join words of one row, which shows both sides.
    const isOfRow = this.isIntra && row !== null;
    targets.showWeights(isOfRow ? shown(targets.words, column, row, (index) => weights[row][index])
      : shown(targets.words, row, column, (index) => weights[index][column]));
    if (this.isLong && column === null) this.#shadeRunningText(row);
    sources.choose(column);
    targets.choose(row);
    this.links.choose({ row, column });
    this.map.choose({ row, column });
  }

  // Weights over hundreds of words are small: a word is as dark as its weight relative to the largest.
  // Of the whole map, the weights of all output words are averaged.
  #shadeRunningText(row) {
    const { weights } = this;
    const values = row === null
      ? Array.from(weights[0], (_, column) => weights.reduce((sum, other) => sum + other[column], 0) / weights.length)
      : Array.from(weights[row]);
    const largest = Math.max(...values);
    this.sources.shade(values, largest);
    const from = row === null ? "all words, on average" : `\u201c${this.targets.words[row].title}\u201d`;
    this.legend.textContent = `${percent(largest) || 0}% of the attention of ${from}`;
  }

  /** Shows a view until another one is kept; dispatches "keep". @param {import("./types").MapView | null} view */
  keep(view) {
    this.kept = view ?? WHOLE_MAP;
    this.#show(this.kept);
    this.dispatchEvent(new CustomEvent("keep", { detail: this.kept }));
  }

  #viewAt(event) {
    const [column, row] = [this.sources, this.targets].map((words) => words.indexOf(event.target));
    return column === null && row === null ? this.map.cellAt(event) : { row, column };
  }

  #listen(views) {
    const keep = (view) => this.keep(view);
    const type = this.map.canvas ? "pointermove" : "pointerover";
    followPointer(views, (event) => this.#viewAt(event), { show: (view) => this.#show(view ?? this.kept), keep, type });
    views.addEventListener("focusin", (event) => keep(this.#viewAt(event)));
    views.addEventListener("focusout", () => keep(null));
    views.addEventListener("cell", ({ detail }) => keep(detail));
    views.addEventListener("keydown", ({ key }) => key === "Escape" && keep(null));
  }
}

customElements.define("attention-view", AttentionView);
