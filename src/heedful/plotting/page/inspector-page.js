// The inspector: a text, the attention of the model that reads it, and what changes if it is edited.

import { AttentionView } from "./attention-view.js";
import { create, findAll } from "./dom.js";
import { EditList } from "./edit-list.js";
import { percentage } from "./numbers.js";
import { ServerModels } from "./source.js";
import { formatFragment, History, parseFragment } from "./state.js";
import { TopTokens } from "./top-tokens.js";
import { ViewChooser } from "./view-chooser.js";

const DELAY = 150; // milliseconds after the last key
const MAX_SHOWN = 300; // characters of a result that is no text
const POLL = 500; // milliseconds while models are loaded
const INITIAL = { model: "", text: "", beam: "", edits: [], prefix: [], view: 0, row: null, column: null };

const form = /** @type {any} */ (document.querySelector(".request"));
const [statusLine, output, maps, stepPane, editPane] =
  [".status", "main > .output", ".maps", ".step", ".edits"].map((selector) => document.querySelector(selector));
const models = new ServerModels();
let explanation = /** @type {any} */ (null);
let views = /** @type {any[]} */ ([]);
let timer = 0;

const state = new History(parseFragment(location.hash, INITIAL), update);

/** The maps of all layers and heads; those that show how the output came about come first. */
function listViews({ layers, checks }) {
  return layers
    .flatMap((layer, index) => {
      const alike = layers.filter(({ type }) => type === layer.type);
      const number = alike.length > 1 ? [`layer ${alike.indexOf(layer) + 1}`] : [];
      return layer.weights.map((weights, head) => {
        const isSingle = layer.weights.length === 1;
        const caption = [layer.type, ...number, ...(isSingle ? [] : [`head ${head + 1}`])].join(", ");
        return { caption, layer, weights, checks: checks[index], head: isSingle ? undefined : head };
      });
    })
    .sort((one, two) => Number(two.layer.is_default) - Number(one.layer.is_default));
}

/** Models of series or images read JSON values. */
function readsText(model) {
  return typeof models.byName[model]?.example === "string";
}

function exampleOf({ example }) {
  return typeof example === "string" ? example : JSON.stringify(example ?? {});
}

function requestInput({ model, text, prefix }) {
  if (!readsText(model)) return JSON.parse(text);
  return prefix.length ? { text, prefix_tokens: prefix } : text;
}

function describeResult({ text, label, ...others }) {
  return text ?? label ?? JSON.stringify(others).slice(0, MAX_SHOWN);
}

async function explain() {
  const { model, beam, edits } = state.value;
  const hasBeam = "beam_size" in (models.byName[model]?.options.properties ?? {});
  const options = hasBeam && beam ? { beam_size: +beam } : {};
  statusLine.textContent = "\u2026";
  try {
    explanation = await models.explain({ model, input: requestInput(state.value), options, edits });
  } catch (error) {
    if (error.name === "AbortError") return;
    statusLine.textContent = error.message;
    return;
  }
  statusLine.textContent = "";
  views = listViews(explanation);
  draw();
}

function update(value) {
  history.replaceState(null, "", formatFragment(value));
  form.text.value = value.text;
  form.beam.value = value.beam;
  form.model.value = value.model;
  clearTimeout(timer);
  timer = setTimeout(explain, DELAY);
}

function draw() {
  output.textContent = describeResult(explanation.result);
  const figure = create("div", "figure");
  maps.replaceChildren(...(views.length > 1 ? [createChooser(figure)] : []), figure);
  drawView(figure);
  drawEdits();
}

function createChooser(figure) {
  const chooser = Object.assign(new ViewChooser(), { data: views });
  chooser.choose(views[state.value.view] ? state.value.view : 0);
  chooser.addEventListener("choose", (/** @type {any} */ { detail }) => { state.value.view = detail; drawView(figure); });
  return chooser;
}

