// The model of a page at work: a text, its translation, the attention, and what changes if it is edited.

import { AttentionPane } from "./attention-pane.js";
import { create, createButton, isTextField, readData } from "./dom.js";
import { EditPane } from "./edit-pane.js";
import { OutputPane } from "./output-pane.js";
import { PageModels } from "./page-models.js";
import { History } from "./state.js";
import { StepPane } from "./step-pane.js";

const KEY_DELAY = 60; // milliseconds after the last key
const SELECTED_FIELDS = ["view", "row", "column"];
const BEAM_SIZES = [1, 2, 4, 5, 8];
const FIRST_STATE = { input: "", options: {}, edits: [], prefix: [], view: 0, row: null, column: null };
/** What the panes may offer for a model in a page. */
const ABILITIES = { options: { properties: { prefix_tokens: {} } }, input: {} };

/** Translates while its user types. Edits are those of the inspector; u is undo. */
export class TextTranslator extends HTMLElement {
  #models = new PageModels();
  #state = new History(FIRST_STATE, (value) => this.#update(value));
  #explanations = new WeakMap(); // of states
  #isTyping = false;
  #timer = 0;

  async connectedCallback() {
    this.#build();
    this.#showStatus("opening the model \u2026");
    try {
      await this.#models.open();
    } catch (error) {
      this.#showStatus(error.message, true);
      return;
    }
    const { examples, beam_size: beamSize } = readData("page");
    this.examples.append(...examples.map((text) => createButton(text, "translate this", () => this.#changeText(text))));
    this.classList.add("ready");
    this.field.disabled = false;
    this.#listen();
    this.#state.change({ input: examples[0] ?? "", options: { beam_size: beamSize } });
  }

  #build() {
    this.field = Object.assign(create("textarea", ""), { rows: 2, spellcheck: false, dir: "auto", disabled: true });
    const choices = BEAM_SIZES.map((size) => Object.assign(create("option", "", size === 1 ? "greedy" : `beam of ${size}`), { value: String(size) }));
    this.beam = create("select", "", ...choices);
    this.examples = create("p", "examples");
    this.statusLine = Object.assign(create("p", "status"), { role: "status" });
    this.output = new OutputPane();
    this.others = [new AttentionPane(), new StepPane(), new EditPane()];
    const [map, ...beside] = this.others;
    const request = create("form", "request", create("label", "text", "text ", this.field), create("label", "", "search ", this.beam));
    this.replaceChildren(request, this.examples, this.statusLine,
      create("div", "results panes", create("div", "stack", this.output, map), create("aside", "", ...beside)));
    request.addEventListener("submit", (event) => event.preventDefault());
  }

  #listen() {
    this.field.addEventListener("input", () => this.#changeText(this.field.value));
    this.beam.addEventListener("change", () => this.#change({ options: { beam_size: Number(this.beam.value) } }));
    this.addEventListener("change", (/** @type {any} */ { detail }) => detail?.changes && this.#change(detail.changes, detail.isEdit));
    this.addEventListener("undo", () => this.#undo());
    document.addEventListener("keydown", (event) => {
      const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
      if (event.key === "u" && isPlain && !isTextField(event.target)) this.#undo();
    });
  }

  #showStatus(text, isError = false) {
    this.statusLine.textContent = text;
    this.statusLine.classList.toggle("error", isError);
  }

  #update({ input, options }) {
    if (this.field.value !== input) this.field.value = input;
    this.beam.value = options.beam_size;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#explain(), KEY_DELAY);
  }

  async #explain() {
    const asked = this.#state.value;
    const { input, options, edits, prefix } = asked;
    try {
      const explanation = await this.#models.explain({ input, options: { ...options, prefix_tokens: prefix }, edits });
      if (!explanation) return;
      this.#explanations.set(asked, explanation);
    } catch (error) {
      this.#showStatus(error.message, true);
      return;
    }
    this.#showStatus("");
    this.#draw();
  }

  #draw() {
    const state = this.#state.value;
    const explanation = this.#explanations.get(state);
    if (!explanation) return; // of a text that was changed meanwhile
    const before = this.#state.former.at(-1);
    const former = before?.input === state.input ? this.#explanations.get(before) ?? null : null;
    const hasAttention = explanation.layers.length > 0;
    this.classList.toggle("without-attention", !hasAttention);
    for (const pane of [this.output, ...(hasAttention ? this.others : [])]) {
      const canUndo = this.#state.former.length > 0;
      pane.data = { explanation, model: ABILITIES, state, former, models: /** @type {any} */ (this.#models), canUndo };
    }
  }

  #change(changes, isEdit = true) {
    this.#isTyping = false;
    if (!Object.keys(changes).every((name) => SELECTED_FIELDS.includes(name))) {
      this.#state.change(changes, isEdit);
      return;
    }
    Object.assign(this.#state.value, changes);
    for (const pane of /** @type {any[]} */ (this.others)) pane.select?.(this.#state.value);
  }

  /** Another text, without the edits of the one before; undo takes back all that was typed. */
  #changeText(input) {
    this.#state.change({ ...FIRST_STATE, options: this.#state.value.options, input }, !this.#isTyping);
    this.#isTyping = true;
  }

  #undo() {
    this.#isTyping = false;
    this.#state.undo();
  }
}

customElements.define("text-translator", TextTranslator);
