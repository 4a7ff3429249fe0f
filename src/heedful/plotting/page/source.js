// Models behind a server.

import { TilePyramid } from "./tile-pyramid.js";

const UNREACHABLE = { detail: "the server does not answer", hint: "is it still running?" };
const TEMPORARY = [0, 429, 503, 504];

/** An error that the server explains; of the status 0, that it does not answer. */
export class ProblemError extends Error {
  /** @param {number} status @param {{ detail?: string, hint?: string }} problem */
  constructor(status, { detail, hint }) {
    super([detail || `status ${status}`, hint].filter(Boolean).join("; "));
    this.status = status;
    this.isTemporary = TEMPORARY.includes(status); // the same request may succeed later
  }
}

/** The runs of the server that the page comes from. */
export class ServerModels {
  /** @type {Record<string, any>} */
  byName = {};
  #token = "";
  #last = /** @type {Map<string, AbortController>} */ (new Map());

  /** @param {string} token */
  set token(token) {
    this.#token = token;
  }

  /** @type {(path: string, options?: RequestInit) => Promise<Response>} */
  async #send(path, options = {}) {
    const headers = { "Content-Type": "application/json", ...(this.#token && { Authorization: `Bearer ${this.#token}` }) };
    const answer = await fetch(path, { ...options, headers }).catch((error) => { throw error.name === "AbortError" ? error : new ProblemError(0, UNREACHABLE); });
    if (!answer.ok) throw new ProblemError(answer.status, await answer.json().catch(() => ({})));
    return answer;
  }

  /** @type {(path: string, options?: RequestInit) => Promise<any>} */
  async #request(path, options = {}) {
    return (await this.#send(path, options)).json();
  }

  /** The served models. */
  async list() {
    return (await this.#request("/v1/models")).data;
  }

  /**
   * The request for what the page shows. A prefix is an option where the model has one of this name, else part of the input.
   * @param {any} state
   */
  requestOf({ model, input, options, edits, prefix, checkpoint = null }) {
    const { capabilities, options: schema } = this.byName[model];
    const hasOption = (name) => name in (schema.properties ?? {});
    const tree = capabilities.includes("tree") ? { need_tree: true } : {};
    const kept = { ...Object.fromEntries(Object.entries(options).filter(([name]) => hasOption(name))), ...tree };
    const request = { model, input, options: kept, edits, ...(checkpoint !== null && { checkpoint }) };
    if (prefix.length === 0) return request;
    if (hasOption("prefix_tokens")) return { ...request, options: { ...kept, prefix_tokens: prefix } };
    return { ...request, input: { text: input, prefix_tokens: prefix } };
  }

  /** Explains a prediction; the last request for the same use is given up. @param {object} request @param {string} use */
  async explain(request, use = "page") {
    this.#last.get(use)?.abort();
    const controller = new AbortController();
    this.#last.set(use, controller);
    return this.#request("/v1/explain", { method: "POST", body: JSON.stringify(request), signal: controller.signal });
  }

  async #bytes(path) {
    return (await this.#send(path)).arrayBuffer();
  }

  /**
   * A map that was too large to be sent with its explanation. An error is dispatched as "stale" if it is held no more.
   * @param {string} trace @param {number} layer @param {number} head @param {number[]} size
   */
  pyramid(trace, layer, head, size) {
    const path = `/v1/traces/${encodeURIComponent(trace)}`;
    const map = `layer=${layer}&head=${head}`;
    return new TilePyramid(size, {
      tile: async ({ level, x, y }) => new Uint8Array(await this.#bytes(`${path}/tile?${map}&level=${level}&x=${x}&y=${y}&faint=true`)),
      row: async (row) => new Float32Array(await this.#bytes(`${path}/row?${map}&query=${row}`)),
      onError: (error) => document.dispatchEvent(new CustomEvent("stale", { detail: { trace, error } })),
    });
  }

  /** The steps of the checkpoints of a run. @param {string} model @returns {Promise<number[]>} */
  async checkpoints(model) {
    return (await this.#request(`/v1/runs/${encodeURIComponent(model)}/checkpoints`)).data;
  }

  /** What validations after a step predicted. @param {string} model @param {number} after @returns {Promise<any[]>} */
  async samples(model, after) {
    return (await this.#request(`/v1/runs/${encodeURIComponent(model)}/samples?after=${after}`)).data;
  }

  /** A figure of an explanation: SVG, or a page. @param {object} request @returns {Promise<string>} */
  async render(request) {
    return (await this.#send("/v1/render", { method: "POST", body: JSON.stringify(request) })).text();
  }
}
