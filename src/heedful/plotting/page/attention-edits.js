// Edits of attention weights while a graph runs, as heedful.attention.edits makes them in Python.
//
// An edit is { layer, step, head, set, scale }. Weights are (rows, queries, positions), with several heads
// (rows, heads, queries, positions). A cell that is set keeps its weight, and the others share the rest of the
// row in proportion; a row that is scaled keeps its sum; a position with the factor 0 is masked.

import { tensor } from "./tensors.js";

const SMALLEST_SUM = 1e-30;
const ROUNDING = 1e-6;

function concernsLayer({ layer }, path, { sites }) {
  if (layer === "source") return sites[path]?.attends_to_source;
  return layer === undefined ? true : layer === path;
}

/** Calls `visit(edit, start)` for each row of weights that an edit may change, in the order of the edits. */
function visitRows(shape, path, context, visit) {
  const edits = context.edits.filter((edit) => concernsLayer(edit, path, context));
  if (edits.length === 0) return;
  const [numQueries, numKeys] = shape.slice(-2);
  const numHeads = context.sites[path]?.num_heads > 1 ? shape.at(-3) : 1;
  const numRows = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  for (const edit of edits) {
    for (let row = 0; row < numRows; row += 1) {
      const step = context.firstStep + (row % numQueries);
      const head = Math.floor(row / numQueries) % numHeads;
      const isChosen = (edit.step ?? step) === step && (numHeads === 1 || (edit.head ?? head) === head);
      if (isChosen) visit(edit, row * numKeys, numKeys);
    }
  }
}

function cellsOf(numbers, numKeys) {
  return Object.entries(numbers ?? {}).map(([position, number]) => [Number(position), Number(number)]).filter(([position]) => position < numKeys);
}

/** Whether a row sees the positions that an edit gives weight to. */
function seesCells(edit, mask, start, numKeys) {
  const needed = Object.entries(edit.set ?? {}).filter(([, weight]) => weight > 0);
  return needed.every(([position]) => Number(position) < numKeys && mask.values[start + Number(position)]);
}

/** The mask without the positions that edits remove. */
export function visibleMask(mask, path, context) {
  if (context.edits.length === 0) return mask;
  const values = mask.values.slice();
  visitRows(mask.shape, path, context, (edit, start, numKeys) => {
    for (const [position, factor] of cellsOf(edit.scale, numKeys)) if (factor === 0) values[start + position] = 0;
  });
  return tensor(mask.shape, values, mask.type);
}

/** The edited weights; `mask` is that of the model. */
export function applyEdits(weights, mask, path, context) {
  if (context.edits.length === 0) return weights;
  const values = weights.values.slice();
  const visible = visibleMask(mask, path, context).values;
  visitRows(weights.shape, path, context, (edit, start, numKeys) => {
    if (!seesCells(edit, mask, start, numKeys)) return;
    const row = values.subarray(start, start + numKeys);
    if (edit.scale) scaleRow(row, cellsOf(edit.scale, numKeys));
    else setCells(row, cellsOf(edit.set, numKeys), visible.subarray(start, start + numKeys));
  });
  return tensor(weights.shape, values, weights.type);
}

function total(row) {
  return row.reduce((sum, weight) => sum + weight, 0);
}

function scaleRow(row, factors) {
  const before = total(row);
  for (const [position, factor] of factors) row[position] *= factor;
  const after = Math.max(total(row), SMALLEST_SUM);
  row.forEach((weight, position) => { row[position] = (weight * before) / after; });
}

function setCells(row, cells, visible) {
  const before = total(row);
  const isSet = new Set(cells.map(([position]) => position));
  const rest = row.map((weight, position) => (visible[position] && !isSet.has(position) ? weight : 0));
  const hasRest = total(rest) > 0;
  if (!hasRest) rest.forEach((_, position) => { rest[position] = Number(visible[position] && !isSet.has(position)); });
  const left = before - cells.reduce((sum, [, weight]) => sum + weight, 0);
  const share = (left < ROUNDING ? 0 : left) / Math.max(total(rest), SMALLEST_SUM);
  rest.forEach((weight, position) => { row[position] = weight * share; });
  for (const [position, weight] of cells) row[position] = weight;
}
