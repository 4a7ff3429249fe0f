// The tags of a sentence: independent, or a chain whose neighbors have scores (heedful.layers.crf).
//
// `transitions` are { between, start, end }: scores of a tag after another, of first tags and of last tags; null
// where tags are independent. `rows` are the scores of tags, one row for each word.

import { indexOfBest } from "./page-model.js";

function logSumExp(values) {
  const largest = Math.max(...values);
  return largest === -Infinity ? largest : largest + Math.log(values.reduce((sum, value) => sum + Math.exp(value - largest), 0));
}

/** The scores of tags, with those of first and last tags added. */
function withEnds(rows, { start, end }) {
  return rows.map((row, index) => Array.from(row, (score, tag) =>
    score + (index === 0 ? start[tag] : 0) + (index === rows.length - 1 ? end[tag] : 0)));
}

/** The most probable tags together (Viterbi); the first of equals. @param {ArrayLike<number>[]} rows */
export function bestPath(rows, transitions) {
  if (!transitions) return rows.map((row) => indexOfBest([...Array.from(row)]));
  const scores = withEnds(rows, transitions);
  const { between } = transitions;
  const links = /** @type {number[][]} */ ([]);
  let best = scores[0] ?? [];
  for (const row of scores.slice(1)) {
    const former = best;
    const from = row.map((_, tag) => indexOfBest(former.map((score, other) => score + between[other][tag])));
    best = row.map((score, tag) => former[from[tag]] + between[from[tag]][tag] + score);
    links.push(from);
  }
  const path = rows.length > 0 ? [indexOfBest(best)] : [];
  for (const from of links.reverse()) path.unshift(from[path[0]]);
  return path;
}

/** The log-probability of each tag of each word (forward-backward). @param {ArrayLike<number>[]} rows */
export function logMarginals(rows, transitions) {
  if (!transitions) {
    return rows.map((row) => {
      const total = logSumExp(Array.from(row));
      return Array.from(row, (score) => score - total);
    });
  }
  const scores = withEnds(rows, transitions);
  const { between } = transitions;
  const forward = /** @type {number[][]} */ ([]);
  for (const row of scores) {
    const former = forward.at(-1);
    forward.push(row.map((score, tag) => score + (former ? logSumExp(former.map((value, other) => value + between[other][tag])) : 0)));
  }
  const backward = /** @type {number[][]} */ ([]);
  for (let index = scores.length - 1; index >= 0; index -= 1) {
    const [after, next] = [backward[0], scores[index + 1]];
    backward.unshift(scores[index].map((_, tag) => (after ? logSumExp(after.map((value, other) => value + between[tag][other] + next[other])) : 0)));
  }
  const total = logSumExp(forward.at(-1) ?? [0]);
  return forward.map((row, index) => row.map((value, tag) => value + backward[index][tag] - total));
}
