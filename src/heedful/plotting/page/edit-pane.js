// All edits, undo and reset.

import { create, createButton, emitChange } from "./dom.js";
import { EditList } from "./edit-list.js";

/** Dispatches "undo" and "redo", too. */
export class EditPane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ state: { edits, prefix }, canUndo, canRedo }) {
    this.role = "region";
    this.ariaLabel = "edits";
    const list = Object.assign(new EditList(), { data: edits });
    list.addEventListener("remove", (/** @type {any} */ { detail }) =>
      emitChange(this, { edits: edits.filter((_, index) => index !== detail) }));
    const kept = prefix.length ? [create("p", "", `the first ${prefix.length} tokens are kept`)] : [];
    const send = (name) => () => this.dispatchEvent(new CustomEvent(name, { bubbles: true }));
    this.replaceChildren(create("h2", "", "Edits"), list, ...kept, create("p", "actions",
      createButton("undo (u)", "back to before the last change", send("undo"), canUndo),
      createButton("redo (r)", "make the last undone change again", send("redo"), canRedo),
      createButton("reset", "without edits", () => emitChange(this, { edits: [], prefix: [] }), edits.length || prefix.length)));
  }
}

customElements.define("edit-pane", EditPane);
