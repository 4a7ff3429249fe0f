"""Results: what is known of systems that answered the same test set.

A system is a recipe, trained with one seed or several; each training is a run. What is told of a
system is the mean over its runs, with the deviation where there are several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import mean, stdev
from typing import NamedTuple

from heedful.evaluation.base import Direction, MetricScore
from heedful.evaluation.significance import Difference, Interval


class RunStatistics(NamedTuple):
    """A number found in several runs: their mean, and how far they lie apart."""

    mean: float
    std: float | None = None  # of a sample; None of one run, or of what is not finite

    @classmethod
    def from_values(cls, values: Sequence[float]) -> RunStatistics:
        """Sum up the values of runs."""
        is_spread = len(values) > 1 and all(map(isfinite, values))
        return cls(mean(values), stdev(values) if is_spread else None)


class SystemScore(NamedTuple):
    """A system by one metric."""

    score: MetricScore  # of all runs: its value is their mean
    direction: Direction
    stats: RunStatistics
    interval: Interval | None = None  # over sentences, of the first run
    difference: Difference | None = None  # from the baseline; None for that itself
    by_length: Sequence[tuple[str, int, float | None]] = ()  # name of a group, size, mean score


class ValidationPoint(NamedTuple):
    """Where a training stood at a validation."""

    step: int
    seconds: float | None  # None where the run has not told
    flops: float | None
    scores: Mapping[str, float]  # "loss", "accuracy", and whatever else was judged


class Cost(NamedTuple):
    """What a system took, as far as its runs have told."""

    num_parameters: int
    steps: RunStatistics
    training_seconds: RunStatistics | None  # of training
    training_flops: RunStatistics | None  # of training, as the analytic count has it
    peak_memory: RunStatistics | None  # bytes at the peak of training
    sentences_per_second: RunStatistics  # of decoding the test set; of language models: lines read
    tokens_per_second: RunStatistics  # of output; of language models: tokens read


class System(NamedTuple):
    """One row of a comparison."""

    name: str
    summary: str  # what it is, in a line
    runs: Sequence[str]  # folders
    scores: Sequence[SystemScore]  # in the order of the metrics; the first decides
    cost: Cost
    curves: Sequence[Sequence[ValidationPoint]]  # one for each run
    outputs: Sequence[str]  # of the first run, for the examples


class Failure(NamedTuple):
    """A training that came to nothing, or to less than was asked."""

    name: str  # of the system
    run: str  # folder
    error_message: str


class Comparison(NamedTuple):
    """Systems side by side; the first is the baseline unless another was named."""

    title: str
    test_set: str  # what they were tested on
    num_sentences: int
    budget: str | None  # what each was allowed, where the comparison trained them
    baseline: str
    systems: Sequence[System]
    sources: Sequence[str]  # a few of the test set, with their references, for examples
    references: Sequence[str]
    environment: Mapping[str, str]
    command: str  # that makes this comparison again
    failures: Sequence[Failure] = ()  # their systems may be missing above, or have fewer runs
