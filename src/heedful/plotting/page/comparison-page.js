// The report of a comparison: sorts its table, and highlights a system everywhere. Names of systems are
// compared as text, and never enter a selector or markup.

import { findAll, followPointer } from "./dom.js";
import { followSwitches } from "./line-chart.js";
import "./sortable-table.js";

let kept = null; // the name chosen by a click

function highlight(name) {
  document.body.classList.toggle("highlighting", name !== null);
  findAll("g[data-name]").forEach((group) => group.classList.toggle("chosen", group.dataset.name === name));
  findAll("tr").forEach((row) => {
    const button = row.querySelector("button.system");
    row.classList.toggle("chosen", button !== null && button.dataset.name === name);
  });
}

function keepSystem(name) {
  kept = name;
  findAll("button.system").forEach((button) => { button.ariaPressed = String(button.dataset.name === name); });
  highlight(name);
}

followPointer(document, ({ target }) => target.closest?.("[data-name]")?.dataset.name ?? null, {
  show: (name) => highlight(name ?? kept),
  keep: (name) => name !== null && keepSystem(name === kept ? null : name),
});
document.addEventListener("keydown", ({ key }) => key === "Escape" && keepSystem(null));
findAll("sortable-table").forEach((table) => table.addEventListener("sort", ({ detail }) => {
  document.querySelector(".sorted").textContent = detail;
}));
followSwitches();
