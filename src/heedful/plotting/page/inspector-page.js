// The inspector: an input, what the model makes of it, and what changes if attention is edited.
//
// This page keeps the state and sends the requests; it knows no task and no mechanism. Add a view to PANES:
// `accepts(explanation, model)` says whether it has something to show (the answer of /v1/explain, the entry of
// /v1/models), `element` is its class, `place` puts it beside the map, or below. The element has a setter `data`,
// called with each answer ({ explanation, model, state, former, models }), and may have `select(state)`, called when
// only fields of SELECTION were changed. It changes the state, and so the next request, by
// emitChange(this, changes): undo goes back to before it, unless `isEdit` is false.
// INPUTS are the editors of inputs: the first that accepts the model. Each has `value`, what the request has
// as `input`, and dispatches "change" when its user changes it.

import { AlignmentPane } from "./alignment-pane.js";
import { AttentionPane } from "./attention-pane.js";
import { ComparePane } from "./compare-pane.js";
import { ContinuationPane } from "./continuation-pane.js";
import { create, createButton, fill, onPlainKey } from "./dom.js";
import { EditPane } from "./edit-pane.js";
import { download, ExportPane, svgToPng } from "./export-pane.js";
import { ExpertPane } from "./expert-pane.js";
import { ForecastPane } from "./forecast-pane.js";
import { GlimpsePane } from "./glimpse-pane.js";
import { ImageInput } from "./image-input.js";
import { hasImage, ImagePane } from "./image-pane.js";
import { LabelPane, TagPane } from "./label-pane.js";
import "./key-help.js";
import "./map-canvas.js";
import { MoviePane } from "./movie-pane.js";
import "./options-form.js";
import { OutputPane } from "./output-pane.js";
import { ServerModels } from "./source.js";
import { formatFragment, History, parseFragment } from "./state.js";
import { StepPane } from "./step-pane.js";
import { JsonInput, TextInput } from "./text-input.js";
import { TreePane } from "./tree-pane.js";

/** @type {import("./types").Pane[]} */
const PANES = [
  { accepts: ({ result }) => !["tags", "quantiles", "glimpses"].some((name) => name in result), element: OutputPane },
  { accepts: ({ result, layers }) => "num_prompt_tokens" in result && layers.length === 0, element: ContinuationPane },
  { accepts: ({ result: { label, probabilities } }) => typeof label === "string" && Boolean(probabilities), element: LabelPane },
  { accepts: ({ result: { tags } }) => Boolean(tags), element: TagPane },
  { accepts: ({ result: { quantiles } }) => Boolean(quantiles), element: ForecastPane },
  { accepts: ({ result: { glimpses } }) => Boolean(glimpses), element: GlimpsePane },
  { accepts: hasImage, element: ImagePane },
  { accepts: ({ layers, result }) => layers.length > 0 || !result.glimpses, element: AttentionPane },
  { accepts: ({ experts }) => experts?.some(({ tokens }) => tokens.length), element: ExpertPane, place: "more" },
  { accepts: ({ result }) => result.tree?.length > 1, element: TreePane, place: "more" },
  { accepts: () => true, element: ComparePane, place: "more" },
  { accepts: () => true, element: MoviePane, place: "more" },
  { accepts: ({ layers }) => layers.length > 0, element: StepPane, place: "aside" },
  { accepts: ({ layers }) => layers.length > 0, element: AlignmentPane, place: "aside" },
  { accepts: () => true, element: EditPane, place: "aside" },
  { accepts: () => true, element: ExportPane, place: "aside" },
];
/** @type {import("./types").InputEditor[]} */
const INPUTS = [
  { accepts: ({ input }) => input.contentEncoding === "base64", element: ImageInput },
  { accepts: ({ example }) => typeof example === "string", element: TextInput },
  { accepts: () => true, element: JsonInput },
];
const DELAY = 150; // milliseconds between changes that are asked for apart
const POLL = 500; // milliseconds while models are loaded
const SECOND = 1000; // milliseconds
const SELECTION = ["view", "row", "column", "other"];
const INITIAL = { model: "", input: null, options: {}, edits: [], prefix: [], view: 0, row: null, column: null, other: null };

const form = /** @type {any} */ (document.querySelector(".request"));
const [statusLine, notice, inputPlace, settings, results, main, aside, more] = /** @type {any[]} */ (
  [".status", ".notice", ".input", "options-form", ".panes", ".panes > .stack", ".panes > aside", ".panes > .more"]
    .map((selector) => document.querySelector(selector)));
const PLACES = /** @type {[Element, string | undefined][]} */ ([[main, undefined], [aside, "aside"], [more, "more"]]);
const models = new ServerModels();
const state = new History(parseFragment(location.hash, INITIAL), update);
const explanations = new WeakMap(); // of states
const panes = new Map(PANES.map((pane) => [pane, new pane.element()]));
let editor = /** @type {any} */ (null);
let isTyping = false;
let timer = 0;
let changedAt = -DELAY;
let clock = 0; // counts the seconds of a request
let staleTrace = ""; // which the server holds no more

