// The edits of attention, in words.

import { create } from "./dom.js";

const ALIGNMENTS = { fixed: ({ pattern }) => pattern, softmax: ({ temperature = 1 }) => `softmax at temperature ${temperature}` };

/** An edit in words: "step 2 of decoder.attention: all on word 4". @type {(edit: import("./types").Edit) => string} */
export function describeEdit({ layer, step, head, row, set, scale, alignment }) {
  const steps = step === undefined ? "all steps" : `step ${step + 1}`;
  const where = [steps, ...(head === undefined ? [] : [`head ${head + 1}`]), `of ${layer ?? "the attention"}`].join(" ");
  const cells = Object.entries(set ?? scale ?? {}).map(([position, value]) => {
    const word = `word ${+position + 1}`;
    if (set) return value === 1 ? `all on ${word}` : `${value} on ${word}`;
    return value === 0 ? `without ${word}` : `${word} times ${value}`;
  });
  const others = row ? ["a row of its own"] : alignment ? [(ALIGNMENTS[alignment.type] ?? (() => alignment.type))(alignment)] : [];
  return `${where}: ${[...cells, ...others].join(", ")}`;
}

/** Edits, each with a button that removes it; dispatches "remove" with its index. */
export class EditList extends HTMLElement {
  /** @param {import("./types").Edit[]} edits */
  set data(edits) {
    const items = edits.map((edit, index) => {
      const button = Object.assign(create("button", "remove", "\u00d7"), { type: "button", ariaLabel: `remove: ${describeEdit(edit)}` });
      button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("remove", { detail: index })));
      return create("li", "", describeEdit(edit), button);
    });
    this.replaceChildren(edits.length ? create("ol", "", ...items) : create("p", "empty", "no edits"));
  }
}

customElements.define("edit-list", EditList);
