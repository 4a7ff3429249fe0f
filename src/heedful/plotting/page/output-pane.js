// The prediction, in words.

import { create } from "./dom.js";

const MAX_SHOWN = 300; // characters of a result that is no text

/** @type {(explanation: any) => string} */
export function describeResult({ result: { text, label, ...others } }) {
  return text ?? label ?? JSON.stringify(others).slice(0, MAX_SHOWN);
}

/** The output of a model. */
export class OutputPane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation }) {
    this.replaceChildren(Object.assign(create("p", "output", describeResult(explanation)), { dir: "auto" }));
  }
}

customElements.define("output-pane", OutputPane);
