// Which experts of a mixture processed which token, and with which gates.

import { AttentionHeatmap } from "./attention-heatmap.js";
import { chosenView, listViews } from "./attention-views.js";
import { create } from "./dom.js";

const NOTE = "A row has the gates of the experts that processed its word; blank ones did not.";

/** Follows the chosen row of the attention map, if it has the same words. */
export class ExpertPane extends HTMLElement {
  #chosen = 0; // index of the mixture

  /** @param {import("./types").PaneData} data */
  set data({ explanation, state }) {
    this.experts = explanation.experts;
    this.views = listViews(explanation);
    this.role = "region";
    this.ariaLabel = "experts";
    this.#chosen = Math.min(this.#chosen, this.experts.length - 1);
    const names = this.experts.map(({ path }) => Object.assign(create("option", "", path), { value: path }));
    const choice = Object.assign(create("select", "", ...names), { selectedIndex: this.#chosen });
    this.figure = create("div", "figure");
    this.replaceChildren(create("h2", "", "Experts"), create("label", "", "mixture of experts", choice), this.figure);
    choice.addEventListener("change", () => {
      this.#chosen = choice.selectedIndex;
      this.#draw();
      this.select(this.state);
    });
    this.#draw();
    this.select(state);
  }

  /** @param {import("./types").InspectorState} state */
  select(state) {
    this.state = state;
    const view = chosenView(this.views, state);
    const { tokens } = this.experts[this.#chosen];
    const { queries, keys } = view?.layer ?? { queries: [], keys: [] };
    const startsSame = (axis) => axis.every((token, index) => token === tokens[index]) && axis.length > 0;
    const row = startsSame(queries) ? state.row : startsSame(keys) ? state.column : null;
    this.map.choose({ row: row !== null && row < tokens.length ? row : null, column: null });
  }

  #draw() {
    const { tokens, gates } = this.experts[this.#chosen];
    const source = gates[0].map((_, index) => `expert ${index + 1}`);
    this.map = Object.assign(new AttentionHeatmap(), { data: { source, target: tokens, weights: gates, note: NOTE } });
    this.figure.replaceChildren(this.map);
    this.map.arrange();
    requestAnimationFrame(() => this.map.arrange()); // once it is in the page
  }
}

customElements.define("expert-pane", ExpertPane);
