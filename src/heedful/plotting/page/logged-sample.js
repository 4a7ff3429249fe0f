// A prediction for a dev example that a validation logged.

import { AttentionView } from "./attention-view.js";
import { create } from "./dom.js";
import { ImageAttention } from "./image-attention.js";
import { markWords } from "./word-diff.js";

/** Tokens as a line of text: characters are joined, anything longer is separated by spaces. */
function joinTokens(tokens) {
  const areLetters = tokens.every((token) => [...token].length === 1);
  return areLetters ? tokens.join("").replaceAll("\u2423", " ") : tokens.join(" ");
}

/** A button with source, reference and output. @type {(sample: any, isChosen: boolean) => HTMLButtonElement} */
export function createSample({ text, reference, source }, isChosen) {
  const output = create("i", "output", ...markWords(text, reference, "span"));
  const rows = [
    ["source", create("i", "", joinTokens(source))],
    ["reference", create("i", "", reference)],
    [text === reference ? "output \u2713" : "output", output],
  ].map(([name, line]) => create("span", "", create("b", "", name), Object.assign(line, { dir: "auto" })));
  return Object.assign(create("button", "card", ...rows), { type: "button", ariaPressed: String(isChosen) });
}

/** The attention of a sample: over its source, or over the cells of an image. @type {(sample: any) => HTMLElement} */
export function createAttention({ source, output, weights, notes, grid }) {
  if (!grid) return Object.assign(new AttentionView(), { data: { source, target: output, weights, notes } });
  const [rows, columns] = grid;
  const grids = weights.map((cells) =>
    Array.from({ length: rows }, (_, row) => cells.slice(row * columns, (row + 1) * columns)));
  return Object.assign(new ImageAttention(), { data: { image: null, size: grid, words: output, gates: null, weights: grids } });
}
