// The model of a page at work: an input, what the model makes of it, the attention, and what changes if it is edited.
//
// VIEWS says what the page of a task has: the editor of its input and its label, whether its output can be continued from a
// token, and whether what was shown before another input stays beside the new. Panes are those of the inspector.
// Those of images are added by model-images.js.

import { AttentionPane } from "./attention-pane.js";
import { ContinuationPane } from "./continuation-pane.js";
import { create, createButton, fill, onPlainKey, readData } from "./dom.js";
import { EditPane } from "./edit-pane.js";
import { KeyHelp } from "./key-help.js";
import { LabelPane, TagPane } from "./label-pane.js";
import { OutputPane } from "./output-pane.js";
import { PageModels } from "./page-models.js";
import { History } from "./state.js";
import { StepPane } from "./step-pane.js";
import { TextInput } from "./text-input.js";

const KEY_DELAY = 60; // milliseconds after the last key
const SELECTED_FIELDS = ["view", "row", "column"];
const FIRST_STATE = { input: "", options: {}, edits: [], prefix: [], view: 0, row: null, column: null };
export const BEAM = { name: "beam_size", label: "search", choices: [1, 2, 4, 5, 8].map((size) => [size, size === 1 ? "greedy" : `beam of ${size}`]) };
const TEMPERATURE = {
  name: "temperature", label: "next token",
  choices: [[0, "most probable"], [0.5, "drawn at temperature 0.5"], [0.8, "drawn at temperature 0.8"], [1, "drawn at temperature 1"]],
};
const COUNT = { name: "max_new_tokens", label: "length", choices: [20, 40, 100, 200].map((count) => [count, `${count} tokens`]) };
export const VIEWS = /** @type {Record<string, any>} */ ({
  translation: { input: TextInput, label: "text to translate", settings: [BEAM], hasPrefix: true },
  "language-modeling": { input: TextInput, label: "text to continue", settings: [TEMPERATURE, COUNT], hasPrefix: true, canRepeat: true },
  classification: { input: TextInput, label: "text to classify", settings: [], comparesInputs: true },
  tagging: { input: TextInput, label: "words to tag", settings: [], comparesInputs: true },
});
/** @type {import("./types").Pane[]} */
export const MODEL_PANES = [
  { accepts: ({ result }) => "num_prompt_tokens" in result, element: ContinuationPane },
  { accepts: ({ result: { label } }) => label !== undefined, element: LabelPane },
  { accepts: ({ result: { tags } }) => tags !== undefined, element: TagPane },
  { accepts: ({ result: { text, num_prompt_tokens: numPrompt } }) => text !== undefined && numPrompt === undefined, element: OutputPane },
  { accepts: ({ layers }) => layers.length > 0, element: AttentionPane },
  { accepts: ({ layers }) => layers.length > 0, element: StepPane, place: "aside" },
  { accepts: ({ layers }) => layers.length > 0, element: EditPane, place: "aside" },
];

/** Answers while its user types. Edits are those of the inspector; u is undo. */
export class ModelView extends HTMLElement {
  #models = new PageModels();
  #state = new History(FIRST_STATE, (value) => this.#update(value));
  #explanations = new WeakMap(); // of states
  #isTyping = false;
  #timer = 0;

