// The report of a run. Everything shown comes from the run's files: it enters the page as text, never as
// markup.

import { create, findAll, readData } from "./dom.js";
import { followSwitches } from "./line-chart.js";
import { formatValue } from "./numbers.js";
import { createAttention, createSample } from "./logged-sample.js";
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
