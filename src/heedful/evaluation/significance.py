"""Resampling: how much of a score is owed to the sentences that happened to be asked?

A test set is drawn anew from its own sentences, some of them several times and others not at all,
and scored again (Koehn 2004, section 3). Laws: the same seed gives the same interval; sentences
that are all alike leave no doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from heedful.evaluation.base import Array

SEED = 12345  # sacreBLEU's
NUM_BOOTSTRAP_SAMPLES = 1000

_MAX_ELEMENTS = 4_000_000  # sentences that are drawn at a time

ComputeFunction = Callable[[Array], Array]
"""Makes scores (*B) of sums (*B, k)."""


class Interval(NamedTuple):
    """Where a score would lie in `level` of all test sets like this one."""

    low: float
    high: float
    level: float

    @property
    def half_width(self) -> float:
        """Half the distance from end to end, as in 31.2 +- 0.7."""
        return (self.high - self.low) / 2


def bootstrap_interval(
    statistics: Array,
    compute: ComputeFunction,
    *,
    level: float = 0.95,
    num_samples: int = NUM_BOOTSTRAP_SAMPLES,
    seed: int = SEED,
) -> Interval:
    """Find the interval within which `level` of the scores of resampled sets lie."""
    assert 0 < level < 1, f"{level} is no share between 0 and 1"
    scores = np.concatenate(
        [compute(sums) for sums in resample_sums(statistics, num_samples, seed)]
    )
    ends = (1 - level) / 2, (1 + level) / 2
    # Scores that came about, not points between two of them: one of these may be infinite.
    low, high = np.quantile(scores, ends, method="inverted_cdf")
    return Interval(float(low), float(high), level)


def resample_sums(statistics: Array, num_samples: int, seed: int) -> Iterator[Array]:
    """Draw sets of sentences anew, and give their sums (some of the samples, k)."""
    size = len(statistics)
    generator = np.random.default_rng(seed)
    for count in batch_sizes(num_samples, size):
        drawn = generator.integers(size, size=(count, size))
        drawn += size * np.arange(count)[:, None]  # each row has numbers of its own
        times = np.bincount(drawn.ravel(), minlength=count * size).reshape(count, size)
        yield times @ statistics


def batch_sizes(num_samples: int, size: int) -> Iterator[int]:
    """Part samples of so many sentences into numbers that fit into memory."""
    assert num_samples > 0 < size, f"{num_samples} samples of {size} sentences"
    most = max(1, _MAX_ELEMENTS // size)
    for start in range(0, num_samples, most):
        yield min(most, num_samples - start)


# Significance: could the better of two systems have been so by chance?
#
# Both answered the same sentences. p is how often a difference at least as large, in either
# direction, would come about if the systems were equally good: by paired bootstrap (Koehn 2004), for
# which the resampled differences are moved so that their mean is zero, or by approximate
# randomisation (Riezler & Maxwell 2005), in which the outputs of the two are exchanged by the toss of
# a coin, sentence by sentence. Laws: a system against itself has p = 1; which of the two is called
# the baseline has no influence on p; p is never 0.
#
# sacreBLEU's paired bootstrap takes absolute values before it moves the mean. Where a difference is
# clear it so counts one tail only, and its p is about half of this one; the other test is the same.

SignificanceTest = Literal["bootstrap", "randomization"]

NUM_TRIALS = 10_000
SIGNIFICANCE_LEVEL = 0.05  # below which a difference is marked

_TIE_TOLERANCE = 1e-9  # sums of other orders differ by less


class Difference(NamedTuple):
    """How far a system's score is from a baseline's, and how likely that is by chance."""

    value: float  # the system's score less the baseline's
    p_value: float

    @property
    def is_significant(self) -> bool:
        """Whether it is marked."""
        return self.p_value < SIGNIFICANCE_LEVEL


def compare_systems(
    system: Array,
    baseline: Array,
    compute: ComputeFunction,
    *,
    test: SignificanceTest = "randomization",
    seed: int = SEED,
) -> Difference:
    """Compare two systems by their statistics of the same sentences, (sentences, k) each."""
    chosen = {"bootstrap": paired_bootstrap, "randomization": approximate_randomization}
    return chosen[test](system, baseline, compute, seed=seed)


def paired_bootstrap(
    system: Array,
    baseline: Array,
    compute: ComputeFunction,
    *,
    num_samples: int = NUM_BOOTSTRAP_SAMPLES,
    seed: int = SEED,
) -> Difference:
    """Draw sentences anew, the same for both systems."""
    both = _stack(system, baseline)
    width = system.shape[1]
    found = [
        compute(sums[:, :width]) - compute(sums[:, width:])
        for sums in resample_sums(both, num_samples, seed)
    ]
    differences = np.concatenate(found)
    return _estimate_p_value(system, baseline, compute, [differences - differences.mean()])


def approximate_randomization(
    system: Array,
    baseline: Array,
    compute: ComputeFunction,
    *,
    num_samples: int = NUM_TRIALS,
    seed: int = SEED,
) -> Difference:
    """Exchange the outputs of sentences at random."""
    change = _stack(system, baseline)[:, : system.shape[1]] - baseline
    whole, generator = system.sum(axis=0), np.random.default_rng(seed)
    found = list[Array]()
    for count in batch_sizes(num_samples, len(system)):
        exchanged = generator.integers(2, size=(count, len(system)), dtype=np.int8) @ change
        found.append(compute(whole - exchanged) - compute(baseline.sum(axis=0) + exchanged))
    return _estimate_p_value(system, baseline, compute, found)


def _stack(system: Array, baseline: Array) -> Array:
    assert system.shape == baseline.shape, f"{system.shape} and {baseline.shape} cannot be paired"
    return np.concatenate([system, baseline], axis=1)


def _estimate_p_value(
    system: Array, baseline: Array, compute: ComputeFunction, null_samples: Iterable[Array]
) -> Difference:
    value = float(compute(system.sum(axis=0)) - compute(baseline.sum(axis=0)))
    differences = np.abs(np.concatenate(list(null_samples)))
    as_large = int((differences >= abs(value) - _TIE_TOLERANCE).sum())
    return Difference(value, (as_large + 1) / (len(differences) + 1))
