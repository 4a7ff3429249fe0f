// Editors of inputs: a text, and any other value as JSON.

import { create } from "./dom.js";

/** A text. */
export class TextInput extends HTMLElement {
  label = "text";

  constructor() {
    super();
    this.field = Object.assign(create("textarea", ""), { rows: 2, spellcheck: false, dir: "auto" });
    this.field.addEventListener("input", () => this.changed());
  }

  connectedCallback() {
    this.replaceChildren(create("label", "text", `${this.label} `, this.field));
  }

  get value() {
    return this.field.value;
  }

  set value(value) {
    this.field.value = value;
  }

  changed() {
    this.dispatchEvent(new CustomEvent("change", { bubbles: true }));
  }
}

/** A value as JSON; it changes when its text can be read. */
export class JsonInput extends TextInput {
  #value = /** @type {any} */ (null);
  label = "input, as JSON";

  get value() {
    return this.#value;
  }

  set value(value) {
    this.#value = value;
    this.field.value = JSON.stringify(value ?? {});
  }

  changed() {
    try {
      this.#value = JSON.parse(this.field.value);
      this.field.ariaInvalid = null;
    } catch {
      this.field.ariaInvalid = "true";
      return;
    }
    super.changed();
  }
}

customElements.define("text-input", TextInput);
customElements.define("json-input", JsonInput);
