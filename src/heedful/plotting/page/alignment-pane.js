// Another alignment, or temperature, for the layer whose map is shown.

import { chosenView, listViews } from "./attention-views.js";
import { create, emitChange } from "./dom.js";

const CHOICES = ["softmax", "sparsemax", "entmax", "uniform", "last", "diagonal"];
const FIXED = ["uniform", "last", "diagonal"];
const TEMPERATURES = { min: 0.1, max: 5, step: 0.1 };

/** @type {(name: string, temperature: number) => import("./types").Edit["alignment"]} */
function alignmentOf(name, temperature) {
  if (FIXED.includes(name)) return { type: "fixed", pattern: name };
  return name === "softmax" ? { type: name, temperature } : { type: name };
}

/** A choice and a slider; greyed, with the reason, where a mechanism keeps its own. */
export class AlignmentPane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation, model, state }) {
    this.model = model;
    this.views = listViews(explanation);
    this.role = "region";
    this.ariaLabel = "alignment";
    this.select(state);
  }

  /** @param {import("./types").InspectorState} state */
  select(state) {
    const { path } = chosenView(this.views, state).layer;
    if (path === this.path && state.edits === this.edits) return;
    this.path = path;
    this.edits = state.edits;
    const mechanism = this.model.mechanisms.find((one) => one.path === path);
    const refuses = mechanism ? mechanism.refuses : { softmax: "its attention is part of another layer" };
    const isWhole = (/** @type {import("./types").Edit} */ { layer, step, head, alignment }) => layer === path && alignment && step === undefined && head === undefined;
    const { type = "", pattern, temperature = 1 } = state.edits.find(isWhole)?.alignment ?? {};
    const choice = create("select", "", Object.assign(create("option", "", "the model\u2019s"), { value: "" }),
      ...CHOICES.map((name) => Object.assign(create("option", "", name), { disabled: FIXED.includes(name) && "fixed" in refuses })));
    const slider = Object.assign(create("input", ""), { type: "range", ...TEMPERATURES, value: temperature });
    Object.assign(choice, { value: pattern ?? type, disabled: "softmax" in refuses });
    slider.disabled = choice.disabled || !["", "softmax"].includes(choice.value);
    const shown = create("output", "", String(temperature));
    const change = (name) => {
      const others = state.edits.filter((edit) => !isWhole(edit));
      emitChange(this, { edits: name ? [...others, { layer: path, alignment: alignmentOf(name, +slider.value) }] : others });
    };
    choice.addEventListener("change", () => change(choice.value));
    slider.addEventListener("input", () => { shown.textContent = slider.value; });
    slider.addEventListener("change", () => change("softmax"));
    const reason = refuses.softmax ?? refuses.fixed;
    this.replaceChildren(create("h2", "", "Alignment"), create("label", "", "alignment of this layer", choice),
      create("div", "slider", create("label", "", "temperature", slider), shown), ...(reason ? [create("p", "checks", `This layer ${reason}.`)] : []));
  }
}

customElements.define("alignment-pane", AlignmentPane);
