"""Minimum Bayes risk decoding: select the sample with the highest expected utility.

References are samples of the model (Kumar and Byrne 2004; Eikema and Aziz 2020). Row i and column j
of a utility matrix have what sacreBLEU gives sample i with sample j as reference. All pairs take
one matrix product: two texts share as many n-grams, clipped, as they share (n-gram, occurrence).
Invariant: of a single sample, that one is selected.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from heedful.config import BaseConfig

Array = NDArray[np.float64]
UtilityName = Literal["bleu", "chrf"]
Output = TypeVar("Output")

_BLEU_MAX_ORDER, _CHRF_MAX_ORDER = 4, 6
_BETA_SQUARED = CHRF.BETA**2  # weight of recall relative to precision in chrF


class MBRConfig(BaseConfig):
    """Sample outputs and select the one closest to all of them (Eikema and Aziz 2020)."""

    num_samples: PositiveInt = Field(default=32, le=10_000)
    """Samples per text."""
    utility: UtilityName = "bleu"
    """Sentence-level metric that compares two samples."""


def bleu_utilities(texts: Sequence[str]) -> Array:
    """Return sentence BLEU (0 to 100) of each text with each text as reference.

    As sacreBLEU's `sentence_bleu`: tokenization 13a, effective order, exponential smoothing.
    """
    tokenize = BLEU().tokenizer
    tokens = [tokenize(text.rstrip()).split() for text in texts]
    lengths = np.array([len(text_tokens) for text_tokens in tokens], dtype=np.float64)
    log_precisions, num_smoothed = np.zeros((2, len(texts), len(texts)))
    for order in range(1, _BLEU_MAX_ORDER + 1):
        shared = _shared_ngram_counts(tokens, order)
        total = np.maximum(lengths - order + 1, 0)[:, None]
        has_ngrams = total > 0
        num_smoothed += has_ngrams & (shared == 0)
        matches = np.where(shared > 0, shared, 0.5**num_smoothed)
        log_precisions += np.where(has_ngrams, np.log(matches / np.maximum(total, 1)), 0)
        if order == 1:
            has_common_word = shared > 0
    orders = np.clip(lengths, 1, _BLEU_MAX_ORDER)[:, None]
    brevity = np.minimum(0, 1 - lengths[None] / np.maximum(lengths, 1)[:, None])
    return np.where(has_common_word, 100 * np.exp(brevity + log_precisions / orders), 0.0)


def chrf_utilities(texts: Sequence[str]) -> Array:
    """Return sentence chrF (0 to 100) of each text with each text as reference."""
    lines = ["".join(text.split()) for text in texts]
    lengths = np.array([len(line) for line in lines], dtype=np.float64)
    precision, recall, orders = np.zeros((3, len(texts), len(texts)))
    for order in range(1, _CHRF_MAX_ORDER + 1):
        counts = np.maximum(lengths - order + 1, 0)
        shared = _shared_ngram_counts(lines, order)
        is_in_both = (counts[:, None] > 0) & (counts[None] > 0)
        precision += np.where(is_in_both, shared / np.maximum(counts, 1)[:, None], 0)
        recall += np.where(is_in_both, shared / np.maximum(counts, 1)[None], 0)
        orders += is_in_both
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    divisor = _BETA_SQUARED * precision + recall
    return 100 * (1 + _BETA_SQUARED) * precision * recall / np.where(divisor > 0, divisor, 1)


UTILITIES: Mapping[UtilityName, Callable[[Sequence[str]], Array]] = {
    "bleu": bleu_utilities,
    "chrf": chrf_utilities,
}


def _shared_ngram_counts(sequences: Sequence[Sequence[str]], order: int) -> Array:
    """Return the clipped number of n-grams that every two sequences have in common."""
    column_ids: dict[object, int] = {}
    rows: list[int] = []
    columns: list[int] = []
    for row, items in enumerate(sequences):
        ngrams = zip(*(items[start:] for start in range(order)), strict=False)
        for ngram, count in Counter(ngrams).items():
            for occurrence in range(count):
                rows.append(row)
                columns.append(column_ids.setdefault((ngram, occurrence), len(column_ids)))
    has_ngram = np.zeros((len(sequences), len(column_ids)))
    has_ngram[rows, columns] = 1
    return has_ngram @ has_ngram.T


def count_distinct(outputs: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """Return first index and count of each distinct output, so that utilities are computed once."""
    counts = Counter(outputs)
    return [outputs.index(output) for output in counts], list(counts.values())


def pairwise_utilities(
    outputs: Sequence[Output], utility: Callable[[Output, Output], float]
) -> Array:
    """Return utility(output i, reference j) for all pairs."""
    return np.array([[utility(output, reference) for reference in outputs] for output in outputs])


def expected_utilities(utilities: Array, counts: Sequence[int] | None = None) -> Array:
    """Return sum_j n_j u(i, j) / sum_j n_j for each output i, itself among the references."""
    assert utilities.shape == (len(utilities), len(utilities)), "utilities must be square"
    assert np.isfinite(utilities).all(), "utilities must be finite"
    weights = np.ones(len(utilities)) if counts is None else np.array(counts, dtype=np.float64)
    # Exact sums: equally good outputs must not differ by the order of summation.
    return np.array([math.fsum(row) for row in utilities * weights]) / weights.sum()


def select_mbr(utilities: Array, counts: Sequence[int] | None = None) -> int:
    """Return the index of the output with the highest expected utility, the first of equal ones."""
    return int(expected_utilities(utilities, counts).argmax())