/** @type {(...content: (string | Node)[]) => void} */
function showStatus(...content) {
  clearInterval(clock);
  statusLine.replaceChildren(...content);
  statusLine.classList.remove("error");
  results.classList.remove("old");
}

function showWaiting() {
  showStatus("\u2026");
  const start = Date.now();
  clock = setInterval(() => {
    statusLine.textContent = `\u2026 ${Math.round((Date.now() - start) / SECOND)} s`;
    results.classList.add("old");
  }, SECOND);
}

/** What is shown stays, as an answer to an older request. */
function showError(error, repeat = explain) {
  if (error.name === "AbortError") return; // another request took its place
  showStatus(error.message, ...(error.isTemporary ? [" ", createButton("try again", "send the same request", repeat)] : []));
  statusLine.classList.add("error");
  results.classList.add("old");
}

async function explain() {
  const asked = state.value;
  showWaiting();
  try {
    explanations.set(asked, await models.explain(models.requestOf(asked)));
  } catch (error) {
    showError(error);
    return;
  }
  if (asked !== state.value) return; // it was changed meanwhile, and is asked for again
  showStatus();
  draw();
}

function update(value) {
  history.replaceState(null, "", formatFragment(value));
  document.title = `${value.model} \u00b7 heedful`;
  showRequest(value);
  clearTimeout(timer);
  const isFirst = performance.now() - changedAt > DELAY; // of several, as of keys or a drag
  timer = setTimeout(explain, isFirst ? 0 : DELAY);
  changedAt = performance.now();
}

function showRequest({ model, input, options }) {
  form.model.value = model;
  if (JSON.stringify(settings.value) !== JSON.stringify(options) || settings.model !== model) {
    settings.data = { schema: models.byName[model].options, value: options };
    settings.model = model;
  }
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
  const before = state.latest((value) => explanations.has(value));
  const former = before?.model === model.id ? explanations.get(before) : null;
  const shown = PANES.filter((pane) => pane.accepts(explanation, model));
  for (const [node, place] of PLACES) fill(node, shown.filter((pane) => pane.place === place).map((pane) => panes.get(pane)));
  const [canUndo, canRedo] = [state.former, state.undone].map((values) => values.length > 0);
  for (const pane of shown) panes.get(pane).data = { explanation, model, state: state.value, former, models, canUndo, canRedo };
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

function redo() {
  isTyping = false;
  state.redo();
}

/** Undo takes back all that was typed until the field was left, or something else changed. */
function changeInput() {
  const isNew = JSON.stringify(editor.value) !== JSON.stringify(state.value.input);
  if (!isNew) return;
  state.change({ input: editor.value, prefix: [] }, !isTyping);
  isTyping = true;
}

/** The input stays if another model of the same task reads it. */
async function changeModel() {
  const [former, model] = [state.value.model, form.model.value].map((name) => models.byName[name]);
  const isKept = former.task === model.task && isText(former) && isText(model);
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

async function exportFile(file) {
  showWaiting();
  try {
    download(await renderFile(file.format, file.figure), `attention.${file.format}`);
    showStatus();
  } catch (error) {
    showError(error, () => exportFile(file));
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

async function loadModels() {
  let served = await listModels();
  while (served.length === 0) {
    showStatus("the models are being loaded \u2026");
    await new Promise((resolve) => { setTimeout(resolve, POLL); });
    served = await models.list();
  }
  models.byName = Object.fromEntries(served.map((model) => [model.id, model]));
  form.model.replaceChildren(...served.map(({ id, task }) => Object.assign(create("option", "", `${id} (${task})`), { value: id })));
}

/** Shows what a link holds; of a model that is not served here, the first one and its example. */
async function openLink(linked, isEdit) {
  const isServed = linked.model in models.byName;
  notice.textContent = linked.model && !isServed ? `This link shows the model ${linked.model}, which is not served here.` : "";
  const shown = isServed ? linked : { ...INITIAL, model: Object.keys(models.byName)[0] };
  state.change({ ...shown, input: shown.input ?? await exampleOf(models.byName[shown.model]) }, isEdit);
}

async function start() {
  try {
    await loadModels();
    await openLink(state.value, false);
  } catch (error) {
    showError(error, start);
  }
}

form.addEventListener("submit", (event) => event.preventDefault());
form.model.addEventListener("change", changeModel);
settings.addEventListener("change", () => change({ options: settings.value }));
inputPlace.addEventListener("change", changeInput);
inputPlace.addEventListener("focusout", () => { isTyping = false; });
document.addEventListener("change", (/** @type {any} */ { detail }) => detail?.changes && change(detail.changes, detail.isEdit));
document.addEventListener("undo", undo);
document.addEventListener("redo", redo);
document.addEventListener("export", (/** @type {any} */ { detail }) => exportFile(detail));
document.addEventListener("stale", (/** @type {any} */ { detail: { trace, error } }) => {
  if (error.status !== 404) showError(error);
  else if (trace !== staleTrace) explain();
  staleTrace = trace;
});
addEventListener("hashchange", () => openLink(parseFragment(location.hash, INITIAL), true));
onPlainKey({ u: undo, r: redo });
start();
