// A series, its forecast, and the forecast before the last edit: past values are dragged, by pointer or keys.

import { create, createSvg, emitChange, findAll, moveFocus, neighborAt } from "./dom.js";
import { clamp, formatNumber } from "./numbers.js";

const [MIN_WIDTH, MAX_WIDTH, HEIGHT, MARGIN] = [280, 720, 260, 36]; // of the viewBox
const MAX_PAST = 96; // values that are drawn
const KEY_STEP = 0.02; // of the range of values
const KEYS = { ArrowUp: 1, ArrowDown: -1, PageUp: 5, PageDown: -5 };

/** Low, middle and high of each time. @type {(result: any) => number[][]} */
function readQuantiles({ quantiles }) {
  const levels = Object.keys(quantiles).sort((one, two) => +one - +two);
  const [low, middle, high] = [levels[0], levels[levels.length >> 1], levels.at(-1)].map((level) => quantiles[level]);
  return middle.map((value, index) => [low[index], value, high[index]]);
}

/** Changes a value of the input. */
export class ForecastPane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation: { result }, state: { input }, former }) {
    const focused = document.activeElement?.closest("forecast-pane") && /** @type {any} */ (document.activeElement).dataset?.index;
    this.role = "region";
    this.ariaLabel = "forecast";
    this.input = input;
    this.width = clamp(this.clientWidth - MARGIN, MIN_WIDTH, MAX_WIDTH);
    const { time, value } = input;
    const start = time.includes(result.times[0]) ? time.indexOf(result.times[0]) : time.length;
    const first = Math.max(0, start - MAX_PAST);
    const forecasts = /** @type {[string, number[][]][]} */ ([...(former?.result.quantiles ? [["former", readQuantiles(former.result)]] : []), ["now", readQuantiles(result)]]);
    const past = value.map((number, index) => [index, number]).slice(first, start).filter(([, number]) => number !== null);
    this.#scale(first, start + result.times.length - 1, [...past.map(([, number]) => number), ...forecasts.flatMap(([, rows]) => rows.flat())]);
    this.svg = createSvg("svg", "forecast", { viewBox: `0 0 ${this.width} ${HEIGHT}`, role: "group", "aria-label": `${input.id}: past values and forecast` });
    this.svg.append(...this.#createAxis(time, result.times, first, start), ...forecasts.flatMap(([name, rows]) => this.#createFan(name, rows, start, past.at(-1))),
      createSvg("polyline", "past", { points: past.map(([index, number]) => `${this.toX(index)},${this.toY(number)}`).join(" ") }),
      ...past.map(([index, number], order) => this.#createPoint(index, number, order === past.length - 1)));
    this.reading = Object.assign(create("p", "reading", "Drag a past value, or focus it and press the arrow keys."), { ariaLive: "polite" });
    this.replaceChildren(this.svg, this.reading);
    if (focused !== undefined) findAll(`circle[data-index="${focused}"]`, this)[0]?.focus();
  }

  #scale(first, last, values) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = (high - low || 1) * 0.1;
    this.range = [low - room, high + room];
    const perValue = (HEIGHT - MARGIN) / (this.range[1] - this.range[0]);
    this.toX = (index) => MARGIN + ((index - first) / Math.max(last - first, 1)) * (this.width - MARGIN - 8);
    this.toY = (number) => HEIGHT - MARGIN / 2 - (number - this.range[0]) * perValue;
    this.toValue = (y) => this.range[0] + (HEIGHT - MARGIN / 2 - y) / perValue;
  }

  #createAxis(times, later, first, start) {
    const text = (label, x, y, anchor) => Object.assign(createSvg("text", "axis", { x, y, "text-anchor": anchor }), { textContent: label });
    const bounds = this.range.map((number) => text(formatNumber(+number.toPrecision(3)), MARGIN - 6, this.toY(number) + 4, "end"));
    const ends = [[times[first], MARGIN, "start"], [later.at(-1), this.width - 8, "end"]]
      .map(([label, x, anchor]) => text(label, x, HEIGHT - 2, anchor));
    const border = this.toX(start - 0.5);
    return [createSvg("path", "border", { d: `M${border},0 V${HEIGHT - MARGIN / 2}` }), ...bounds, ...ends];
  }

  /** The band between the outer quantiles, and the line of the median, which begins at the last value. */
  #createFan(name, rows, start, last) {
    const points = (level) => rows.map((row, index) => `${this.toX(start + index)},${this.toY(row[level])}`);
    const band = createSvg("polygon", `band ${name}`, { points: [...points(0), ...points(2).reverse()].join(" ") });
    const join = last ? [`${this.toX(last[0])},${this.toY(last[1])}`] : [];
    const line = createSvg("polyline", `median ${name}`, { points: [...join, ...points(1)].join(" ") });
    line.dataset.values = rows.map((row) => row[1]).join(" ");
    return [band, line];
  }

  #createPoint(index, number, isLast) {
    const point = createSvg("circle", "point", {
      cx: this.toX(index), cy: this.toY(number), r: 5, role: "slider", tabindex: isLast ? 0 : -1, "data-index": index,
      "aria-label": this.input.time[index], "aria-valuenow": number, "aria-valuetext": formatNumber(number),
      "aria-valuemin": this.range[0], "aria-valuemax": this.range[1],
    });
    const read = (value) => { this.reading.textContent = `${this.input.time[index]}: ${formatNumber(+value.toPrecision(4))}`; };
    let dragged = /** @type {number | null} */ (null);
    point.addEventListener("focus", () => read(number));
    point.addEventListener("pointerdown", (event) => { dragged = number; point.setPointerCapture(event.pointerId); });
    point.addEventListener("pointermove", (event) => {
      if (dragged === null) return read(number);
      const { top, height } = this.svg.getBoundingClientRect();
      dragged = clamp(this.toValue(((event.clientY - top) / height) * HEIGHT), this.range[0], this.range[1]);
      point.setAttribute("cy", String(this.toY(dragged)));
      read(dragged);
    });
    point.addEventListener("pointerup", () => { if (dragged !== null && dragged !== number) this.#change(index, dragged); dragged = null; });
    point.addEventListener("keydown", (event) => {
      moveFocus(event, neighborAt(findAll(".point", this.svg), point, event.key));
      if (!KEYS[event.key]) return;
      event.preventDefault();
      this.#change(index, number + KEYS[event.key] * KEY_STEP * (this.range[1] - this.range[0]));
    });
    return point;
  }

  #change(index, number) {
    const value = this.input.value.with(index, +number.toPrecision(6));
    emitChange(this, { input: { ...this.input, value } });
  }
}

customElements.define("forecast-pane", ForecastPane);
