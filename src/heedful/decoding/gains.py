"""Gains: how good is each output of a text, if another of them were the truth?

A gain (i, j) is what sacreBLEU gives output i held against reference j: of BLEU the sentence
score, where n-grams longer than the output are left out and orders without a match are smoothed by
halving (`smooth_method="exp"`, Chen and Cherry 2014, method 3); of chrF the sentence score as it
is. Each text is counted once. That all pairs are compared costs one product of matrices: n-grams
that two texts share, each as often as in the one that has fewer, are as many as the pairs
(n-gram, its how-manieth) that both have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

Array = NDArray[np.float64]
GainName = Literal["bleu", "chrf"]

_WORDS, _CHARACTERS = 4, 6  # longest n-grams of BLEU and of chrF
_RECALL = CHRF.BETA**2  # how much more than precision recall counts in chrF


def bleu_gains(texts: Sequence[str]) -> Array:
    """Sentence BLEU of 100, with the tokens of mteval-v13a."""
    cut = BLEU().tokenizer
    tokens = [cut(text.rstrip()).split() for text in texts]
    lengths = np.array([len(each) for each in tokens], dtype=np.float64)
    logarithms, halvings = np.zeros((2, len(texts), len(texts)))
    for size in range(1, _WORDS + 1):
        shared = _shared([_runs(each, size) for each in tokens])
        total = np.maximum(lengths - size + 1, 0)[:, None]
        has_some = total > 0
        halvings += has_some & (shared == 0)
        matching = np.where(shared > 0, shared, 0.5**halvings)
        logarithms += np.where(has_some, np.log(matching / np.maximum(total, 1)), 0)
        if size == 1:
            is_alike = shared > 0  # without a word in common no longer run is
    orders = np.clip(lengths, 1, _WORDS)[:, None]
    brevity = np.minimum(0, 1 - lengths[None] / np.maximum(lengths, 1)[:, None])
    return np.where(is_alike, 100 * np.exp(brevity + logarithms / orders), 0.0)


def chrf_gains(texts: Sequence[str]) -> Array:
    """Sentence chrF of 100: runs of 1 to 6 characters, white space left out."""
    lines = ["".join(text.split()) for text in texts]
    lengths = np.array([len(line) for line in lines], dtype=np.float64)
    precision, recall, orders = np.zeros((3, len(texts), len(texts)))
    for size in range(1, _CHARACTERS + 1):
        counts = np.maximum(lengths - size + 1, 0)
        shared = _shared([_runs(line, size) for line in lines])
        is_in_both = (counts[:, None] > 0) & (counts[None] > 0)
        precision += np.where(is_in_both, shared / np.maximum(counts, 1)[:, None], 0)
        recall += np.where(is_in_both, shared / np.maximum(counts, 1)[None], 0)
        orders += is_in_both
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    below = _RECALL * precision + recall
    return 100 * (1 + _RECALL) * precision * recall / np.where(below > 0, below, 1)


GAINS: Mapping[GainName, Callable[[Sequence[str]], Array]] = {
    "bleu": bleu_gains,
    "chrf": chrf_gains,
}


def _runs(items: Sequence[str], size: int) -> Iterable[object]:
    """List the runs of so many items."""
    if isinstance(items, str):
        return [items[first : first + size] for first in range(len(items) - size + 1)]
    return zip(*(items[first:] for first in range(size)), strict=False)


def _shared(runs: Sequence[Iterable[object]]) -> Array:
    """Count the runs that each two texts have in common."""
    numbers: dict[object, int] = {}
    rows, columns = list[int](), list[int]()
    for row, each in enumerate(runs):
        for run, count in Counter(each).items():
            for time in range(count):
                rows.append(row)
                columns.append(numbers.setdefault((run, time), len(numbers)))
    has = np.zeros((len(runs), len(numbers)))
    has[rows, columns] = 1
    return has @ has.T