function drawView(figure) {
  const { row, column } = state.value;
  const hasFocus = figure.contains(document.activeElement) || document.activeElement === document.body;
  const view = views[state.value.view] ?? views[0];
  if (!view) {
    stepPane.replaceChildren();
    return figure.replaceChildren(create("p", "empty", "no attention to show"));
  }
  const { queries, keys } = view.layer;
  const shown = new AttentionView();
  shown.data = { source: keys, target: queries, weights: view.weights, note: view.caption };
  shown.addEventListener("keep", (/** @type {any} */ { detail: { row, column } }) => {
    if (row === null && column === null) return; // the focus may have moved to a button
    Object.assign(state.value, { row, column });
    drawStep(view);
  });
  shown.addEventListener("keydown", (event) => {
    const edit = { f: force, z: remove }[event.key];
    if (edit) edit(view);
    else if (event.key === "u") state.undo();
    else return;
    event.preventDefault();
  });
  figure.replaceChildren(shown);
  const isInside = (index, tokens) => index === null || index < tokens.length;
  if (isInside(row, queries) && isInside(column, keys)) shown.keep({ row, column });
  drawStep(view);
  if (hasFocus) findAll(`.cell[data-row="${row}"][data-column="${column}"]`, shown)[0]?.focus();
}

function addEdit(edit) {
  state.change({ edits: [...state.value.edits, edit] }, true);
}

function place({ layer, head }) {
  return { ...(layer.path && { layer: layer.path }), ...(head !== undefined && { head }) };
}

function force(view) {
  const { row, column } = state.value;
  if (row !== null && column !== null) addEdit({ ...place(view), step: view.layer.first_step + row, set: { [column]: 1 } });
}

function remove() {
  const { column } = state.value;
  if (column !== null) addEdit({ layer: "source", scale: { [column]: 0 } });
}

function createButton(text, title, action, isEnabled) {
  const button = Object.assign(create("button", "", text), { type: "button", title, disabled: !isEnabled });
  button.addEventListener("click", action);
  return button;
}

function drawStep(view) {
  const { row, column } = state.value;
  const hasRow = row !== null && row < view.layer.queries.length;
  const title = create("h2", "", hasRow ? `Step ${row + 1}: ${view.layer.queries[row]}` : "Choose a word or a cell");
  const actions = create("p", "actions",
    createButton("force (f)", "all weight of this step on this word", () => force(view), hasRow && column !== null),
    createButton("remove word (z)", "no layer attends to this word", () => remove(), column !== null));
  stepPane.replaceChildren(title, actions);
  const top = hasRow && explanation.top[row];
  if (top) {
    const tokens = Object.assign(new TopTokens(), { data: top });
    tokens.addEventListener("token", (/** @type {any} */ { detail }) =>
      state.change({ prefix: [...explanation.token_ids.slice(0, row), detail] }, true));
    stepPane.append(tokens);
  }
  if (hasRow) stepPane.append(create("p", "checks", ...describeChecks(view, row)));
}

function describeChecks({ checks, head = 0 }, row) {
  if (!checks) return [];
  const support = checks.effective_support[head]?.[row];
  const effects = checks.effects ?? {};
  const lines = [
    ...(support === undefined ? [] : [`spread over ${support.toFixed(1)} words`]),
    ...Object.entries(effects).map(([name, values]) => `${name.replace("_", " ")}: ${values[row].toFixed(3)} nats`),
    ...(checks.max_hidden_weight > 0 ? [`hidden words have ${percentage(checks.max_hidden_weight)}`] : []),
  ];
  return [lines.join(" \u00b7 ")];
}

function drawEdits() {
  const { edits, prefix } = state.value;
  const list = Object.assign(new EditList(), { data: edits });
  list.addEventListener("remove", (/** @type {any} */ { detail }) =>
    state.change({ edits: edits.filter((_, index) => index !== detail) }, true));
  const kept = prefix.length ? [create("p", "", `the first ${prefix.length} tokens are kept`)] : [];
  editPane.replaceChildren(create("h2", "", "Edits"), list, ...kept, create("p", "actions",
    createButton("undo (u)", "back to before the last edit", () => state.undo(), state.former.length > 0),
    createButton("reset", "without edits", () => state.change({ edits: [], prefix: [] }, true), edits.length || prefix.length)));
}

/** The text stays if both models read texts. */
function nextText(model) {
  const isKept = readsText(model) && readsText(state.value.model);
  return isKept ? state.value.text : exampleOf(models.byName[model]);
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
  const { model, text } = state.value;
  const first = models.byName[model] ?? served[0];
  state.change({ model: first.id, text: text || exampleOf(first) });
}

form.addEventListener("submit", (event) => event.preventDefault());
form.text.addEventListener("input", () => state.change({ text: form.text.value, prefix: [] }));
form.beam.addEventListener("change", () => state.change({ beam: form.beam.value }));
form.model.addEventListener("change", () => state.change({ ...INITIAL, model: form.model.value, text: nextText(form.model.value) }));
start();
