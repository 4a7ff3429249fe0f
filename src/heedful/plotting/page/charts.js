
// ----- charts ----------------------------------------------------------------------------------
// The charts of a page are drawn already, each over every axis. This shows the chosen one, and the
// values at the pointer, for which the scales are attributes of each SVG and the numbers are JSON:
// columns of step, seconds, FLOPs and value.

function chosenRadio(name) {
  return document.querySelector(`input[name="${name}"]:checked`)?.value;
}

function showChosenCurves() {
  document.querySelectorAll(".curves").forEach((curves) => {
    const { score, axis } = curves.dataset;
    curves.hidden = score !== chosenRadio("score") || axis !== chosenRadio("axis");
  });
}

document.querySelectorAll(".switch input").forEach((radio) =>
  radio.addEventListener("change", showChosenCurves));
showChosenCurves();

// ----- numbers -----

const SUPERSCRIPTS = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";

function formatNumber(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-3)) {
    const [mantissa, exponent] = value.toExponential(3).split("e");
    const power = [...String(+exponent)].map((digit) => SUPERSCRIPTS[digit] ?? "\u207b").join("");
    return `${+mantissa === 1 ? "" : `${+mantissa}\u00b7`}10${power}`;
  }
  const rounded = Number.isInteger(value) ? value : +value.toPrecision(4);
  return rounded.toLocaleString("en", { maximumFractionDigits: 10 });
}

function formatValue(value, unit) {
  if (value === null || value === undefined) return "\u2013";
  if (unit === "fraction") return `${formatNumber(100 * value)} %`;
  if (unit === "bytes") {
    const [size, name] = value < 2 ** 30 ? [2 ** 20, "MiB"] : [2 ** 30, "GiB"];
    return `${+(value / size).toPrecision(4)} ${name}`;
  }
  if (unit !== "seconds") return formatNumber(value);
  if (value < 60) return `${+value.toPrecision(4)} s`;
  const [total, name] = value < 3600 ? [Math.round(value), "min"] : [Math.round(value / 60), "h"];
  return `${Math.floor(total / 60)}:${String(total % 60).padStart(2, "0")} ${name}`;
}

// ----- values at the pointer -----

const VALUE = 3; // the column after those of the axes

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

// The index of the value nearest to a position; the values are increasing.
function nearestIndex(values, position) {
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < position) low = middle + 1;
    else high = middle;
  }
  return low > 0 && position - values[low - 1] < values[low] - position ? low - 1 : low;
}

// The position of the pointer is [step, seconds, FLOPs], or null.
function readCharts(charts, readOut) {
  const hint = readOut.textContent;
  let position = null;
  const views = charts.map((chart) => {
    const figure = [...document.querySelectorAll("figure.chart")]
      .find((node) => node.dataset.chart === chart.id);
    const longest = chart.curves.reduce((one, two) =>
      (two.columns[0].length > one.columns[0].length ? two : one));
    return { chart, figure, columns: longest.columns };
  });
  // Of a wide chart there is a narrow one, too; neither may be drawn while the page is hidden.
  const visible = (view) => {
    const shown = [...view.figure.querySelectorAll(".curves:not([hidden])")];
    return shown.find((node) => node.offsetParent !== null) ?? shown[0];
  };
  const column = (view) => +visible(view).dataset.column;

  function show(view) {
    const svg = visible(view).querySelector("svg");
    const [x, y] = [svg.dataset.xScale, svg.dataset.yScale].map(readScale);
    const axis = column(view);
    svg.querySelector(".pointer")?.remove();
    const pointer = createSvg("g", "pointer");
    svg.append(pointer);
    if (position) {
      const d = `M${x.toPixel(position[axis])},${y.start} V${y.end}`;
      pointer.append(createSvg("path", "cursor", { d }));
    }
    view.chart.curves.forEach(({ type, columns }, index) => {
      const at = position ? nearestIndex(columns[axis], position[axis]) : columns[0].length - 1;
      const output = view.figure.querySelectorAll(".key output")[index];
      output.textContent = formatValue(columns[VALUE][at], view.chart.unit);
      if (!position || !columns[0].length || type === "raw") return;
      const color = { smoothed: 0, validation: 1 }[type] ?? index % 6;
      const [cx, cy] = [x.toPixel(columns[axis][at]), y.toPixel(columns[VALUE][at])];
      pointer.append(createSvg("circle", `marker line-${color}`, { cx, cy, r: 4 }));
    });
  }

  function pointAt(next) {
    position = next;
    views.forEach(show);
    readOut.textContent = position ? describe(position) : hint;
  }

  function pointNear(view, value) {
    const index = nearestIndex(view.columns[column(view)], value);
    pointAt(view.columns.slice(0, VALUE).map((numbers) => numbers[index]));
  }

  function onMove(view, { clientX }) {
    const svg = visible(view).querySelector("svg");
    const { left, width } = svg.getBoundingClientRect();
    const pixel = ((clientX - left) / width) * svg.viewBox.baseVal.width;
    pointNear(view, readScale(svg.dataset.xScale).toValue(pixel));
  }

  function onKey(view, event) {
    const numbers = view.columns[column(view)];
    const strides = { ArrowLeft: -1, ArrowRight: 1, PageUp: 20, PageDown: -20 };
    const ends = { Home: 0, End: numbers.length - 1 };
    if (event.key === "Escape") pointAt(null);
    if (!(event.key in strides) && !(event.key in ends)) return;
    event.preventDefault();
    const here = position ? nearestIndex(numbers, position[column(view)]) : numbers.length - 1;
    const next = ends[event.key] ?? here + (position ? strides[event.key] : 0);
    pointNear(view, numbers[Math.max(0, Math.min(numbers.length - 1, next))]);
  }

  for (const view of views) {
    view.figure.querySelectorAll(".curves").forEach((node) => {
      node.addEventListener("pointermove", (event) => onMove(view, event));
      node.addEventListener("pointerdown", (event) => onMove(view, event));
      node.addEventListener("pointerleave", () => pointAt(null));
    });
    view.figure.addEventListener("keydown", (event) => onKey(view, event));
    view.figure.addEventListener("blur", () => pointAt(null));
  }
  document.querySelectorAll(".switch input").forEach((radio) =>
    radio.addEventListener("change", () => pointAt(position)));
  pointAt(null);
}

function describe([step, seconds, flops]) {
  const parts = [`step ${formatValue(step)}`];
  if (seconds !== null) parts.push(formatValue(seconds, "seconds"));
  if (flops !== null) parts.push(`${formatValue(flops)} FLOPs`);
  return parts.join(" \u00b7 ");
}
