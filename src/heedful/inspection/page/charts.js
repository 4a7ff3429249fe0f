
// --- curves --------------------------------------------------------------------------------
// Draws curves over a common axis and reads them out where the reader points.
//
// Two things say all: the axis that the curves stand over, and the place on it that is pointed
// at, or null. A point is four numbers: step, seconds, operations, value. They come in columns.

const AXES = [
  { name: "Step", unit: "" },
  { name: "Time", unit: "seconds" },
  { name: "Operations", unit: "" },
];
const VALUE = 3; // the column after those of the axes
const ROOM = { left: 58, right: 14, top: 10, bottom: 24 };
const TALL = 300;
const LOW = 160;
const MOST_DOTS = 80; // more would hide the line
const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];

function createSvg(tag, className, attributes = {}) {
  const node = document.createElementNS(SVG, tag);
  node.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// --- numbers as people write them ----------------------------------------------------------

function raised(power) {
  const signs = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";
  return [...String(power)].map((digit) => (digit === "-" ? "\u207b" : signs[digit])).join("");
}

function writePlain(value, digits) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-3)) {
    const [factor, power] = value.toExponential(digits - 1).split("e");
    const short = String(+factor);
    return `${short === "1" ? "" : `${short}\u00b7`}10${raised(+power)}`;
  }
  const rounded = Number.isInteger(value) ? value : +value.toPrecision(digits);
  return rounded.toLocaleString("en", { maximumFractionDigits: 10 });
}

function writeTime(seconds) {
  if (seconds < 60) return `${+seconds.toPrecision(3)} s`;
  const [large, small] = seconds < 3600 ? [60, 1] : [3600, 60];
  const whole = Math.round(seconds / small);
  const rest = String(whole % 60).padStart(2, "0");
  return `${Math.floor(whole / 60)}:${rest} ${large === 60 ? "min" : "h"}`;
}

function write(value, unit, digits = 4) {
  if (value === null || value === undefined) return "\u2013";
  if (unit === "seconds") return writeTime(value);
  if (unit === "share") return `${+(100 * value).toPrecision(digits)} %`;
  if (unit === "bytes") {
    const [size, name] = value < 2 ** 30 ? [2 ** 20, "MiB"] : [2 ** 30, "GiB"];
    return `${+(value / size).toPrecision(3)} ${name}`;
  }
  return writePlain(value, digits);
}

// --- scales --------------------------------------------------------------------------------

// Round numbers between two others, at most so many.
function ticksBetween(low, high, most, unit) {
  const span = high - low;
  const unitSize = unit === "bytes" ? (high < 2 ** 30 ? 2 ** 20 : 2 ** 30) : 1;
  const power = 10 ** Math.floor(Math.log10(span / unitSize / most));
  const round = [1, 2, 2.5, 5, 10, 20].map((factor) => factor * power * unitSize);
  const steps = unit === "seconds" && span > 2 * most ? [...MINUTES, ...days(span, most)] : round;
  const step = steps.find((each) => span / each <= most) ?? span;
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, index) => +((first + index) * step).toPrecision(12));
}

function days(span, most) {
  return [Math.ceil(span / most / 86400) * 86400];
}

function powersBetween(low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const factors = last - first > 2 ? [1] : [1, 2, 5];
  const stride = Math.ceil((last - first) / 6);
  const powers = Array.from({ length: last - first + 1 }, (_, index) => first + index);
  return powers
    .filter((power) => power % stride === 0)
    .flatMap((power) => factors.map((factor) => +`${factor}e${power}`))
    .filter((tick) => tick >= low && tick <= high);
}

// From numbers to pixels.
function scaleOf([low, high], [from, to], isLogarithmic = false) {
  const bend = isLogarithmic ? Math.log10 : (value) => value;
  const share = (to - from) / (bend(high) - bend(low) || 1);
  return (value) => from + (bend(value) - bend(low)) * share;
}

function rangeOf(columns) {
  const known = columns.flat().filter((value) => value !== null);
  return [
    known.reduce((low, value) => Math.min(low, value), Infinity),
    known.reduce((high, value) => Math.max(high, value), -Infinity),
  ];
}

function heightsOf(chart) {
  const [low, high] = rangeOf(chart.lines.map((line) => line.columns[VALUE]));
  if (chart.is_logarithmic) return [low / 1.1, high * 1.1];
  const room = 0.06 * (high - low) || 0.1 * Math.abs(high) || 1;
  return [chart.from_zero && low >= 0 ? 0 : low - room, high + room];
}

// The index of the value nearest to a place; the values rise.
function nearest(values, place) {
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < place) low = middle + 1;
    else high = middle;
  }
  return low > 0 && place - values[low - 1] < values[low] - place ? low - 1 : low;
}

// --- a chart -------------------------------------------------------------------------------

function colourOf(line, index) {
  if (line.look === "held-out") return "var(--line-1)";
  return line.look === "plain" ? `var(--line-${index % 6})` : "var(--line-0)";
}

