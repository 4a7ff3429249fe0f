"""Base class of metrics, and the score it returns.

A metric turns each sentence into a row of statistics and computes the corpus score from their sum.
Invariant: the score of a set is `compute` of the summed rows, in any order; so a resampled or
permuted test set is scored without reading the texts again (`significance`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

Array = NDArray[np.float64]
Direction = Literal["lower", "higher"]
ComparedTexts = Literal["references", "sources"]
Counts = tuple[float, ...]
ReferenceLists = Sequence[Sequence[str]]
"""Alternatives per output."""
References = Sequence[str] | ReferenceLists
"""One reference per output, or several alternatives per output."""


class MetricScore(NamedTuple):
    """A value, and the signature of how it was computed."""

    name: str
    value: float  # fractions are percentages
    signature: str


class Metric(ABC):
    """A corpus-level score computed from summed sentence statistics."""

    name: str
    direction: Direction
    compares_with: ClassVar[ComparedTexts] = "references"
    """Which texts outputs are compared with: what is passed to it as references."""

    @abstractmethod
    def sentence_statistics(self, outputs: Sequence[str], references: ReferenceLists) -> Array:
        """Return the statistics of each sentence, (sentences, k)."""

    def compute(self, sums: Array) -> Array:
        """Return the scores (*B) of summed statistics (*B, k): first by second, in percent."""
        return percentage(sums[..., 0], sums[..., 1], if_zero=100.0)

    @abstractmethod
    def signature(self, references: ReferenceLists) -> str:
        """Return how the score is computed, in sacreBLEU's notation."""


class SentenceMetric(Metric):
    """A metric with two statistics per sentence that do not depend on the other sentences."""

    @override
    def sentence_statistics(self, outputs: Sequence[str], references: ReferenceLists) -> Array:
        pairs = enumerate(zip(outputs, references, strict=True), start=1)
        rows = [self.sentence_counts(output, choices, line) for line, (output, choices) in pairs]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    @abstractmethod
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        """Return the statistics of a sentence; `line` counts from 1, for error messages."""

    @override
    def signature(self, references: ReferenceLists) -> str:
        return count_references(references)


def as_multi_reference(references: References) -> list[Sequence[str]]:
    """Return a list of references for each sentence, also where there is only one."""
    return [(choice,) if isinstance(choice, str) else choice for choice in references]


def compute_score(metric: Metric, outputs: Sequence[str], references: References) -> MetricScore:
    """Score outputs against their references."""
    choices = as_multi_reference(references)
    value = metric.compute(metric.sentence_statistics(outputs, choices).sum(axis=0))
    return MetricScore(metric.name, float(value), metric.signature(choices))


def best_ratio(counts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the part and whole with the largest ratio; of equal ones, with the smallest whole."""
    return max(counts, key=lambda row: (row[0] / row[1] if row[1] else 1.0, -row[1]))


def percentage(part: Array, whole: Array, *, if_zero: Array | float) -> Array:
    """Return 100 part / whole, and `if_zero` where the whole is zero."""
    is_positive = whole > 0
    return np.where(is_positive, 100 * part / np.where(is_positive, whole, 1), if_zero)


def count_references(references: ReferenceLists) -> str:
    """Return the number of references per sentence as sacreBLEU writes it: nrefs:2, nrefs:var."""
    counts = {len(choices) for choices in references}
    return f"nrefs:{counts.pop() if len(counts) == 1 else 'var'}"
