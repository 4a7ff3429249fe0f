// A row of words.

import { create, createToken, moveFocus, neighborAt } from "./dom.js";
import { percent, STRONG } from "./numbers.js";

/** Words as buttons, each as dark as its weight; they are one tab stop, and arrow keys move between them. */
export class TokenRow extends HTMLElement {
  /** @param {import("./types").TokenRowData} data */
  set data({ name, tokens }) {
    this.classList.add("words");
    this.dir = "auto"; // a right-to-left sentence runs from the right
    this.role = "toolbar";
    this.ariaLabel = name;
    this.words = tokens.map(({ text, label, title = text, above = [], below = [] }, index) => {
      const token = createToken("span", "token", text);
      const word = create("button", "word", ...above, token, create("span", "percentage"), ...below);
      return Object.assign(word, { type: "button", title, ariaLabel: label, tabIndex: index ? -1 : 0 });
    });
    this.replaceChildren(...this.words);
    this.onkeydown = (event) => {
      const { target, key } = event;
      const vertical = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[key];
      moveFocus(event, vertical ? target[vertical] : neighborAt(this.words, target, key));
    };
  }

  /** The index of the word that a node belongs to, or null. @param {Element} node */
  indexOf(node) {
    const index = this.words.indexOf(node.closest(".word"));
    return index < 0 ? null : index;
  }

  /** Marks a word. @param {number | null} index */
  choose(index) {
    this.words.forEach((word, other) => word.classList.toggle("chosen", other === index));
  }

  /** Shades words relative to the largest weight. @param {(number | null)[]} weights */
  shade(weights, largest = Math.max(...weights.map((weight) => weight ?? 0))) {
    this.words.forEach((word, index) => {
      const shade = largest > 0 ? (weights[index] ?? 0) / largest : 0;
      word.style.setProperty("--weight", String(shade));
      word.classList.toggle("strong", shade > STRONG);
    });
  }

  /** Shades words, and shows their weights; a word without one is blank. @param {(number | null)[]} weights */
  showWeights(weights, largest = 1) {
    this.shade(weights, largest);
    this.words.forEach((word, index) => {
      word.dataset.weight = String(weights[index] ?? "");
      word.querySelector(".percentage").textContent = percent(weights[index] ?? 0);
    });
  }
}

customElements.define("token-row", TokenRow);
