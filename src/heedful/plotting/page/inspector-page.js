// The inspector: an input, what the model makes of it, and what changes if attention is edited.
//
// This page keeps the state and sends the requests; it knows no task and no mechanism. Add a view to PANES:
// `accepts(explanation, model)` says whether it has something to show (the answer of /v1/explain, the entry of
// /v1/models), `element` is its class, `isAside` puts it beside the others. The element has a setter `data`,
// called with each answer ({ explanation, model, state, former, models }), and may have `select(state)`, called when
// only fields of SELECTION were changed. It changes the state, and so the next request, by
// emitChange(this, changes): undo goes back to before it, unless `isEdit` is false.
// INPUTS are the editors of inputs: the first that accepts the model. Each has `value`, what the request has
// as `input`, and dispatches "change" when its user changes it.

import { AlignmentPane } from "./alignment-pane.js";
import { AttentionPane } from "./attention-pane.js";
import { ComparePane } from "./compare-pane.js";
import { create, isTextField } from "./dom.js";
import { EditPane } from "./edit-pane.js";
import { download, ExportPane, svgToPng } from "./export-pane.js";
import { ExpertPane } from "./expert-pane.js";
import { ForecastPane } from "./forecast-pane.js";
import { GlimpsePane } from "./glimpse-pane.js";
import { ImageInput } from "./image-input.js";
import { hasImage, ImagePane } from "./image-pane.js";
import "./map-canvas.js";
import { LabelPane, TagPane } from "./label-pane.js";
import { MoviePane } from "./movie-pane.js";
import { OutputPane } from "./output-pane.js";
import { ServerModels } from "./source.js";
import { formatFragment, History, parseFragment } from "./state.js";
import { StepPane } from "./step-pane.js";
import { JsonInput, TextInput } from "./text-input.js";
import { TreePane } from "./tree-pane.js";

/** @type {import("./types").Pane[]} */
const PANES = [
  { accepts: ({ result }) => !["tags", "quantiles", "glimpses"].some((name) => name in result), element: OutputPane },
  { accepts: ({ result: { label, probabilities } }) => typeof label === "string" && Boolean(probabilities), element: LabelPane },
  { accepts: ({ result: { tags } }) => Boolean(tags), element: TagPane },
  { accepts: ({ result: { quantiles } }) => Boolean(quantiles), element: ForecastPane },
  { accepts: ({ result: { glimpses } }) => Boolean(glimpses), element: GlimpsePane },
  { accepts: hasImage, element: ImagePane },
  { accepts: ({ layers, result }) => layers.length > 0 || !result.glimpses, element: AttentionPane },
  { accepts: ({ experts }) => experts?.some(({ tokens }) => tokens.length), element: ExpertPane },
  { accepts: ({ result }) => result.tree?.length > 1, element: TreePane },
  { accepts: () => true, element: ComparePane },
  { accepts: () => true, element: MoviePane },
  { accepts: ({ layers }) => layers.length > 0, element: StepPane, isAside: true },
  { accepts: ({ layers }) => layers.length > 0, element: AlignmentPane, isAside: true },
  { accepts: ({ layers }) => layers.length > 0, element: EditPane, isAside: true },
  { accepts: () => true, element: ExportPane, isAside: true },
];
/** @type {import("./types").InputEditor[]} */
const INPUTS = [
  { accepts: ({ input }) => input.contentEncoding === "base64", element: ImageInput },
  { accepts: ({ example }) => typeof example === "string", element: TextInput },
  { accepts: () => true, element: JsonInput },
];
const DELAY = 150; // milliseconds after the last key
const POLL = 500; // milliseconds while models are loaded
const SELECTION = ["view", "row", "column", "other"];
const INITIAL = { model: "", input: null, options: {}, edits: [], prefix: [], view: 0, row: null, column: null, other: null };

const form = /** @type {any} */ (document.querySelector(".request"));
const [statusLine, inputPlace, main, aside] =
  [".status", ".input", ".panes > .stack", ".panes > aside"].map((selector) => document.querySelector(selector));
const models = new ServerModels();
const state = new History(parseFragment(location.hash, INITIAL), update);
const explanations = new WeakMap(); // of states
const panes = new Map(PANES.map((pane) => [pane, new pane.element()]));
let editor = /** @type {any} */ (null);
let isTyping = false;
let timer = 0;
let staleTrace = ""; // which the server holds no more

async function explain() {
  const asked = state.value;
  statusLine.textContent = "\u2026";
  try {
    explanations.set(asked, await models.explain(models.requestOf(asked)));
  } catch (error) {
    if (error.name !== "AbortError") statusLine.textContent = error.message;
    return;
  }
  if (asked !== state.value) return; // it was changed meanwhile, and is asked for again
  statusLine.textContent = "";
  draw();
}

function update(value) {
  history.replaceState(null, "", formatFragment(value));
  showRequest(value);
  clearTimeout(timer);
  timer = setTimeout(explain, DELAY);
}

