// Settings of a prediction, such as the beam size or the temperature: a field for each number that a model takes.

import { create } from "./dom.js";

const HIDDEN = ["n_best"]; // one output is explained
const UNSET = "default"; // what is shown where the run, or the request, decides

/** The schema of a number, or of a number that may be null. */
function numberSchema({ anyOf = [], ...schema }) {
  const kinds = [schema, ...anyOf.map((kind) => ({ ...schema, ...kind }))];
  return kinds.find(({ type }) => type === "integer" || type === "number");
}

function createField(name, schema, value) {
  const { type, minimum, maximum, exclusiveMinimum, default: usual, description = "" } = schema;
  const field = Object.assign(create("input", ""), {
    type: "number", name, min: minimum ?? exclusiveMinimum ?? "", max: maximum ?? "", step: type === "integer" ? 1 : "any",
    placeholder: usual ?? UNSET, title: description, value: value ?? "",
  });
  return create("label", "", name.replaceAll("_", " "), field);
}

/** Its value is an object of the settings that were made; dispatches "change". Other settings of the value stay. */
export class OptionsForm extends HTMLElement {
  #value = /** @type {Record<string, any>} */ ({});

  constructor() {
    super();
    this.addEventListener("change", (event) => this.#change(event));
  }

  /** @param {{ schema: any, value: Record<string, any> }} data */
  set data({ schema, value }) {
    this.#value = value;
    const fields = Object.entries(schema.properties ?? {}).map(([name, one]) => [name, numberSchema(one)])
      .filter(([name, one]) => one && !HIDDEN.includes(name)).map(([name, one]) => createField(name, one, value[name]));
    this.replaceChildren(...fields);
  }

  get value() {
    return this.#value;
  }

  #change(event) {
    if (!event.target.reportValidity()) { // the browser shows what is wrong
      event.stopImmediatePropagation();
      return;
    }
    const { name, value } = event.target;
    const { [name]: _, ...others } = this.#value;
    this.#value = value === "" ? others : { ...others, [name]: Number(value) };
  }
}

customElements.define("options-form", OptionsForm);
