// Beam search over one text; a beam of one hypothesis is greedy search (heedful.search.beam_search).
//
// `step(tokens, rows)` continues hypotheses: it selects rows of its state, reads a token for each, and returns
// log-probabilities, a row for each hypothesis. Totals are 32-bit numbers, as in Python.

/** log P / divisor(length)^alpha, with a length that includes EOS. */
function lengthScore(total, length, { alpha, formula }) {
  return total / (formula === "gnmt" ? (5 + length) / 6 : length) ** alpha;
}

/** The best continuations of all hypotheses, best first; of equal ones the first. */
function findBest(logProbs, totals, count, allowed) {
  const best = [];
  const size = logProbs[0].length;
  logProbs.forEach((row, parent) => {
    if (totals[parent] === -Infinity) return;
    const [first, last] = allowed === null ? [0, size - 1] : [allowed, allowed];
    for (let token = first; token <= last; token += 1) {
      const total = Math.fround(totals[parent] + row[token]);
      if (total === -Infinity || (best.length === count && total <= best[count - 1].total)) continue;
      let place = Math.min(best.length, count - 1);
      while (place > 0 && best[place - 1].total < total) place -= 1;
      best.splice(place, 0, { total, token, parent });
      best.length = Math.min(best.length, count);
    }
  });
  return best;
}

function pathOf(node) {
  const tokens = [];
  for (let last = node; last.parent; last = last.parent) tokens.unshift(last.token);
  return tokens;
}

/** Whether no open hypothesis can be among the best any more, by the criterion of the run. */
function isDone(finished, numFinished, bestOpen, length, options) {
  const { beam_size: size, stopping, length_penalty: penalty, max_length: maxLength } = options;
  if (finished.length === 0) return false;
  const worst = finished.length === size ? finished[size - 1].score : -Infinity;
  if (stopping.type === "heuristic") return lengthScore(bestOpen, length, penalty) <= worst;
  if (stopping.type === "optimal") {
    return Math.max(lengthScore(bestOpen, length, penalty), lengthScore(bestOpen, maxLength + 1, penalty)) <= worst;
  }
  return numFinished >= (stopping.factor ?? 1) * size;
}

/**
 * Returns { tokens, score, log_prob } of the best hypothesis, without EOS.
 * @param {(tokens: number[], rows: number[]) => Float32Array[]} step
 * @param {any} options beam_size, max_length, length_penalty, stopping, bos, eos, prefix
 */
export function searchBeam(step, options) {
  const { beam_size: size, max_length: maxLength, length_penalty: penalty, bos, eos, prefix = [], suppressed = [] } = options;
  let open = [{ parent: null, token: bos, total: 0 }];
  let rows = [0];
  const finished = /** @type {any[]} */ ([]);
  let numFinished = 0;
  for (let depth = 0; open.length > 0; depth += 1) {
    const logProbs = step(open.map(({ token }) => token), rows);
    const allowed = depth >= maxLength ? eos : depth < prefix.length ? prefix[depth] : null;
    const isFree = allowed === null && suppressed.length > 0;
    const ranked = isFree ? logProbs.map((row) => Float32Array.from(row, (value, token) => (suppressed.includes(token) ? -Infinity : value))) : logProbs;
    const best = findBest(ranked, open.map(({ total }) => total), allowed === eos ? Math.max(2 * size, open.length) : 2 * size, allowed);
    best.slice(0, size).filter(({ token }) => token === eos).forEach(({ total, parent }) => {
      finished.push({ node: open[parent], score: lengthScore(total, depth + 1, penalty), total });
      numFinished += 1;
    });
    finished.sort((one, two) => two.score - one.score);
    finished.length = Math.min(finished.length, size);
    const kept = best.filter(({ token }) => token !== eos).slice(0, size);
    if (kept.length === 0 && finished.length === 0) {
      const [cut] = [...open].sort((one, two) => two.total - one.total);
      return { tokens: pathOf(cut), score: -Infinity, log_prob: -Infinity };
    }
    if (kept.length === 0 || isDone(finished, numFinished, kept[0].total, depth + 1, options)) break;
    rows = kept.map(({ parent }) => parent);
    open = kept.map(({ total, token, parent }) => ({ parent: open[parent], token, total }));
  }
  const [{ node, score, total }] = finished;
  return { tokens: pathOf(node), score, log_prob: total };
}
