// The worker of a page: it opens the model and answers requests, so that typing never waits.
//
// A message is { id, method, parameters }; the answer { id, result } or { id, error }.

import { Captioner, Translator } from "./page-search.js";
import { Classifier, LanguageModel, Tagger } from "./page-text-models.js";
import { DAMAGED, isIntact, unpack } from "./page-weights.js";

const MODELS = { translation: Translator, captioning: Captioner, "language-modeling": LanguageModel, classification: Classifier, tagging: Tagger };

let openedModel = /** @type {any} */ (null);

const METHODS = {
  async open({ parts, digests }) {
    if (!isIntact(parts, digests)) throw new Error(DAMAGED);
    const description = await unpack(parts.model).json();
    openedModel = new MODELS[description.task](description, await unpack(parts.weights).arrayBuffer());
    return true;
  },
  explain: (request) => openedModel.explain(request),
  encode: ({ texts, side }) => texts.map((text) => openedModel[side].encode(text)),
  decode: ({ ids, side }) => ids.map((tokens) => openedModel[side].decode(tokens)),
  outputs: ({ inputs, maxLengths, options }) => inputs.map((input, index) =>
    openedModel.output(input, { ...options, max_length: maxLengths[index] })),
};

self.onmessage = async ({ data: { id, method, parameters } }) => {
  try {
    self.postMessage({ id, result: await METHODS[method](parameters) });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  }
};