function showRequest({ model, input, options }) {
  form.model.value = model;
  form.beam.value = options.beam_size ?? "";
  const { element } = INPUTS.find(({ accepts }) => accepts(models.byName[model]));
  if (editor?.constructor !== element) {
    editor = new element();
    inputPlace.replaceChildren(editor);
  }
  if (JSON.stringify(editor.value) !== JSON.stringify(input)) editor.value = input;
}

function draw() {
  const explanation = explanations.get(state.value);
  const model = models.byName[state.value.model];
  const before = state.former.at(-1);
  const former = before?.model === model.id ? explanations.get(before) ?? null : null;
  const shown = PANES.filter((pane) => pane.accepts(explanation, model));
  for (const [place, isAside] of /** @type {[Element, boolean][]} */ ([[main, false], [aside, true]])) {
    const elements = shown.filter((pane) => Boolean(pane.isAside) === isAside).map((pane) => panes.get(pane));
    if (elements.some((element, index) => place.children[index] !== element)) place.replaceChildren(...elements);
    [...place.children].slice(elements.length).forEach((element) => element.remove());
  }
  for (const pane of shown) panes.get(pane).data = { explanation, model, state: state.value, former, models, canUndo: state.former.length > 0 };
}

function select(changes) {
  Object.assign(state.value, changes);
  history.replaceState(null, "", formatFragment(state.value));
  for (const pane of panes.values()) if (pane.isConnected) pane.select?.(state.value);
}

/** @type {(changes: object, isEdit?: boolean) => void} */
function change(changes, isEdit = true) {
  isTyping = false;
  if (Object.keys(changes).every((name) => SELECTION.includes(name))) select(changes);
  else state.change(changes, isEdit);
}

function undo() {
  isTyping = false;
  state.undo();
}

/** Undo takes back all that was typed without another change in between. */
function changeInput() {
  const isNew = JSON.stringify(editor.value) !== JSON.stringify(state.value.input);
  if (!isNew) return;
  state.change({ input: editor.value, prefix: [] }, !isTyping);
  isTyping = true;
}

/** The input stays if the same element edits it. */
async function changeModel() {
  const [former, model] = [state.value.model, form.model.value].map((name) => models.byName[name]);
  const isKept = [former, model].every(isText);
  change({ ...INITIAL, model: model.id, input: isKept ? state.value.input : await exampleOf(model) });
}

function isText({ example, input }) {
  return typeof example === "string" && !input.contentEncoding;
}

/** A text that the training showed, if there is one: the model has words for it. */
async function exampleOf(model) {
  const [sample] = isText(model) ? await models.samples(model.id, -1).catch(() => []) : [];
  return sample?.source_text || model.example;
}

/** @type {(format: string, figure: object) => Promise<Blob>} */
async function renderFile(format, figure) {
  if (format === "json") return new Blob([JSON.stringify(explanations.get(state.value))]);
  const source = format === "png" ? "svg" : format;
  const canvas = /** @type {any} */ (document.querySelector("attention-pane map-canvas canvas"));
  if (format === "png" && canvas) return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
  const text = await models.render({ ...models.requestOf(state.value), ...figure, format: source });
  return format === "png" ? svgToPng(text) : new Blob([text]);
}

async function exportFile({ format, figure }) {
  statusLine.textContent = "\u2026";
  try {
    download(await renderFile(format, figure), `attention.${format}`);
    statusLine.textContent = "";
  } catch (error) {
    statusLine.textContent = error.message;
  }
}

async function listModels() {
  try {
    return await models.list();
  } catch (error) {
    if (error.status !== 401) throw error;
    models.token = prompt("token of the server") ?? "";
    return models.list();
  }
}

async function start() {
  let served = await listModels();
  while (served.length === 0) {
    statusLine.textContent = "the models are being loaded \u2026";
    await new Promise((resolve) => { setTimeout(resolve, POLL); });
    served = await models.list();
  }
  models.byName = Object.fromEntries(served.map((model) => [model.id, model]));
  form.model.replaceChildren(...served.map(({ id, task }) => Object.assign(create("option", "", `${id} (${task})`), { value: id })));
  const { model, input } = state.value;
  const first = models.byName[model] ?? served[0];
  state.change({ model: first.id, input: input ?? await exampleOf(first) });
}

form.addEventListener("submit", (event) => event.preventDefault());
form.model.addEventListener("change", changeModel);
form.beam.addEventListener("change", () => {
  const { beam_size: _, ...others } = state.value.options;
  change({ options: form.beam.value ? { ...others, beam_size: +form.beam.value } : others });
});
inputPlace.addEventListener("change", changeInput);
document.addEventListener("change", (/** @type {any} */ { detail }) => detail?.changes && change(detail.changes, detail.isEdit));
document.addEventListener("undo", undo);
document.addEventListener("export", (/** @type {any} */ { detail }) => exportFile(detail));
document.addEventListener("stale", (/** @type {any} */ { detail: { trace, error } }) => {
  if (error.status !== 404) statusLine.textContent = error.message;
  else if (trace !== staleTrace) explain();
  staleTrace = trace;
});
document.addEventListener("keydown", (event) => {
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (event.key === "u" && isPlain && !isTextField(event.target)) undo();
});
start();
