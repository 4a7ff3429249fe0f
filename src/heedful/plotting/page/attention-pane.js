// The maps of all layers and heads, and the one that is chosen.

import { chosenView, editedCells, forceEdit, listViews, mapData, matchingView, removeEdit } from "./attention-views.js";
import { AttentionView } from "./attention-view.js";
import { create, emitChange, findAll } from "./dom.js";
import { TiledAttention } from "./tiled-attention.js";
import { ViewChooser } from "./view-chooser.js";

const EDITS = { f: forceEdit, z: removeEdit };

function isInside(index, tokens) {
  return index === null || index < tokens.length;
}

/** Changes `view`, `row` and `column`; the keys f and z force a cell and remove a word. */
export class AttentionPane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation, state, former, models }) {
    this.state = state;
    this.former = former;
    this.models = models;
    this.views = listViews(explanation);
    this.role = "region";
    this.ariaLabel = "attention";
    const hadFocus = this.contains(document.activeElement) || document.activeElement === document.body;
    this.figure = create("div", "figure");
    this.replaceChildren(...(this.views.length > 1 ? [this.#createChooser()] : []), this.figure);
    this.#draw(hadFocus);
  }

  #createChooser() {
    const chooser = Object.assign(new ViewChooser(), { data: this.views });
    chooser.choose(this.views.indexOf(chosenView(this.views, this.state)));
    chooser.addEventListener("choose", (/** @type {any} */ { detail }) => {
      emitChange(this, { view: detail });
      this.#draw(false);
    });
    return chooser;
  }

  #draw(needsFocus) {
    const view = chosenView(this.views, this.state);
    if (!view) return this.figure.replaceChildren(create("p", "empty", "This model has no attention whose weights could be shown."));
    const { row, column } = this.state;
    const { queries, keys, is_intra, overlays } = view.layer;
    const shown = view.weights ? new AttentionView() : new TiledAttention();
    shown.data = {
      ...mapData(view, this.state, this.models), is_intra, overlays: overlays[view.head ?? 0],
      isEdited: editedCells(view, this.state.edits), former: this.former ? matchingView(view, this.former)?.weights ?? undefined : undefined,
    };
    this.figure.replaceChildren(shown);
    if (isInside(row, queries) && isInside(column, keys)) shown.keep({ row, column });
    if (needsFocus && row !== null) findAll(`.cell[data-row="${row}"][data-column="${column}"], map-canvas canvas`, shown)[0]?.focus();
    shown.addEventListener("keep", (/** @type {any} */ { detail }) => {
      const isKept = detail.row !== null || detail.column !== null; // else the focus may have moved to a button
      if (isKept && shown.isConnected) emitChange(this, detail);
    });
    shown.addEventListener("keydown", (event) => {
      const edit = EDITS[event.key]?.(view, this.state);
      if (edit) emitChange(this, { edits: [...this.state.edits, edit] });
    });
  }
}

customElements.define("attention-pane", AttentionPane);