// Gives the figure and how to draw it over an axis and to point at a place of it.
function drawChart(chart, isWide, onPoint) {
  const figure = create("figure", isWide ? "chart wide" : "chart");
  figure.tabIndex = 0;
  figure.dataset.chart = chart.id;
  const caption = create("figcaption", "");
  caption.append(create("span", "chart-name", chart.name));
  const keys = chart.lines.map((line, index) => drawKey(line, index, caption));
  if (chart.missing) {
    caption.append(create("span", "missing", `${chart.missing} not a finite number`));
  }
  const canvas = createSvg("svg", "", { role: "img", height: isWide ? TALL : LOW });
  canvas.setAttribute("aria-label", describe(chart));
  figure.append(caption, canvas);
  const view = { chart, figure, canvas, keys, scales: null, axis: 0 };
  canvas.addEventListener("pointermove", (event) => onPoint(placeUnder(view, event)));
  canvas.addEventListener("pointerdown", (event) => onPoint(placeUnder(view, event)));
  canvas.addEventListener("pointerleave", () => onPoint(null));
  figure.addEventListener("keydown", (event) => onPoint(placeByKey(view, event)));
  figure.addEventListener("blur", () => onPoint(null));
  return view;
}

function drawKey(line, index, caption) {
  const key = create("span", "key");
  const swatch = create("span", `swatch ${line.look}`);
  swatch.style.setProperty("--colour", colourOf(line, index));
  const value = create("output", "");
  value.ariaLive = "off";
  if (line.name) key.append(swatch, create("span", "", line.name));
  key.append(value);
  caption.append(key);
  return value;
}

function describe(chart) {
  const said = chart.lines.filter((line) => line.look !== "raw" && line.columns[0].length);
  return said.map((line) => {
    const [steps, values] = [line.columns[0], line.columns[VALUE]];
    const [first, last] = [values[0], values.at(-1)].map((value) => write(value, chart.unit));
    const name = [chart.name, line.name].filter(Boolean).join(", ");
    return `${name}: ${first} at step ${steps[0]}, ${last} at step ${steps.at(-1)}`;
  }).join("; ");
}

function placeUnder(view, event) {
  const { left } = view.canvas.getBoundingClientRect();
  return placeNear(view, view.scales.placeAt(event.clientX - left));
}

// Where the first curve has a point.
function placeNear({ chart, axis }, place) {
  const { columns } = longest(chart);
  const at = nearest(columns[axis], place);
  return columns.slice(0, VALUE).map((column) => column[at]);
}

function longest(chart) {
  return chart.lines.reduce((one, two) => (two.columns[0].length > one.columns[0].length ? two : one));
}

function placeByKey(view, event) {
  const column = longest(view.chart).columns[view.axis];
  const here = view.place ? nearest(column, view.place[view.axis]) : column.length - 1;
  const strides = { ArrowLeft: -1, ArrowRight: 1, PageUp: 20, PageDown: -20 };
  const ends = { Home: 0, End: column.length - 1 };
  if (event.key === "Escape") return null;
  if (!(event.key in strides) && !(event.key in ends)) return view.place ?? null;
  event.preventDefault();
  const next = ends[event.key] ?? here + (view.place ? strides[event.key] : 0);
  return placeNear(view, column[Math.max(0, Math.min(column.length - 1, next))]);
}

function layOut(view, axis, range, marks) {
  const { chart, canvas } = view;
  const [width, height] = [canvas.clientWidth, +canvas.getAttribute("height")];
  const across = [ROOM.left, Math.max(ROOM.left + 1, width - ROOM.right)];
  const heights = heightsOf(chart);
  const x = scaleOf(range, across);
  const y = scaleOf(heights, [height - ROOM.bottom, ROOM.top], chart.is_logarithmic);
  const placeAt = scaleOf(across, range);
  Object.assign(view, { axis, scales: { x, y, placeAt } });
  canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
  canvas.replaceChildren(
    drawGrid(view, { range, heights, width, height }),
    drawMarks(marks, axis, x, height),
    ...chart.lines.map((line, index) => drawCurve(line, index, view)),
    createSvg("g", "pointer"),
  );
  pointAt(view, view.place);
}

function drawGrid({ chart, axis, scales }, { range, heights, width, height }) {
  const grid = createSvg("g", "grid");
  const rows = chart.is_logarithmic
    ? powersBetween(...heights)
    : ticksBetween(...heights, height > LOW ? 6 : 5, chart.unit);
  for (const tick of rows) {
    const y = scales.y(tick);
    grid.append(createSvg("line", "rule", { x1: ROOM.left, x2: width - ROOM.right, y1: y, y2: y }));
    grid.append(label(write(tick, chart.unit), ROOM.left - 8, y + 4, "end"));
  }
  const most = Math.max(2, Math.floor(width / 80));
  for (const tick of range[1] > range[0] ? ticksBetween(...range, most, AXES[axis].unit) : range) {
    const text = label(write(tick, AXES[axis].unit), scales.x(tick), height - 6, "middle");
    if (scales.x(tick) > width - ROOM.right - 20) text.setAttribute("text-anchor", "end");
    grid.append(text);
  }
  return grid;
}

