// The most probable tokens of a step.

import { create, createToken } from "./dom.js";

/** Buttons with bars; dispatches "token" with the id of the one that is clicked. */
export class TopTokens extends HTMLElement {
  /** `isEnabled`: whether the output can go on with one. @param {{ tokens: { id: number, token: string, log_prob: number }[], isEnabled: boolean }} data */
  set data({ tokens, isEnabled }) {
    const rows = tokens.map(({ id, token, log_prob }) => {
      const probability = Math.exp(log_prob);
      const bar = create("span", "bar");
      bar.style.setProperty("--weight", String(probability));
      const button = create("button", "top-token", createToken("span", "", token), bar, create("span", "number", probability.toFixed(3)));
      Object.assign(button, { type: "button", title: `continue with ${token}`, disabled: !isEnabled });
      button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("token", { detail: id })));
      return create("li", "", button);
    });
    this.replaceChildren(create("ol", "", ...rows));
  }
}

customElements.define("top-tokens", TopTokens);
