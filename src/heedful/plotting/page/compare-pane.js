// Another run, or a checkpoint of this one, with the same input and edits: both outputs, both maps, and
// their difference where they have the same words.

import { AttentionHeatmap } from "./attention-heatmap.js";
import { chosenView, isSameMap, likeView, listViews, mapData } from "./attention-views.js";
import { create, emitChange, followPointer } from "./dom.js";
import { formatValue, signedPercent } from "./numbers.js";
import { describeResult } from "./output-pane.js";
import { markWords } from "./word-diff.js";

/** The value of an option, and what it chooses. */
function choicesOf(model, models, checkpoints) {
  const others = Object.values(models.byName).filter(({ id, task }) => task === model.task && id !== model.id);
  return [
    ...others.map(({ id }) => ({ text: id, other: { model: id, checkpoint: null } })),
    ...checkpoints.map((step) => ({ text: `step ${formatValue(step)} of ${model.id}`, other: { model: model.id, checkpoint: step } })),
  ];
}

/** What both can do: a prefix and layers of one model mean nothing to another. @type {(state: import("./types").InspectorState, models: any) => { request: any, isWhole: boolean }} */
function requestFor({ other, ...state }, models) {
  const paths = models.byName[other.model].mechanisms.map(({ path }) => path);
  const isSame = other.model === state.model;
  const edits = state.edits.filter(({ layer }) => isSame || !layer || layer === "source" || paths.includes(layer));
  const prefix = isSame ? state.prefix : [];
  const request = models.requestOf({ ...state, model: other.model, edits, prefix, checkpoint: other.checkpoint });
  return { request, isWhole: edits.length === state.edits.length && prefix.length === state.prefix.length };
}

/** The weights of one map less those of another. */
function subtract(one, other) {
  return Array.from(one, (row, index) => Float64Array.from(row, (weight, column) => weight - other[index][column]));
}

/** Why two maps have no difference. */
function whyDifferent(one, other) {
  if (!one.weights || !other.weights) return "There is none to show: the maps are too large.";
  const parts = [["sources", "keys"], ["outputs", "queries"]];
  const names = parts.filter(([, axis]) => !isSameMap({ [axis]: one.layer[axis] }, { [axis]: other.layer[axis] })).map(([name]) => name);
  return `There is none to show: the ${names.join(" and the ")} have different words.`;
}

/** Changes `other`, what is compared with. */
export class ComparePane extends HTMLElement {
  #number = 0;

  /** @param {import("./types").PaneData} data */
  set data(data) {
    this.data_ = data;
    this.role = "region";
    this.ariaLabel = "comparison";
    if (this.model !== data.model.id) this.#listChoices();
    this.#ask();
  }

  /** @param {import("./types").InspectorState} state */
  select(state) {
    const isOther = JSON.stringify(state.other) !== this.asked;
    this.data_ = { ...this.data_, state };
    if (isOther) this.#ask();
    else if (this.explanation) this.#draw();
  }

  async #listChoices() {
    const { model, models } = this.data_;
    this.model = model.id;
    this.hidden = true;
    const checkpoints = await models.checkpoints(model.id).catch(() => []);
    if (this.model !== model.id) return;
    this.choices = choicesOf(model, models, checkpoints);
    this.hidden = this.choices.length === 0;
    const options = ["nothing", ...this.choices.map(({ text }) => text)];
    this.choice = create("select", "", ...options.map((text) => Object.assign(create("option", "", text), { value: text })));
    this.choice.addEventListener("change", () =>
      emitChange(this, { other: this.choices[this.choice.selectedIndex - 1]?.other ?? null }));
    this.status = Object.assign(create("p", "checks"), { role: "status" });
    this.body = create("div", "compared");
    this.replaceChildren(create("h2", "", "Comparison"), create("label", "", "compare with", this.choice), this.status, this.body);
    this.#ask();
  }

  async #ask() {
    if (!this.body) return;
    const { state, models } = this.data_;
    this.#number += 1;
    const [number, chosen] = [this.#number, JSON.stringify(state.other)];
    this.asked = chosen;
    const index = this.choices.findIndex(({ other }) => JSON.stringify(other) === chosen);
    this.choice.selectedIndex = index + 1;
    this.explanation = null;
    if (index < 0) {
      this.status.textContent = "";
      this.body.replaceChildren();
      return;
    }
    const { request, isWhole } = requestFor(state, models);
    this.status.textContent = "\u2026";
    try {
      const explanation = await models.explain(request, "comparison");
      if (number !== this.#number) return;
      this.explanation = explanation;
      this.status.textContent = isWhole ? "" : "It has other layers and tokens: edits of those are left out.";
      this.#draw();
    } catch (error) {
      if (number === this.#number && error.name !== "AbortError") this.status.textContent = error.message;
    }
  }

  #draw() {
    const { explanation, model, state } = this.data_;
    const [text, otherText] = [explanation, this.explanation].map(describeResult);
    const view = chosenView(listViews(explanation), state);
    const other = view && likeView(view, listViews(this.explanation));
    const names = [model.id, this.choice.value];
    const outputs = [markWords(text, otherText, "del"), markWords(otherText, text, "ins")];
    const columns = [view, other].map((one, index) => this.#createColumn(names[index], outputs[index], one));
    if (view && other) columns.push(this.#createDifference(view, other));
    this.body.replaceChildren(...columns);
    const maps = [...this.body.querySelectorAll("attention-heatmap")];
    maps.forEach((map) => /** @type {AttentionHeatmap} */ (map).arrange());
    const show = (place) => maps.forEach((map) => /** @type {AttentionHeatmap} */ (map).choose(place ?? { row: null, column: null }));
    for (const map of maps) {
      const cellAt = (event) => /** @type {AttentionHeatmap} */ (map).cellAt(event);
      followPointer(/** @type {HTMLElement} */ (map), cellAt, { show, keep: show });
      map.addEventListener("focusin", (event) => show(cellAt(event)));
      map.addEventListener("focusout", () => show(null));
    }
  }

  #createColumn(name, output, view) {
    const line = Object.assign(create("p", "output", ...output), { dir: "auto" });
    const column = create("section", "", create("h3", "", name), line);
    if (!view) return column;
    const { state, models } = this.data_;
    column.append(Object.assign(new AttentionHeatmap(), { data: mapData(view, state, models) }));
    return column;
  }

  #createDifference(view, other) {
    const heading = create("h3", "", "difference");
    if (!view.weights || !other.weights || !isSameMap(view.layer, other.layer)) return create("section", "", heading, create("p", "checks", whyDifferent(view, other)));
    const weights = subtract(other.weights, view.weights);
    const texts = weights.map((row) => Array.from(row, signedPercent));
    const note = "The second map less the first, in percentage points.";
    const map = Object.assign(new AttentionHeatmap(), { data: { source: view.layer.keys, target: view.layer.queries, weights, texts, note } });
    return create("section", "difference", heading, map);
  }
}

customElements.define("compare-pane", ComparePane);
