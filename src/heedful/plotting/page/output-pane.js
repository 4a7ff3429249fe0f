// The prediction, in words, and what it was before the last edit.

import { create } from "./dom.js";
import { markWords } from "./word-diff.js";

const MAX_SHOWN = 300; // characters of a result that is no text

/** @type {(explanation: any) => string} */
export function describeResult({ result: { text, label, ...others } }) {
  return text ?? label ?? JSON.stringify(others).slice(0, MAX_SHOWN);
}

/** The output of a model; words that an edit changed are marked in it and in the one before. */
export class OutputPane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation, former }) {
    const text = describeResult(explanation);
    const before = former ? describeResult(former) : text;
    const note = before === text ? ["as before"] : ["before: ", create("span", "", ...markWords(before, text, "del"))];
    const lines = [create("p", "output", ...markWords(text, before, "ins")), ...(former ? [create("p", "former", ...note)] : [])];
    const isLong = Math.max(text.length, before.length) > MAX_SHOWN; // it scrolls, also by keyboard
    this.replaceChildren(...lines.map((line) => Object.assign(line, { dir: "auto", ...(isLong && { tabIndex: 0 }) })));
  }
}

customElements.define("output-pane", OutputPane);
