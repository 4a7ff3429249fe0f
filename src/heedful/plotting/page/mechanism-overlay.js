// What a mechanism knows beside its weights, drawn on their map: the window and the center of local attention, the
// pointer of monotonic attention, the position that hard attention selected and the distribution it came from,
// what was covered before, and how much each word copies or uses. A mechanism shows the fields that it has.

import { create, createSvg } from "./dom.js";
import { percentage } from "./numbers.js";

const REPEATED = 0.5; // of a weight: attended to again, although it was covered before
const LEGENDS = {
  half_width: "window",
  centers: "center",
  expected_position: "expected position",
  selected_position: "selected",
  probabilities: "probability",
  coverage: "attended to so far",
  repeated: "attended to again",
};

/** How much each row copies, or uses of its context, in words. @type {(overlays: import("./types").Overlays, row: number) => string} */
export function describeShares({ copy_probs, gates }, row) {
  const copied = copy_probs && Math.round(100 * copy_probs[row]) ? [`${percentage(copy_probs[row])} copied`] : [];
  return [...copied, ...(gates ? [`uses ${percentage(gates[row])}`] : [])].join(", ");
}

/** A cell behind a row: how it splits between copying and generating, or what it uses. @type {(overlays: import("./types").Overlays, row: number, text: string) => HTMLElement} */
export function createShares({ copy_probs, gates }, row, text) {
  const bars = [copy_probs, gates].filter(Boolean).map((shares) => {
    const bar = create("span", "share");
    bar.style.setProperty("--share", String(shares[row]));
    bar.dataset.share = String(shares[row]);
    return bar;
  });
  return create("td", "copied", ...bars, text);
}

/** What the map means beyond its weights. @type {(overlays: import("./types").Overlays) => HTMLElement[]} */
function createLegend(overlays) {
  const names = Object.keys(LEGENDS).filter((name) => overlays[name === "repeated" ? "coverage" : name]);
  const keys = names.map((name) => create("span", "overlay-key", create("span", `swatch ${name}`), LEGENDS[name]));
  return keys.length ? [create("p", "caption", ...keys)] : [];
}

/** Shapes on a table of weights, between whose cells positions are interpolated, and what stands below it. */
export class MechanismOverlay extends HTMLElement {
  /** @param {{ overlays: import("./types").Overlays, weights: ArrayLike<number>[], table: HTMLTableElement }} data */
  set data({ overlays, weights, table }) {
    this.overlays = overlays;
    this.weights = weights;
    this.table = table;
    this.cells = Array.from(table.tBodies[0].rows, (row) => Array.from(row.querySelectorAll(".cell")));
    this.svg = createSvg("svg", "overlay", { "aria-hidden": "true" });
    overlays.probabilities?.forEach((row, index) => row.forEach((probability, column) => {
      const cell = /** @type {HTMLElement} */ (this.cells[index][column]);
      cell.classList.add("drawn");
      cell.style.setProperty("--probability", String(probability));
      cell.title += `, probability ${probability.toFixed(2)}`;
    }));
    this.bars = overlays.coverage ? Array.from(weights[0], () => create("td", "covered")) : [];
    if (overlays.coverage) {
      const header = Object.assign(create("th", "", "coverage"), { scope: "row" });
      table.append(create("tfoot", "", create("tr", "", header, ...this.bars)));
    }
    this.replaceChildren(table, this.svg, ...createLegend(overlays));
    this.choose(null);
  }

  /** Draws the shapes where the cells stand now. */
  place() {
    const origin = this.getBoundingClientRect();
    const boxes = this.cells[0].map((cell) => cell.getBoundingClientRect());
    const pitch = boxes.length > 1 ? (boxes.at(-1).left - boxes[0].left) / (boxes.length - 1) : boxes[0].width;
    const rows = this.cells.map(([cell]) => cell.getBoundingClientRect()).map(({ top, height }) => [top - origin.top, height]);
    const toX = (position) => {
      const nearest = Math.min(Math.max(Math.round(position), 0), boxes.length - 1);
      return boxes[nearest].left - origin.left + boxes[nearest].width / 2 + (position - nearest) * pitch;
    };
    const { centers, half_width: halves, expected_position: pointers, selected_position: selected } = this.overlays;
    const last = boxes.length - 1;
    const bands = centers && halves ? centers.map((center, row) => {
      const [low, high] = [Math.max(center - halves[row], 0), Math.min(center + halves[row], last)];
      const [left, right] = [toX(Math.ceil(low)) - pitch / 2, toX(Math.floor(high)) + pitch / 2];
      const [y, height] = rows[row];
      return createSvg("rect", "half_width", { x: left, y: y - 1, width: Math.max(right - left, 0), height: height + 2, rx: 5 });
    }) : [];
    // A pointer moves on; a center is where its row has it. Past the end, both stand at the edge.
    const lines = Object.entries({ centers, expected_position: pointers }).filter(([, values]) => values).map(([name, values]) =>
      createSvg("path", name, {
        d: values.map((position, row) => {
          const [[y, height], x] = [rows[row], toX(Math.min(position, last + 0.5))];
          return `${row && name !== "centers" ? "L" : "M"}${x},${y + 2} V${y + height - 2}`;
        }).join(" "),
      }));
    const rings = (selected ?? []).map((column, row) => [column, row]).filter(([column]) => column >= 0).map(([column, row]) => {
      const [y, height] = rows[row];
      return createSvg("ellipse", "selected_position", { cx: toX(column), cy: y + height / 2, rx: pitch * 0.4, ry: height * 0.42 });
    });
    this.svg.replaceChildren(...bands, ...lines, ...rings);
  }

  /** Shows what was covered before a row, or by all of them. @param {number | null} row */
  choose(row) {
    const { coverage } = this.overlays;
    if (!coverage) return;
    const last = row ?? coverage.length - 1;
    this.bars.forEach((bar, column) => {
      const covered = coverage[last][column] + (row === null ? this.weights[last][column] : 0);
      const isRepeated = coverage.slice(0, last + 1).some((values, index) =>
        Math.min(values[column], this.weights[index][column]) > REPEATED);
      bar.style.setProperty("--covered", String(Math.min(covered, 1)));
      bar.classList.toggle("repeated", isRepeated);
      bar.textContent = covered.toFixed(1);
      bar.title = isRepeated ? `${covered.toFixed(2)}, attended to again` : covered.toFixed(2);
    });
  }
}

customElements.define("mechanism-overlay", MechanismOverlay);
