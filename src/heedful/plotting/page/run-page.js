// The report of a run. Everything shown comes from the run's files: it enters the page as text, never as
// markup.

import { AttentionView } from "./attention-view.js";
import { create, findAll, readData } from "./dom.js";
import { ImageAttention } from "./image-attention.js";
import { followSwitches } from "./line-chart.js";
import { formatValue } from "./numbers.js";
import "./settings-tree.js";
import "./step-player.js";
import { createCard } from "./view-chooser.js";

const find = (selector) => findAll(selector)[0];

function showNothing(section, text) {
  find(`#${section}`).replaceChildren(create("h2", "", find(`#${section} h2`).textContent), create("p", "nothing", text));
}

// ----- curves -----

function describePosition([step, seconds, flops]) {
  const parts = [`step ${formatValue(step)}`];
  if (seconds !== null) parts.push(formatValue(seconds, "seconds"));
  if (flops !== null) parts.push(`${formatValue(flops)} FLOPs`);
  return parts.join(" \u00b7 ");
}

function linkCharts(data) {
  const charts = findAll("line-chart");
  if (!charts.length) return;
  const readOut = find("#read-out");
  const hint = readOut.textContent;
  const pointAt = (position) => {
    charts.forEach((chart) => { chart.position = position; });
    readOut.textContent = position ? describePosition(position) : hint;
  };
  charts.forEach((chart, index) => { chart.data = data[index]; });
  document.addEventListener("point", (/** @type {any} */ { detail }) => pointAt(detail));
  findAll(".switch input").forEach((radio) => radio.addEventListener("change", () => pointAt(charts[0].at)));
  pointAt(null);
}

// ----- samples -----

/** The words of a text, each with whether it is in the longest common subsequence. */
function compareWords(text, reference) {
  const [words, other] = [text, reference].map((line) => line.split(/(?<=\s)/));
  if (words.length * other.length > 250000) return words.map((word) => [word, true]);
  const bare = (word) => word.trim();
  const common = Array.from({ length: words.length + 1 }, () => new Array(other.length + 1).fill(0));
  for (let i = words.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      common[i][j] = bare(words[i]) === bare(other[j])
        ? common[i + 1][j + 1] + 1
        : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  let j = 0;
  return words.map((word, i) => {
    while (j < other.length && bare(word) !== bare(other[j]) && common[i][j + 1] >= common[i + 1][j]) j += 1;
    const isCommon = j < other.length && bare(word) === bare(other[j]);
    if (isCommon) j += 1;
    return [word, isCommon];
  });
}

/** Tokens as a line of text: characters are joined, anything longer is separated by spaces. */
function joinTokens(tokens) {
  const areLetters = tokens.every((token) => [...token].length === 1);
  return areLetters ? tokens.join("").replaceAll("\u2423", " ") : tokens.join(" ");
}

function createSample({ text, reference, source }, isChosen) {
  const output = create("i", "output", ...compareWords(text, reference).map(([word, isCommon]) =>
    create("span", isCommon || !word.trim() ? "" : "other", word)));
  const rows = [
    ["source", create("i", "", joinTokens(source))],
    ["reference", create("i", "", reference)],
    [text === reference ? "output \u2713" : "output", output],
  ].map(([name, line]) => create("span", "", create("b", "", name), Object.assign(line, { dir: "auto" })));
  return Object.assign(create("button", "card", ...rows), { type: "button", ariaPressed: String(isChosen) });
}

/** The attention of a sample: over its source, or over the cells of an image. */
function createAttention({ source, output, weights, notes, grid }) {
  if (!grid) return Object.assign(new AttentionView(), { data: { source, target: output, weights, notes } });
  const [rows, columns] = grid;
  const grids = weights.map((cells) =>
    Array.from({ length: rows }, (_, row) => cells.slice(row * columns, (row + 1) * columns)));
  return Object.assign(new ImageAttention(), { data: { image: null, size: grid, words: output, gates: null, weights: grids } });
}

function showAttention(item) {
  const holder = find("#samples .attention");
  holder.replaceChildren();
  if (!item?.weights) {
    if (item) holder.append(create("p", "nothing", "No attention weights over a source."));
    return;
  }
  holder.append(createCard({ id: "", title: "", text: "", views: [{ caption: "", weights: [] }] }, () => createAttention(item)));
  if (item.is_cut) {
    holder.append(create("p", "nothing", `Only the first ${item.output.length} output `
      + `and ${item.source.length} source tokens are drawn.`));
  }
}

function showSamples({ validations, total }) {
  if (!validations.length) {
    showNothing("samples", "Nothing yet: no samples were logged.");
    return;
  }
  let chosen = 0;
  const player = find("#samples step-player");
  const cards = find("#samples .cards");
  const draw = () => {
    const { items } = validations[player.step];
    cards.replaceChildren(...items.map((item, index) => createSample(item, index === chosen)));
    showAttention(items[chosen] ?? items[0]);
  };
  cards.addEventListener("click", ({ target }) => {
    const index = [...cards.children].indexOf(target.closest(".card"));
    if (index < 0) return;
    chosen = index;
    draw();
    cards.children[index].focus();
  });
  player.data = {
    name: "Validation", label: "Validation", max: validations.length - 1, step: validations.length - 1,
    describe: (step) => `step ${formatValue(validations[step].step)} \u00b7 ${step + 1} of ${validations.length}`,
  };
  player.addEventListener("step", draw);
  if (total > validations.length) {
    find("#samples .note").textContent =
      `${validations.length} of ${total} validations are shown, evenly spaced.`;
  }
  draw();
}

// ----- configuration -----

function showConfiguration(text) {
  if (!text.trim()) {
    showNothing("configuration", "Nothing yet.");
    return;
  }
  const tree = find("settings-tree");
  tree.data = text;
  find("#find").addEventListener("input", ({ target }) => {
    const count = tree.search(target.value);
    find("#matches").textContent = target.value.trim() ? `${count} ${count === 1 ? "line" : "lines"}` : "";
  });
}

const { samples, configuration } = readData("run");
followSwitches();
linkCharts(readData("charts"));
showSamples(samples);
showConfiguration(configuration);
