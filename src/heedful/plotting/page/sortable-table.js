// A table whose header cells hold buttons that sort its rows: best first, worst first, as it was.

const NEXT_ORDER = { none: "best", best: "worst", worst: "none" };

/** The number of a cell, negated so that better is lower; missing numbers come last either way. */
function sortKey(row, column, isHigherBetter, order) {
  const { value } = row.cells[column].dataset;
  if (value === undefined || value === "") return Infinity;
  return (isHigherBetter ? -1 : 1) * (order === "best" ? 1 : -1) * Number(value);
}

function compareNames(one, two) {
  return one.cells[0].textContent.localeCompare(two.cells[0].textContent);
}

function sortRows(rows, column, better, order) {
  if (order === "none") return rows;
  if (!better) return [...rows].sort((one, two) => (order === "best" ? 1 : -1) * compareNames(one, two));
  const key = (row) => sortKey(row, column, better === "higher", order);
  // Infinity - Infinity is NaN: rows without a number keep their order.
  return [...rows].sort((one, two) => (key(one) === key(two) ? 0 : key(one) - key(two)));
}

/** Wraps a table that is on the page already; dispatches "sort" with a sentence about the new order. */
export class SortableTable extends HTMLElement {
  connectedCallback() {
    const table = this.querySelector("table");
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
      table.tBodies[0].append(...sortRows(rows, column, better, order));
      const direction = better ? `${order} first` : order === "best" ? "from A to Z" : "from Z to A";
      const detail = order === "none" ? "In the original order." : `Sorted by ${header.textContent}, ${direction}.`;
      this.dispatchEvent(new CustomEvent("sort", { detail }));
    }));
  }
}

customElements.define("sortable-table", SortableTable);
