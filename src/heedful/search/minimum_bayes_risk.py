""""""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from heedful.config import BaseConfig


class MBRConfig(BaseConfig):
    """Of drawn outputs take the one nearest to all of them (Eikema and Aziz 2020)."""

    num_samples: PositiveInt = 32
    """How many are drawn."""
    utility: Literal["bleu", "chrf"] = "bleu"
    """What nearness is measured by."""


# Gains: how good is each output of a text, if another of them were the truth?
#
# A gain (i, j) is what sacreBLEU gives output i held against reference j: of BLEU the sentence
# score, where n-grams longer than the output are left out and orders without a match are smoothed by
# halving (`smooth_method="exp"`, Chen and Cherry 2014, method 3); of chrF the sentence score as it
# is. Each text is counted once. That all pairs are compared costs one product of matrices: n-grams
# that two texts share, each as often as in the one that has fewer, are as many as the pairs
# (n-gram, its how-manieth) that both have.

Array = NDArray[np.float64]
UtilityName = Literal["bleu", "chrf"]

_BLEU_MAX_ORDER, _CHRF_MAX_ORDER = 4, 6  # longest n-grams of BLEU and of chrF
_RECALL = CHRF.BETA**2  # how much more than precision recall counts in chrF


def bleu_utilities(texts: Sequence[str]) -> Array:
    """Sentence BLEU of 100, with the tokens of mteval-v13a."""
    tokenize = BLEU().tokenizer
    tokens = [tokenize(text.rstrip()).split() for text in texts]
    lengths = np.array([len(each) for each in tokens], dtype=np.float64)
    logarithms, halvings = np.zeros((2, len(texts), len(texts)))
    for size in range(1, _BLEU_MAX_ORDER + 1):
        shared = _shared_ngram_counts([_ngrams(each, size) for each in tokens])
        total = np.maximum(lengths - size + 1, 0)[:, None]
        has_some = total > 0
        halvings += has_some & (shared == 0)
        matching = np.where(shared > 0, shared, 0.5**halvings)
        logarithms += np.where(has_some, np.log(matching / np.maximum(total, 1)), 0)
        if size == 1:
            is_alike = shared > 0  # without a word in common no longer run is
    orders = np.clip(lengths, 1, _BLEU_MAX_ORDER)[:, None]
    brevity = np.minimum(0, 1 - lengths[None] / np.maximum(lengths, 1)[:, None])
    return np.where(is_alike, 100 * np.exp(brevity + logarithms / orders), 0.0)


def chrf_utilities(texts: Sequence[str]) -> Array:
    """Sentence chrF of 100: runs of 1 to 6 characters, white space left out."""
    lines = ["".join(text.split()) for text in texts]
    lengths = np.array([len(line) for line in lines], dtype=np.float64)
    precision, recall, orders = np.zeros((3, len(texts), len(texts)))
    for size in range(1, _CHRF_MAX_ORDER + 1):
        counts = np.maximum(lengths - size + 1, 0)
        shared = _shared_ngram_counts([_ngrams(line, size) for line in lines])
        is_in_both = (counts[:, None] > 0) & (counts[None] > 0)
        precision += np.where(is_in_both, shared / np.maximum(counts, 1)[:, None], 0)
        recall += np.where(is_in_both, shared / np.maximum(counts, 1)[None], 0)
        orders += is_in_both
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    below = _RECALL * precision + recall
    return 100 * (1 + _RECALL) * precision * recall / np.where(below > 0, below, 1)


def _ngrams(items: Sequence[str], size: int) -> Iterable[object]:
    """List the runs of so many items."""
    if isinstance(items, str):
        return [items[first : first + size] for first in range(len(items) - size + 1)]
    return zip(*(items[first:] for first in range(size)), strict=False)


def _shared_ngram_counts(runs: Sequence[Iterable[object]]) -> Array:
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


UTILITIES: Mapping[UtilityName, Callable[[Sequence[str]], Array]] = {
    "bleu": bleu_utilities,
    "chrf": chrf_utilities,
}


# Consensus: which of several outputs would the others agree with most?
#
# Minimum Bayes risk decoding: what is chosen is not the likeliest output but the one that can be
# expected to gain most, if the truth is as likely to be any output as the model says (Kumar & Byrne
# 2004); outputs that were drawn stand for all there are (Eikema & Aziz 2020). A gain says how good
# one output is if another were the truth. Law: of one output, that one is chosen.

Output = TypeVar("Output")


class DistinctOutputs(NamedTuple):
    """Outputs without those that are there already, and how often each was there."""

    indices: list[int]  # where each was first
    counts: list[int]


def count_distinct(outputs: Sequence[Hashable]) -> DistinctOutputs:
    """Count equal outputs, so that what is gained by each is asked for once."""
    firsts = dict[Hashable, int]()
    for place, output in enumerate(outputs):
        firsts.setdefault(output, place)
    counts = dict.fromkeys(firsts, 0)
    for output in outputs:
        counts[output] += 1
    return DistinctOutputs(list(firsts.values()), list(counts.values()))


def pairwise_utilities(
    outputs: Sequence[Output], utility: Callable[[Output, Output], float]
) -> NDArray[np.float64]:
    """Ask how good each output (a row) is if each (a column) were the truth."""
    return np.array([[utility(output, reference) for reference in outputs] for output in outputs])


def expected_utilities(
    utilities: NDArray[np.float64], counts: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Say what each output can be expected to gain: sum_j n_j gain(i, j) / sum_j n_j.

    An output is among those that may be the truth, as often as it was drawn.
    """
    assert utilities.shape == (len(utilities), len(utilities)), (
        f"not a table of pairs: {utilities.shape}"
    )
    assert np.isfinite(utilities).all(), "a gain is not a number"
    weights = np.ones(len(utilities)) if counts is None else np.array(counts, dtype=np.float64)
    # Exact sums: what is equally good must not differ by the order in which it is added up.
    return np.array([math.fsum(row) for row in utilities * weights]) / weights.sum()


def select_mbr(utilities: NDArray[np.float64], counts: Sequence[int] | None = None) -> int:
    """Give the number of the output that can be expected to gain most; of equal ones the first."""
    return int(expected_utilities(utilities, counts).argmax())
