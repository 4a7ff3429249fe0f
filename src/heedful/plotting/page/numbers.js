// Numbers as texts, and the thresholds of shades, which plotting/svg.py has, too.

export const STRONG = 0.64; // the text of a darker shade is light
export const FAINT = 0.05; // the text of a lighter shade is faint

const SUPERSCRIPTS = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";

/** A weight in a cell: a dot is less than half a percent, a blank is zero. @type {(weight: number) => string} */
export function percent(weight) {
  return weight === 0 ? "" : String(Math.floor(100 * weight + 0.5) || "\u00b7");
}

/** A difference of weights in a cell. @type {(weight: number) => string} */
export function signedPercent(weight) {
  const text = percent(Math.abs(weight));
  return /\d/.test(text) ? `${weight < 0 ? "\u2212" : "+"}${text}` : text;
}

/** A weight in a sentence: with its sign, and a bound for what would be rounded to 0. @type {(weight: number) => string} */
export function percentage(weight) {
  const rounded = Math.floor(100 * weight + 0.5);
  return rounded || !weight ? `${rounded}%` : "<1%";
}

/** @type {(value: number, low: number, high: number) => number} */
export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** @type {(value: number) => string} */
export function formatNumber(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-3)) {
    const [mantissa, exponent] = value.toExponential(3).split("e");
    const power = [...String(+exponent)].map((digit) => SUPERSCRIPTS[+digit] ?? "\u207b").join("");
    return `${+mantissa === 1 ? "" : `${+mantissa}\u00b7`}10${power}`;
  }
  const rounded = Number.isInteger(value) ? value : +value.toPrecision(4);
  return rounded.toLocaleString("en", { maximumFractionDigits: 10 });
}

/** @type {(value: number | null | undefined, unit?: string) => string} */
export function formatValue(value, unit) {
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

/** The index of the value nearest to a position; the values are increasing. @type {(values: number[], position: number) => number} */
export function nearestIndex(values, position) {
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < position) low = middle + 1;
    else high = middle;
  }
  return low > 0 && position - values[low - 1] < values[low] - position ? low - 1 : low;
}
