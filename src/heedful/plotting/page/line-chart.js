// Charts that are drawn already, each over every axis: this shows the chosen one, and reads its values
// at the pointer. The scales are attributes of each SVG; the numbers are columns of step, seconds,
// FLOPs and value.

import { createSvg, findAll } from "./dom.js";
import { clamp, formatValue, nearestIndex } from "./numbers.js";

const VALUE = 3; // the column after those of the axes

/** Shows the curves of the checked radio buttons, now and on every change. */
export function followSwitches() {
  const chosen = (name) => findAll(`input[name="${name}"]:checked`)[0]?.value;
  const show = () => findAll(".curves").forEach((curves) => {
    const { score, axis } = curves.dataset;
    curves.hidden = score !== chosen("score") || axis !== chosen("axis");
  });
  findAll(".switch input").forEach((radio) => radio.addEventListener("change", show));
  show();
}

function readScale(text) {
  const [low, high, start, end, type] = text.split(" ");
  const bend = type === "log" ? Math.log10 : (value) => +value;
  const slope = (end - start) / (bend(high) - bend(low));
  return {
    toPixel: (value) => +start + (bend(value) - bend(low)) * slope,
    toValue: (pixel) => bend(low) + (pixel - start) / slope, // of linear scales
    start: +start,
    end: +end,
  };
}

/** Dispatches "point" with the position that its user reads: [step, seconds, FLOPs], or null. */
export class LineChart extends HTMLElement {
  /** @param {import("./types").ChartData} chart */
  set data(chart) {
    this.chart = chart;
    this.columns = chart.curves.reduce((longest, { columns }) =>
      (columns[0].length > longest[0].length ? columns : longest), chart.curves[0].columns);
    findAll(".curves", this).forEach((node) => {
      node.addEventListener("pointermove", (event) => this.#onMove(event));
      node.addEventListener("pointerdown", (event) => this.#onMove(event));
      node.addEventListener("pointerleave", () => this.#point(null));
    });
    this.firstElementChild.addEventListener("keydown", (event) => this.#onKey(event));
    this.firstElementChild.addEventListener("blur", () => this.#point(null));
  }

  // Of a wide chart there is a narrow one, too; neither may be drawn while the page is hidden.
  get #visible() {
    const shown = findAll(".curves:not([hidden])", this);
    return shown.find((node) => node.offsetParent !== null) ?? shown[0];
  }

  get #axis() {
    return +this.#visible.dataset.column;
  }

  /** @param {number[] | null} position */
  set position(position) {
    this.at = position;
    const svg = this.#visible.querySelector("svg");
    const [x, y] = [svg.dataset.xScale, svg.dataset.yScale].map(readScale);
    const axis = this.#axis;
    svg.querySelector(".pointer")?.remove();
    const pointer = createSvg("g", "pointer");
    svg.append(pointer);
    if (position) {
      pointer.append(createSvg("path", "cursor", { d: `M${x.toPixel(position[axis])},${y.start} V${y.end}` }));
    }
    this.chart.curves.forEach(({ type, columns }, index) => {
      const at = position ? nearestIndex(columns[axis], position[axis]) : columns[0].length - 1;
      const output = this.querySelectorAll(".key output")[index];
      output.textContent = formatValue(columns[VALUE][at], this.chart.unit);
      if (!position || !columns[0].length || type === "raw") return;
      const color = { smoothed: 0, validation: 1 }[type] ?? index % 6;
      const [cx, cy] = [x.toPixel(columns[axis][at]), y.toPixel(columns[VALUE][at])];
      pointer.append(createSvg("circle", `marker line-${color}`, { cx, cy, r: 4 }));
    });
  }

  #point(detail) {
    this.dispatchEvent(new CustomEvent("point", { detail, bubbles: true }));
  }

  #pointNear(value) {
    const index = nearestIndex(this.columns[this.#axis], value);
    this.#point(this.columns.slice(0, VALUE).map((numbers) => numbers[index]));
  }

  #onMove({ clientX }) {
    const svg = this.#visible.querySelector("svg");
    const { left, width } = svg.getBoundingClientRect();
    const pixel = ((clientX - left) / width) * svg.viewBox.baseVal.width;
    this.#pointNear(readScale(svg.dataset.xScale).toValue(pixel));
  }

  #onKey(event) {
    const numbers = this.columns[this.#axis];
    const strides = { ArrowLeft: -1, ArrowRight: 1, PageUp: 20, PageDown: -20 };
    const ends = { Home: 0, End: numbers.length - 1 };
    if (event.key === "Escape") this.#point(null);
    if (!(event.key in strides) && !(event.key in ends)) return;
    event.preventDefault();
    const here = this.at ? nearestIndex(numbers, this.at[this.#axis]) : numbers.length - 1;
    const next = ends[event.key] ?? here + (this.at ? strides[event.key] : 0);
    this.#pointNear(numbers[clamp(next, 0, numbers.length - 1)]);
  }
}

customElements.define("line-chart", LineChart);
