// One step: what may be done with the chosen cell, the best tokens, and the checks of the row.

import { chosenView, forceEdit, listViews, removeEdit } from "./attention-views.js";
import { create, createButton, emitChange } from "./dom.js";
import { percentage } from "./numbers.js";
import { TopTokens } from "./top-tokens.js";

const EFFECTS = { permuted: "each weight on the next word", uniform: "equal weights", without_strongest: "without its largest weight" };

/** How far a row is spread, and how much the prediction of its step would change with another one. */
function describeChecks({ checks, head = 0 }, row) {
  if (!checks) return [];
  const support = checks.effective_support[head]?.[row];
  const effects = Object.entries(checks.effects ?? {});
  const measured = effects.filter(([, values]) => values[row] !== null && values[row] !== undefined); // null: there was no time
  const items = measured.map(([name, values]) => create("li", "", EFFECTS[name] ?? name, create("span", "number", `${values[row].toFixed(3)} nats`)));
  return [
    ...(support === undefined ? [] : [create("p", "checks", `This row is spread over ${support.toFixed(1)} words.`)]),
    ...(items.length ? [create("p", "checks", "Change of the prediction if the row had"), create("ul", "checks", ...items)] : []),
    ...(effects.length > measured.length ? [create("p", "checks", "Effects were not measured, since the text is long.")] : []),
    ...(checks.max_hidden_weight > 0 ? [create("p", "checks", `Hidden words have ${percentage(checks.max_hidden_weight)}.`)] : []),
  ];
}

/** A token that is chosen begins what follows: the output up to its step is kept. */
export class StepPane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation, model, state }) {
    this.explanation = explanation;
    this.hasPrefix = [model.options, model.input, ...(model.input.anyOf ?? [])].some(({ properties }) => properties && "prefix_tokens" in properties);
    this.views = listViews(explanation);
    this.role = "region";
    this.ariaLabel = "step";
    this.select(state);
  }

  /** @param {import("./types").InspectorState} state */
  select(state) {
    const view = chosenView(this.views, state);
    const { queries } = view.layer;
    const row = state.row < queries.length ? state.row : null;
    const title = create("h2", "", row === null ? "Choose a word or a cell" : `Step ${row + 1}: ${queries[row]}`);
    const addEdit = (edit) => emitChange(this, { edits: [...state.edits, edit] });
    const [force, remove] = [forceEdit(view, { ...state, row }), removeEdit(view, state)];
    this.replaceChildren(title, create("p", "actions",
      createButton("force (f)", "all weight of this step on this word", () => addEdit(force), force),
      createButton("remove word (z)", "no layer attends to this word", () => addEdit(remove), remove)));
    const { top, token_ids, num_prompt_steps: numPrompt } = this.explanation;
    if (row !== null && top[row]) {
      const tokens = Object.assign(new TopTokens(), { data: { tokens: top[row], isEnabled: this.hasPrefix && row >= numPrompt } });
      tokens.addEventListener("token", (/** @type {any} */ { detail }) =>
        emitChange(this, { prefix: [...token_ids.slice(0, row - numPrompt), detail] }));
      this.append(tokens);
    }
    if (row !== null) this.append(...describeChecks(view, row));
  }
}

customElements.define("step-pane", StepPane);
