// The model that a page carries, behind a worker; `explain` is that of a server's models.

import { readData } from "./dom.js";
import { DAMAGED, isIntact, unpack } from "./page-weights.js";

const PARTS = ["worker", "page", "model", "weights"]; // ids of elements with a digest each

function textOf(id) {
  return document.getElementById(id)?.textContent ?? "";
}

function readDigests() {
  try {
    return readData("digests");
  } catch {
    return null;
  }
}

/** Asks the worker for one explanation at a time; of those that wait meanwhile, only the last is computed. */
export class PageModels {
  #worker = /** @type {Worker | null} */ (null);
  #waiting = new Map();
  #explained = Promise.resolve();
  #id = 0;
  #last = 0;

  /** Starts the worker and opens the model; an error if the page was changed. */
  async open() {
    const digests = readDigests();
    const { worker, page, ...parts } = Object.fromEntries(PARTS.map((name) => [name, textOf(name)]));
    if (!digests || !isIntact({ worker, page }, digests)) throw new Error(DAMAGED);
    const script = URL.createObjectURL(new Blob([await unpack(worker).text()], { type: "text/javascript" }));
    this.#worker = new Worker(script);
    this.#worker.onmessage = ({ data }) => this.#settle(data);
    await this.#ask("open", { parts, digests });
  }

  #ask(method, parameters) {
    this.#id += 1;
    const answer = new Promise((resolve, reject) => { this.#waiting.set(this.#id, { resolve, reject }); });
    this.#worker?.postMessage({ id: this.#id, method, parameters });
    return answer;
  }

  #settle({ id, result, error }) {
    const { resolve, reject } = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error === undefined) resolve(result);
    else reject(new Error(error));
  }

  /** Explains a prediction; null if another was asked for meanwhile. @param {object} request @returns {Promise<any>} */
  async explain(request) {
    this.#last += 1;
    const number = this.#last;
    await this.#explained;
    if (number !== this.#last) return null;
    const explanation = this.#ask("explain", request);
    this.#explained = explanation.catch(() => null);
    const result = await explanation;
    return number === this.#last ? result : null;
  }
}
