"use strict";
// Sorts the table and highlights a system everywhere.
//
// All content is on the page already. Names of systems are compared as text, and never enter a
// selector or markup.

// ----- sorting -----

const NEXT_ORDER = { none: "best", best: "worst", worst: "none" };

// The number of a cell, negated so that better is lower; missing numbers come last either way.
function sortKey(row, column, isHigherBetter, order) {
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
  const key = (row) => sortKey(row, column, better === "higher", order);
  // Infinity - Infinity is NaN: rows without a number keep their order.
  return [...rows].sort((one, two) => (key(one) === key(two) ? 0 : key(one) - key(two)));
}

function makeSortable(table, status) {
  const rows = [...table.tBodies[0].rows]; // in the original order
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => header.querySelector("button").addEventListener("click", () => {
    const order = NEXT_ORDER[header.dataset.order ?? "none"];
    const { better } = header.dataset;
    for (const other of headers) {
      delete other.dataset.order;
      other.ariaSort = "none";
    }
    header.dataset.order = order;
    const isRising = (order === "best") === (better !== "higher");
    if (order !== "none") header.ariaSort = isRising ? "ascending" : "descending";
    table.tBodies[0].append(...sorted(rows, column, better, order));
    const direction = better ? `${order} first` : order === "best" ? "from A to Z" : "from Z to A";
    status.textContent = order === "none"
      ? "In the original order."
      : `Sorted by ${header.textContent}, ${direction}.`;
  }));
}

document.querySelectorAll("table.sortable").forEach((table) =>
  makeSortable(table, document.querySelector(".sorted")));

// ----- highlighting a system -----

let kept = null; // the name chosen by a click

function highlight(name) {
  document.body.classList.toggle("highlighting", name !== null);
  document.querySelectorAll("g[data-name]").forEach((group) =>
    group.classList.toggle("chosen", group.dataset.name === name));
  document.querySelectorAll("tr").forEach((row) => {
    const button = row.querySelector("button.system");
    row.classList.toggle("chosen", button !== null && button.dataset.name === name);
  });
}

function keep(name) {
  kept = name;
  document.querySelectorAll("button.system").forEach((button) => {
    button.ariaPressed = String(button.dataset.name === name);
  });
  highlight(name);
}

const nameOf = (node) => node.closest("[data-name]")?.dataset.name ?? null;

document.addEventListener("pointerover", ({ target }) => highlight(nameOf(target) ?? kept));
document.addEventListener("click", ({ target }) => {
  const name = nameOf(target);
  if (name !== null) keep(name === kept ? null : name);
});
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape") keep(null);
});
