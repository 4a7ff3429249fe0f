"""Results of a comparison.

A system is a recipe trained with one or more seeds; each training is a run. The number of a
system is the mean over its runs, with the standard deviation where there are several.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import mean, stdev
from typing import NamedTuple, Self

from heedful.evaluation.base import Direction, MetricScore
from heedful.evaluation.significance import Difference, Interval


class RunStatistics(NamedTuple):
    """Mean and sample standard deviation of a number over runs."""

    mean: float
    std: float | None = None  # None for one run, or if a value is not finite

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Self:
        """Compute the statistics of the values of runs."""
        has_std = len(values) > 1 and all(map(isfinite, values))
        return cls(mean(values), stdev(values) if has_std else None)


class SystemScore(NamedTuple):
    """Score of a system by one metric."""

    score: MetricScore  # its value is the mean over runs
    direction: Direction
    stats: RunStatistics
    interval: Interval | None = None  # over sentences, of the first run
    difference: Difference | None = None  # from the baseline; None for the baseline itself
    by_length: Sequence[tuple[str, int, float | None]] = ()  # group, size, mean score

    def renamed(self, name: str) -> Self:
        """Return the same score under another name."""
        return self._replace(score=self.score._replace(name=name))


class ValidationPoint(NamedTuple):
    """Metrics of a validation and its position in training; None where it was not logged."""

    step: int
    seconds: float | None
    flops: float | None
    scores: Mapping[str, float]


class Cost(NamedTuple):
    """Cost of a system; None where its runs have not logged it."""

    num_parameters: int
    steps: RunStatistics
    training_seconds: RunStatistics | None
    training_flops: RunStatistics | None  # analytic count
    peak_memory: RunStatistics | None  # bytes
    sentences_per_second: RunStatistics  # decoding; for language models, lines read
    tokens_per_second: RunStatistics  # of the output; for language models, tokens read


class System(NamedTuple):
    """One row of a comparison."""

    name: str
    summary: str
    runs: Sequence[str]  # folders
    scores: Sequence[SystemScore]  # by metric; the first is the main one
    cost: Cost
    curves: Sequence[Sequence[ValidationPoint]]  # one per run
    outputs: Sequence[str]  # of the first run, for the examples


class Failure(NamedTuple):
    """A training that failed."""

    name: str  # of the system
    run: str  # folder
    error_message: str


class Comparison(NamedTuple):
    """Systems evaluated on the same test set."""

    title: str
    test_set: str
    num_sentences: int
    budget: str | None  # of each run, if the comparison trained them
    baseline: str
    systems: Sequence[System]
    sources: Sequence[str]  # of the examples
    references: Sequence[str]
    environment: Mapping[str, str]
    command: str  # that reproduces the comparison
    failures: Sequence[Failure] = ()  # their systems may be missing, or have fewer runs
