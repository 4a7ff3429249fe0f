"""A parallel corpus as an aligner reads it: batches of cells, and the translation table.

A cell is a target word with a source word or the null word. Sources of a batch have one length, so
the cells of a batch are a full array (pairs, target words, 1 + source words); column 0 is null.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.tokenization.ragged_array import Integers, RaggedArray

Floats = NDArray[np.float64]
UNSEEN_PROB = 1e-9
"""p(target | source) of words that were never in one sentence pair; as in fast_align."""
_MAX_CELLS = 1 << 18  # of a batch
_MAX_PENDING = 1 << 24  # cells counted at once: each count passes over the whole table
_KEY_BITS = 31  # of a token id


class AlignmentBatch(NamedTuple):
    """Sentence pairs whose sources have the same length."""

    rows: Integers  # of the corpus
    cells: NDArray[np.int32]  # (B, T, 1 + S): entries of the translation table
    target_lengths: Integers  # (B,)


class _PairBatch(NamedTuple):
    rows: Integers
    keys: Integers  # (B, T, 1 + S): a pair of words in one number
    target_lengths: Integers


class TranslationTable:
    """p(target word | source word) of the pairs of words in a corpus; source word 0 is null.

    Probabilities start uniform over the target words that share a sentence pair with the source
    word. Brown et al. 1993, section 4.4, and nltk start uniform over all target words, so that
    their first iteration weights the words of a sentence alike; ours favors source words with few
    partners. The last two entries are an unseen pair of words, and padding.
    """

    def __init__(self, keys: Integers) -> None:
        self.keys = keys  # sorted
        _, self._sources, counts = np.unique(
            keys >> _KEY_BITS, return_inverse=True, return_counts=True
        )
        self.probs = np.append(1 / counts[self._sources], [UNSEEN_PROB, 0.0])

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, batch: _PairBatch) -> AlignmentBatch:
        """Look up the entries of all cells."""
        entries = np.minimum(np.searchsorted(self.keys, batch.keys), max(0, len(self) - 1))
        is_known = self.keys[entries] == batch.keys if len(self) else np.zeros(entries.shape, bool)
        cells = np.where(is_known, entries, len(self)).astype(np.int32)
        is_padding = np.arange(cells.shape[1]) >= batch.target_lengths[:, None]
        cells[is_padding] = len(self) + 1
        return AlignmentBatch(batch.rows, cells, batch.target_lengths)

    def update(self, counts: Floats, alpha: float | None = None) -> None:
        """Set the probabilities to normalized expected counts (the M step).

        With `alpha` they are exp(E[log p]) under a Dirichlet prior: variational Bayes with
        exp(digamma(count + alpha)) / exp(digamma(sum of them))  (Riley and Gildea 2012).
        """
        smoothed = counts + (alpha or 0.0)
        totals = np.bincount(self._sources, weights=smoothed).astype(np.float64, copy=False)
        totals = totals[self._sources]
        if alpha is None:
            self.probs[:-2] = smoothed / np.maximum(totals, np.finfo(float).tiny)
        else:
            self.probs[:-2] = np.exp(digamma(smoothed) - digamma(totals))


def digamma(values: Floats) -> Floats:
    """Return the derivative of log gamma of positive values, to about 1e-12."""
    shift = np.zeros_like(values)
    for _ in range(8):  # digamma(x) = digamma(x + 1) - 1 / x, until the series below converges
        shift = shift - 1 / values
        values = values + 1
    square = 1 / values**2
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240))))
    return shift + np.log(values) - 0.5 / values - series


class CountAccumulator:
    """Sums posteriors of cells by entry of the table."""

    def __init__(self, num_entries: int) -> None:
        self._sums = np.zeros(num_entries + 2)
        self._pending: list[tuple[NDArray[np.int32], Floats]] = []
        self._num_pending = 0

    def add(self, cells: NDArray[np.int32], posteriors: Floats) -> None:
        """Add the posteriors of a batch."""
        self._pending.append((cells.ravel(), posteriors.ravel()))
        self._num_pending += cells.size
        if self._num_pending >= _MAX_PENDING:
            self._flush()

    def counts(self) -> Floats:
        """Return the sum of each entry, without padding."""
        self._flush()
        return self._sums[:-2]

    def _flush(self) -> None:
        if self._pending:
            cells, posteriors = map(np.concatenate, zip(*self._pending, strict=True))
            self._sums += np.bincount(cells, weights=posteriors, minlength=len(self._sums))
        self._pending, self._num_pending = [], 0


def build_corpus(
    source: RaggedArray, target: RaggedArray
) -> tuple[TranslationTable, list[AlignmentBatch]]:
    """Return the table of all pairs of words that occur together, and the batches."""
    batches = list(_pair_batches(source, target))
    keys = [np.unique(batch.keys[_real_targets(batch)]) for batch in batches]
    table = TranslationTable(np.unique(np.concatenate([np.empty(0, np.int64), *keys])))
    return table, [table.find(batch) for batch in batches]


def iter_batches(
    table: TranslationTable, source: RaggedArray, target: RaggedArray
) -> Iterator[AlignmentBatch]:
    """Yield the batches of a corpus, which may have words that the table does not have."""
    return map(table.find, _pair_batches(source, target))


def _real_targets(batch: _PairBatch) -> NDArray[np.bool_]:
    return np.arange(batch.keys.shape[1]) < batch.target_lengths[:, None]


def _pair_batches(source: RaggedArray, target: RaggedArray) -> Iterator[_PairBatch]:
    """Group pairs by source length, those of similar target length together; leave out empty ones.

    A source token s and a target token t have the key (s + 1) 2^31 + t.
    """
    source_lengths, target_lengths = source.lengths, target.lengths
    order = np.lexsort((target_lengths, source_lengths))
    order = order[(source_lengths[order] > 0) & (target_lengths[order] > 0)]
    for rows in _cut(order, source_lengths[order], target_lengths[order]):
        length, lengths = int(source_lengths[rows[0]]), target_lengths[rows]
        words = source.select(rows).values.reshape(-1, length).astype(np.int64)
        words = np.concatenate([np.zeros((len(rows), 1), np.int64), words + 1], axis=1)
        targets = target.select(rows).padded(int(lengths.max()), fill=0)
        keys = (words[:, None, :] << _KEY_BITS) + targets[:, :, None]
        yield _PairBatch(rows, keys, lengths)


def _cut(rows: Integers, source_lengths: Integers, widths: Integers) -> Iterator[Integers]:
    """Cut sorted rows into batches of one source length and at most `_MAX_CELLS` cells."""
    start = 0
    while start < len(rows):
        length = source_lengths[start]
        end = int(np.searchsorted(source_lengths, length, side="right"))
        num_cells = np.arange(1, end - start + 1) * widths[start:end] * (length + 1)
        size = max(1, int(np.searchsorted(num_cells, _MAX_CELLS, side="right")))
        yield rows[start : start + size]
        start += size