  async connectedCallback() {
    const { task = "translation", examples = [], beam_size: beamSize = 1 } = this.#readPage();
    this.view = VIEWS[task] ?? VIEWS.translation; // the page was changed, which is reported, too
    this.#build();
    this.#showStatus("opening the model \u2026");
    try {
      await this.#models.open();
    } catch (error) {
      this.#showStatus(error.message, true);
      return;
    }
    this.examples.append(...examples.map((text) => createButton(text, "take this", () => this.#changeInput(text))));
    this.classList.add("ready");
    this.fields.disabled = false;
    this.#listen();
    const defaults = { beam_size: beamSize, temperature: 0, max_new_tokens: 40 };
    const options = Object.fromEntries(this.view.settings.map(({ name }) => [name, defaults[name]]));
    this.#state.change({ input: examples[0] ?? "", options });
  }

  #readPage() {
    try {
      return readData("page");
    } catch {
      return {}; // the page was changed, which is reported when the model is opened
    }
  }

  #build() {
    this.editor = Object.assign(new this.view.input(), { label: this.view.label });
    this.selects = this.view.settings.map(({ name, choices }) => {
      const options = choices.map(([value, text]) => Object.assign(create("option", "", text), { value: String(value) }));
      return Object.assign(create("select", "", ...options), { name });
    });
    this.examples = create("p", "examples");
    this.statusLine = Object.assign(create("p", "status"), { role: "status" });
    this.panes = new Map(MODEL_PANES.map((pane) => [pane, new pane.element()]));
    this.stack = create("div", "stack");
    this.aside = create("aside", "");
    const settings = this.view.settings.map(({ label }, index) => create("label", "", `${label} `, this.selects[index]));
    const again = this.view.canRepeat ? [createButton("draw again", "another continuation", () => this.#drawAgain())] : [];
    this.fields = Object.assign(create("fieldset", "", this.editor, ...settings, ...again), { disabled: true });
    const request = create("form", "request", this.fields, new KeyHelp());
    this.replaceChildren(request, this.examples, this.statusLine, create("div", "results panes", this.stack, this.aside));
    request.addEventListener("submit", (event) => event.preventDefault());
  }

  #listen() {
    this.editor.addEventListener("change", (event) => {
      event.stopPropagation(); // also that of a field which is left
      if (this.editor.value !== this.#state.value.input) this.#changeInput(this.editor.value);
    });
    for (const select of this.selects) {
      select.addEventListener("change", () => this.#setOption(select.name, Number(select.value)));
    }
    this.addEventListener("change", (/** @type {any} */ { detail }) => detail?.changes && this.#change(detail.changes, detail.isEdit));
    this.editor.addEventListener("focusout", () => { this.#isTyping = false; });
    const actions = { undo: () => this.#undo(), redo: () => this.#redo() };
    for (const [name, action] of Object.entries(actions)) this.addEventListener(name, action);
    onPlainKey({ u: actions.undo, r: actions.redo });
  }

  #showStatus(text, isError = false) {
    this.statusLine.textContent = text;
    this.statusLine.classList.toggle("error", isError);
  }

  #setOption(name, value) {
    this.#change({ options: { ...this.#state.value.options, [name]: value } });
  }

  #drawAgain() {
    const { options } = this.#state.value;
    this.#change({ options: { ...options, temperature: options.temperature || 1, seed: (options.seed ?? 1) + 1 }, prefix: [] });
  }

  #update({ input, options }) {
    if (this.editor.value !== input) this.editor.value = input;
    for (const select of this.selects) select.value = String(options[select.name]);
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
    if (!explanation) return; // of an input that was changed meanwhile
    const before = this.#state.latest((value) => this.#explanations.has(value));
    const isComparable = before && (this.view.comparesInputs || before.input === state.input);
    const former = isComparable ? this.#explanations.get(before) : null;
    const model = { options: { properties: this.view.hasPrefix ? { prefix_tokens: {} } : {} }, input: {} };
    this.classList.toggle("without-attention", explanation.layers.length === 0);
    const shown = MODEL_PANES.filter((pane) => pane.accepts(explanation, model));
    for (const node of [this.stack, this.aside]) {
      fill(node, shown.filter(({ place }) => (place === "aside") === (node === this.aside)).map((pane) => this.panes.get(pane)));
    }
    const [canUndo, canRedo] = [this.#state.former, this.#state.undone].map((values) => values.length > 0);
    for (const pane of shown) {
      this.panes.get(pane).data = { explanation, model, state, former, models: /** @type {any} */ (this.#models), canUndo, canRedo };
    }
  }

  #change(changes, isEdit = true) {
    this.#isTyping = false;
    if (!Object.keys(changes).every((name) => SELECTED_FIELDS.includes(name))) {
      this.#state.change(changes, isEdit);
      return;
    }
    Object.assign(this.#state.value, changes);
    for (const pane of this.panes.values()) if (pane.isConnected) pane.select?.(this.#state.value);
  }

  /** Another input, without the edits of the one before; undo takes back all that was typed until the field was left. */
  #changeInput(input) {
    this.#state.change({ ...FIRST_STATE, options: this.#state.value.options, input }, !this.#isTyping);
    this.#isTyping = true;
  }

  #undo() {
    this.#isTyping = false;
    this.#state.undo();
  }

  #redo() {
    this.#isTyping = false;
    this.#state.redo();
  }
}

customElements.define("model-view", ModelView);