function label(text, x, y, anchor) {
  const node = createSvg("text", "", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
}

function drawMarks(marks, axis, x, height) {
  const group = createSvg("g", "marks");
  for (const { kind, place } of marks) {
    if (place[axis] === null) continue;
    const [at, floor] = [x(place[axis]), height - ROOM.bottom];
    const mark = kind === "resumed"
      ? createSvg("line", "mark resumed", { x1: at, x2: at, y1: ROOM.top, y2: floor })
      : createSvg("path", "mark skipped", { d: `M${at},${floor - 7} l4,7 h-8 Z` });
    const name = createSvg("title", "");
    name.textContent = kind === "resumed"
      ? `gone on at step ${place[0]}`
      : `steps were skipped before step ${place[0]}`;
    mark.append(name);
    group.append(mark);
  }
  return group;
}

function drawCurve(line, index, { chart, axis, scales }) {
  const group = createSvg("g", "");
  group.style.setProperty("--colour", colourOf(line, index));
  const places = line.columns[axis];
  const points = places
    .map((place, at) => [place, line.columns[VALUE][at]])
    .filter(([place]) => place !== null)
    .map(([place, value]) => [scales.x(place).toFixed(1), scales.y(value).toFixed(1)]);
  if (!points.length) return group;
  group.append(createSvg("path", `curve ${line.look}`, { d: `M${points.join("L")}` }));
  if (points.length === 1 || (line.look === "held-out" && points.length <= MOST_DOTS)) {
    group.append(...points.map(([cx, cy]) => createSvg("circle", "dot", { cx, cy, r: 2.4 })));
  }
  if (line.look === "held-out" && points.length > 1) {
    const [cx, cy] = points[bestOf(chart, line)];
    group.append(createSvg("circle", "best", { cx, cy, r: 4.5 }));
  }
  return group;
}

function bestOf(chart, line) {
  const values = line.columns[VALUE];
  const [low, high] = rangeOf([values]);
  return values.indexOf(chart.id === "loss" ? low : high);
}

// Shows the values at a place, or without one the last.
function pointAt(view, place) {
  const { chart, canvas, keys, scales, axis } = view;
  const pointer = canvas.querySelector(".pointer");
  pointer.replaceChildren();
  view.place = place;
  if (place && place[axis] !== null) {
    const at = scales.x(place[axis]);
    const floor = +canvas.getAttribute("height") - ROOM.bottom;
    pointer.append(createSvg("line", "cursor", { x1: at, x2: at, y1: ROOM.top, y2: floor }));
  }
  chart.lines.forEach((line, index) => {
    const places = line.columns[axis];
    const here = place ? nearest(places, place[axis]) : places.length - 1;
    keys[index].textContent = write(line.columns[VALUE][here], chart.unit);
    if (!place || !places.length || line.look === "raw") return;
    const [cx, cy] = [scales.x(places[here]), scales.y(line.columns[VALUE][here])];
    const dot = createSvg("circle", "here", { cx, cy, r: 4 });
    dot.style.setProperty("--colour", colourOf(line, index));
    pointer.append(dot);
  });
}

// --- all charts ----------------------------------------------------------------------------

function drawCharts({ charts, marks }, holder, axisSwitch, readOut) {
  const columnsOf = (axis) =>
    charts.flatMap((chart) => chart.lines.map((line) => line.columns[axis]));
  const isKnown = (axis) => charts.length > 0 && columnsOf(axis).every((column) => !column.includes(null));
  const views = charts.map((chart, index) => drawChart(chart, index === 0, point));
  let axis = 0;
  const layOutAll = () => {
    const [low, high] = rangeOf(columnsOf(axis));
    views.forEach((view) => layOut(view, axis, [Math.min(0, low), high], marks));
  };
  function point(place) {
    views.forEach((view) => pointAt(view, place));
    readOut.textContent = place ? placeInWords(place) : restingWords(marks);
  }
  holder.append(...views.map(({ figure }) => figure));
  AXES.forEach(({ name }, index) => {
    if (!isKnown(index)) return;
    const choice = create("label", "");
    const radio = create("input", "");
    Object.assign(radio, { type: "radio", name: "axis", value: name, checked: index === 0 });
    radio.addEventListener("change", () => { axis = index; layOutAll(); });
    choice.append(radio, name);
    axisSwitch.append(choice);
  });
  new ResizeObserver(layOutAll).observe(holder);
  layOutAll();
  point(null);
}

function placeInWords([step, seconds, operations]) {
  const said = [`step ${write(step)}`];
  if (seconds !== null) said.push(write(seconds, "seconds"));
  if (operations !== null) said.push(`${write(operations)} operations`);
  return said.join(" \u00b7 ");
}

function restingWords(marks) {
  const kinds = new Set(marks.map(({ kind }) => kind));
  const said = ["Point at a curve, or use the arrow keys, to read it."];
  if (kinds.has("resumed")) said.push("Dashed: training was gone on with.");
  if (kinds.has("skipped")) said.push("Triangles: steps were skipped.");
  return said.join(" ");
}
