// A text that goes on: its tokens, and what else could have followed. A token that is chosen begins what follows.

import { create, createButton, createToken, emitChange } from "./dom.js";
import { TopTokens } from "./top-tokens.js";

/** Buttons of tokens; those of the prompt can be looked at, and the others also be replaced. */
export class ContinuationPane extends HTMLElement {
  #row = /** @type {number | null} */ (null);

  /** @param {import("./types").PaneData} data */
  set data({ explanation, state }) {
    this.explanation = explanation;
    this.role = "region";
    this.ariaLabel = "continuation";
    this.list = create("p", "output tokens");
    this.choices = create("div", "choices");
    this.list.dir = "auto";
    this.list.append(...explanation.result.tokens.flatMap((text, index) => this.#createToken(text, index)));
    this.replaceChildren(this.list, this.choices);
    this.select(state);
  }

  #createToken(text, index) {
    const isPrompt = index < this.explanation.result.num_prompt_tokens;
    const hasChoices = index > 0 && index <= this.explanation.top.length;
    const choose = () => {
      this.#show(index - 1);
      emitChange(this, { row: index - 1 });
    };
    const button = createButton("", hasChoices ? "what else could follow here" : "", choose, hasChoices);
    button.className = isPrompt ? "prompt" : "";
    button.append(createToken("span", "", text));
    return text === "\u21b5" ? [button, create("br", "")] : [button];
  }

  /** @param {import("./types").InspectorState} state */
  select({ row }) {
    this.#show(row);
  }

  #show(row) {
    const { top, token_ids: ids, num_prompt_steps: numPrompt } = this.explanation;
    this.#row = row !== null && row < top.length ? row : null;
    for (const [index, button] of this.list.querySelectorAll("button").entries()) {
      button.setAttribute("aria-pressed", String(index - 1 === this.#row));
    }
    if (this.#row === null) {
      this.choices.replaceChildren();
      return;
    }
    const step = this.#row;
    const tokens = new TopTokens();
    tokens.data = { tokens: top[step], isEnabled: step >= numPrompt };
    tokens.addEventListener("token", (/** @type {any} */ { detail }) =>
      emitChange(this, { prefix: [...ids.slice(0, step - numPrompt), detail] }));
    this.choices.replaceChildren(tokens);
  }
}

customElements.define("continuation-pane", ContinuationPane);
