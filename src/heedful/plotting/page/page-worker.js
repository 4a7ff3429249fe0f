// The worker of a page: it opens the model and answers requests, so that typing never waits.
//
// A message is { id, method, parameters }; the answer { id, result } or { id, error }.

import { PageModel } from "./page-model.js";
import { DAMAGED, decodeBase64, gunzip, isIntact } from "./page-weights.js";

let openedModel = /** @type {PageModel | null} */ (null);

const METHODS = {
  async open({ parts, digests }) {
    if (!isIntact(parts, digests)) throw new Error(DAMAGED);
    openedModel = new PageModel(JSON.parse(parts.model), await gunzip(decodeBase64(JSON.parse(parts.weights))));
    return true;
  },
  explain: (request) => openedModel?.explain(request),
  encode: ({ texts, side }) => texts.map((text) => openedModel?.[side].encode(text)),
  decode: ({ ids, side }) => ids.map((tokens) => openedModel?.[side].decode(tokens)),
  search: ({ sources, maxLengths, options }) => sources.map((source, index) =>
    openedModel?.search(source, { ...options, max_length: maxLengths[index] }).tokens),
};

self.onmessage = async ({ data: { id, method, parameters } }) => {
  try {
    self.postMessage({ id, result: await METHODS[method](parameters) });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  }
};
