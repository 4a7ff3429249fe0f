// The keys of a page, in a dialog: "?" or its button opens it, Escape closes it.

import { create, createButton, onPlainKey } from "./dom.js";

/** The keys of all panes that edit attention. @type {[string, string][]} */
const HELP = [
  ["arrow keys, Home, End", "move between words, cells, nodes of the tree, points and glimpses"],
  ["f", "all weight of the step on the chosen word"],
  ["z", "no layer attends to the chosen word"],
  ["w", "all layers attend less to the chosen cells of an image"],
  ["u", "undo the last change"],
  ["r", "redo what was undone"],
  ["Enter", "continue the output from the chosen token, or node of the tree"],
  ["+, \u2212", "a large map or tree becomes larger, smaller"],
  ["Escape", "show the whole map again"],
  ["?", "these keys"],
];

/** A button and its dialog. */
export class KeyHelp extends HTMLElement {
  connectedCallback() {
    const rows = HELP.map(([keys, action]) => create("tr", "",
      create("td", "", ...keys.split(", ").flatMap((key, index) => [...(index ? [", "] : []), create("kbd", "", key)])), create("td", "", action)));
    const heading = Object.assign(create("h2", "", "Keys"), { id: "key-help-heading" });
    const note = create("p", "", "Choose a word or a cell first, by a click or by Tab and the arrow keys. While a text is typed, keys are letters.");
    this.dialog = create("dialog", "", heading, note, create("table", "", create("tbody", "", ...rows)),
      createButton("Close", "back to the page", () => this.dialog.close()));
    this.dialog.setAttribute("aria-labelledby", heading.id);
    this.replaceChildren(createButton("keys (?)", "what the keys do", () => this.dialog.showModal()), this.dialog);
    onPlainKey({ "?": () => this.dialog.open || this.dialog.showModal() });
  }
}

customElements.define("key-help", KeyHelp);
