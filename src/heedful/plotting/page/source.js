// Models behind a server.

/** An error that the server explains. */
export class ProblemError extends Error {
  /** @param {number} status @param {{ detail?: string, hint?: string }} problem */
  constructor(status, { detail, hint }) {
    super([detail || `status ${status}`, hint].filter(Boolean).join("; "));
    this.status = status;
  }
}

/** The runs of the server that the page comes from. */
export class ServerModels {
  /** @type {Record<string, any>} */
  byName = {};
  #token = "";
  #last = /** @type {AbortController | null} */ (null);

  /** @param {string} token */
  set token(token) {
    this.#token = token;
  }

  /** @type {(path: string, options?: RequestInit) => Promise<Response>} */
  async #send(path, options = {}) {
    const headers = { "Content-Type": "application/json", ...(this.#token && { Authorization: `Bearer ${this.#token}` }) };
    const answer = await fetch(path, { ...options, headers });
    if (!answer.ok) throw new ProblemError(answer.status, await answer.json());
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

  /** Explains a prediction; the request before is given up. @param {object} request */
  async explain(request) {
    this.#last?.abort();
    this.#last = new AbortController();
    return this.#request("/v1/explain", { method: "POST", body: JSON.stringify(request), signal: this.#last.signal });
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
