// The attention of words over an image, whose cells can be weakened.

import { chosenView, listViews } from "./attention-views.js";
import { create, createButton, emitChange } from "./dom.js";
import { decodeImage, ImageAttention } from "./image-attention.js";

const WEAKENED = 0.05; // of its weight
const REACH = 1; // cells around the chosen one, in each direction

/** The first map over the cells of the image, if the chosen one is none. */
function viewOverImage(explanation, state) {
  const isOverImage = ({ layer }) => layer.grid && layer.queries.length !== layer.keys.length;
  const views = listViews(explanation);
  const chosen = chosenView(views, state);
  return chosen && isOverImage(chosen) ? chosen : views.find(isOverImage);
}

/** @type {(explanation: any) => boolean} */
export function hasImage(explanation) {
  return Boolean(viewOverImage(explanation, { view: 0 }));
}

/** Key w, or a button: all layers attend less to the cells around the chosen one. */
export class ImagePane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation, state }) {
    this.role = "region";
    this.ariaLabel = "image";
    this.state = state;
    this.explanation = explanation;
    this.#draw();
  }

  /** @param {import("./types").InspectorState} state */
  select(state) {
    this.state = state;
  }

  async #draw() {
    const { explanation, state } = this;
    const { layer, weights, head = 0 } = viewOverImage(explanation, state);
    const [rows, columns] = layer.grid;
    const image = typeof state.input === "string" ? await decodeImage(`data:image/png;base64,${state.input}`).catch(() => null) : null;
    if (this.explanation !== explanation) return; // a later answer is drawn
    const toGrid = (row) => Array.from({ length: rows }, (_, index) => row.slice(index * columns, (index + 1) * columns));
    const figure = new ImageAttention();
    figure.data = {
      image, size: image ? [image.naturalHeight, image.naturalWidth] : [rows, columns],
      words: layer.queries, gates: layer.overlays[head].gates ?? null, weights: weights.map(toGrid),
    };
    const weaken = () => this.#weaken(figure.kept?.cell, layer.grid);
    const button = createButton("weaken 3 \u00d7 3 cells (w)", "all layers attend less to the cells around the chosen one", weaken, false);
    figure.addEventListener("keep", () => { button.disabled = !figure.kept.cell; });
    figure.addEventListener("keydown", (event) => event.key === "w" && weaken());
    this.replaceChildren(figure, create("p", "actions", button));
  }

  #weaken(cell, [rows, columns]) {
    if (!cell) return;
    const around = (middle, count) => [...Array(count).keys()].filter((index) => Math.abs(index - middle) <= REACH);
    const cells = around(cell.row, rows).flatMap((row) => around(cell.column, columns).map((column) => row * columns + column));
    const scale = Object.fromEntries(cells.map((index) => [index, WEAKENED]));
    emitChange(this, { edits: [...this.state.edits, { layer: "source", scale }] });
  }
}

customElements.define("image-pane", ImagePane);
