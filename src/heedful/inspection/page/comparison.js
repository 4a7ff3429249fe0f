"use strict";
// Sorts the table, chooses which learning curves are shown, and points a system out everywhere.
//
// Everything that is shown is on the page already. Names of systems are compared as text, and
// never enter a selector or markup.

// --- sorting -------------------------------------------------------------------------------

const NEXT = { none: "best", best: "worst", worst: "none" };

// The number of a cell, turned so that better is lower; what is not known comes last either way.
function keyOf(row, column, isHigherBetter, order) {
  const { value } = row.cells[column].dataset;
  if (value === undefined || value === "") return Infinity;
  return (isHigherBetter ? -1 : 1) * (order === "best" ? 1 : -1) * Number(value);
}

function compareNames(one, two) {
  return one.cells[0].textContent.localeCompare(two.cells[0].textContent);
}

function sorted(rows, column, better, order) {
  if (order === "none") return rows;
  if (!better) return [...rows].sort((one, two) => (order === "best" ? 1 : -1) * compareNames(one, two));
  const key = (row) => keyOf(row, column, better === "higher", order);
  // Infinity less itself is no number: rows without one keep their order.
  return [...rows].sort((one, two) => (key(one) === key(two) ? 0 : key(one) - key(two)));
}

function makeSortable(table, status) {
  const rows = [...table.tBodies[0].rows]; // in the order they were written
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => header.querySelector("button").addEventListener("click", () => {
    const order = NEXT[header.dataset.order ?? "none"];
    const { better } = header.dataset;
    for (const each of headers) {
      delete each.dataset.order;
      each.ariaSort = "none";
    }
    header.dataset.order = order;
    const isRising = (order === "best") === (better !== "higher");
    if (order !== "none") header.ariaSort = isRising ? "ascending" : "descending";
    table.tBodies[0].append(...sorted(rows, column, better, order));
    const way = better ? `the ${order} first` : order === "best" ? "from A to Z" : "from Z to A";
    status.textContent = order === "none"
      ? "In the order given."
      : `Sorted by ${header.textContent}, ${way}.`;
  }));
}

document.querySelectorAll("table.sortable").forEach((table) =>
  makeSortable(table, document.querySelector(".sorted")));

// --- learning curves -----------------------------------------------------------------------

function chosen(name) {
  return document.querySelector(`input[name="${name}"]:checked`)?.value;
}

function showChosen() {
  document.querySelectorAll(".curves").forEach((curves) => {
    const { score, axis } = curves.dataset;
    curves.hidden = score !== chosen("score") || axis !== chosen("axis");
  });
}

document.querySelectorAll(".switch input").forEach((radio) =>
  radio.addEventListener("change", showChosen));
showChosen();

// --- pointing a system out -----------------------------------------------------------------

let held = null; // the name that a click holds on to

function pointOut(name) {
  document.body.classList.toggle("pointing", name !== null);
  document.querySelectorAll("g[data-name]").forEach((group) =>
    group.classList.toggle("chosen", group.dataset.name === name));
  document.querySelectorAll("tr").forEach((row) => {
    const button = row.querySelector("button.system");
    row.classList.toggle("chosen", button !== null && button.dataset.name === name);
  });
}

function hold(name) {
  held = name;
  document.querySelectorAll("button.system").forEach((button) => {
    button.ariaPressed = String(button.dataset.name === name);
  });
  pointOut(name);
}

const nameOf = (node) => node.closest("[data-name]")?.dataset.name ?? null;

document.addEventListener("pointerover", ({ target }) => pointOut(nameOf(target) ?? held));
document.addEventListener("click", ({ target }) => {
  const name = nameOf(target);
  if (name !== null) hold(name === held ? null : name);
});
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape") hold(null);
});
