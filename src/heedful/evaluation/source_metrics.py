"""Metrics of outputs against their sources: novel n-grams and copied fragments of summaries.

They describe how abstractive a system is, not how good: compare them with those of the references.
Invariant: an output that is a contiguous part of its source has novelty 0 and coverage 100, one
that shares no word with it novelty 100 and coverage 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from typing_extensions import override

from heedful.evaluation import base
from heedful.evaluation.base import Array, Counts, Direction, ReferenceLists, SentenceMetric
from heedful.evaluation.text_metrics import ngrams, unicode_words

_SIGNATURE = "case:lc|tok:unicode_words"


@dataclass(frozen=True)
class NgramNovelty(SentenceMetric):
    """Percentage of the n-grams of the outputs that their source does not have (See et al. 2017).

    Every occurrence counts, over all outputs; outputs shorter than n words have no n-grams.
    """

    name: str
    order: int
    direction: Direction = "higher"
    compares_with = "sources"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        known = {ngram for text in references for ngram in ngrams(unicode_words(text), self.order)}
        output_ngrams = ngrams(unicode_words(output), self.order)
        return sum(ngram not in known for ngram in output_ngrams), len(output_ngrams)

    @override
    def compute(self, sums: Array) -> Array:
        return base.percentage(sums[..., 0], sums[..., 1], if_zero=0.0)

    @override
    def signature(self, references: ReferenceLists) -> str:
        return _SIGNATURE


def extractive_fragments(source: Sequence[str], summary: Sequence[str]) -> list[int]:
    """Return the lengths of the fragments F(A, S) that a summary shares with its source.

    From left to right, each is the longest run of words from here on that the source has anywhere
    (Grusky et al. 2018, figure 2).
    """
    positions: dict[str, list[int]] = {}
    for position, word in enumerate(source):
        positions.setdefault(word, []).append(position)
    lengths, start = [], 0
    while start < len(summary):
        starts = positions.get(summary[start], ())
        matches = (_common_prefix(source[at:], summary[start:]) for at in starts)
        length = max(matches, default=0)
        if length:
            lengths.append(length)
        start += max(length, 1)
    return lengths


def _common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@dataclass(frozen=True)
class FragmentStatistic(SentenceMetric):
    """Mean over outputs of a statistic of the fragments that they share with their source.

    `statistic` takes the lengths of the fragments and the number of words of the output. An empty
    output counts as 0.
    """

    name: str
    unit: str
    statistic: Callable[[Sequence[int], int], float]
    direction: Direction = "higher"
    compares_with = "sources"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        words = unicode_words(output)
        fragments = extractive_fragments(unicode_words(" ".join(references)), words)
        return self.statistic(fragments, max(len(words), 1)), 1

    @override
    def compute(self, sums: Array) -> Array:
        return sums[..., 0] / np.maximum(sums[..., 1], 1)

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"{_SIGNATURE}|unit:{self.unit}"


FRAGMENT_COVERAGE = FragmentStatistic(
    "fragment coverage", "percent", lambda fragments, size: 100 * sum(fragments) / size
)
"""Share of the words of an output that belong to a fragment (Grusky et al. 2018, equation 1)."""
FRAGMENT_DENSITY = FragmentStatistic(
    "fragment density", "words", lambda fragments, size: sum(n * n for n in fragments) / size
)
"""Mean length of the fragment of a word (Grusky et al. 2018, equation 2)."""
MAX_FRAGMENT_LENGTH = FragmentStatistic(
    "longest fragment", "words", lambda fragments, size: max(fragments, default=0)
)
"""Words of the longest fragment."""
