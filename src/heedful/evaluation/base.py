"""Measures: what is counted in each sentence, so that a score can be told of any set of them?

A measure gives every sentence a row of statistics, and makes its score of their sum. Law: the
score of a set is `total` of the added rows, whatever their order. So a set that is drawn anew, or
of which sentences are exchanged, is scored without looking at a text again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Direction = Literal["lower", "higher"]
References = Sequence[str] | Sequence[Sequence[str]]
"""One text for each output, or several of which any would do."""


class MetricScore(NamedTuple):
    """A number, and exactly how it was computed."""

    name: str
    value: float  # of 100 where it is a share
    signature: str


class Metric(Protocol):
    """A score that adds up from statistics of sentences."""

    @property
    def name(self) -> str:
        """What a table calls it."""
        ...

    @property
    def direction(self) -> Direction:
        """Which scores are the better ones."""
        ...

    def sentence_statistics(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Array:
        """Count what matters in each sentence: (sentences, k)."""
        ...

    def compute(self, sums: Array) -> Array:
        """Turn statistics that have been added up, (*B, k), into scores, (*B)."""
        ...

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """Say exactly how it is computed."""
        ...


def as_multi_reference(references: References) -> list[Sequence[str]]:
    """Give each sentence a list of references, though there be one."""
    return [(each,) if isinstance(each, str) else each for each in references]


def compute_score(metric: Metric, outputs: Sequence[str], references: References) -> MetricScore:
    """Measure outputs."""
    choices = as_multi_reference(references)
    value = metric.compute(metric.sentence_statistics(outputs, choices).sum(axis=0))
    return MetricScore(metric.name, float(value), metric.signature(choices))


def zip_references(
    outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Go through outputs beside their references; there must be as many of the one as the other."""
    return zip(outputs, references, strict=True)


def percentage(part: Array, whole: Array, *, if_zero: Array | float) -> Array:
    """100 part / whole, and `if_zero` where the whole is zero."""
    is_some = whole > 0
    return np.where(is_some, 100 * part / np.where(is_some, whole, 1), if_zero)


def count_references(references: Sequence[Sequence[str]]) -> str:
    """How many references a sentence has, as a signature says it."""
    counts = {len(each) for each in references}
    return f"nrefs:{counts.pop() if len(counts) == 1 else 'var'}"
