"""Confidence intervals and significance tests over sentences.

Both work on the sentence statistics of a metric. Invariants: the same seed gives the same result; a
set of equal sentences has an interval of width 0; a system against itself has p = 1; which of two
systems is the baseline does not change p; p is never 0.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from heedful.evaluation.base import Array

SEED = 12345  # sacreBLEU's
NUM_BOOTSTRAP_SAMPLES = 1000
NUM_TRIALS = 10_000
SIGNIFICANCE_LEVEL = 0.05

_MAX_ELEMENTS = 4_000_000  # sampled sentences in memory at a time
_TIE_TOLERANCE = 1e-9  # sums in another order differ by less

ComputeFunction = Callable[[Array], Array]
"""`Metric.compute`: scores (*B) of summed statistics (*B, k)."""
SignificanceTest = Literal["bootstrap", "randomization"]


class Interval(NamedTuple):
    """Confidence interval at `level`, such as 0.95."""

    low: float
    high: float
    level: float


class Difference(NamedTuple):
    """Difference of a system from a baseline."""

    value: float  # score of the system minus score of the baseline
    p_value: float

    @property
    def is_significant(self) -> bool:
        """Whether p is below `SIGNIFICANCE_LEVEL`."""
        return self.p_value < SIGNIFICANCE_LEVEL


def bootstrap_interval(
    statistics: Array,
    compute: ComputeFunction,
    *,
    level: float = 0.95,
    num_samples: int = NUM_BOOTSTRAP_SAMPLES,
    seed: int = SEED,
) -> Interval:
    """Return the bootstrap confidence interval of a score (Koehn 2004, section 3)."""
    assert 0 < level < 1, f"level must be between 0 and 1, but is {level}"
    samples = resample_sums(statistics, num_samples, seed)
    scores = np.concatenate([compute(sums) for sums in samples])
    # Observed scores, not interpolated ones: a score may be infinite.
    low, high = np.quantile(scores, ((1 - level) / 2, (1 + level) / 2), method="inverted_cdf")
    return Interval(float(low), float(high), level)


def resample_sums(statistics: Array, num_samples: int, seed: int) -> Iterator[Array]:
    """Yield batches of summed statistics (samples, k) of sentences drawn with replacement."""
    size = len(statistics)
    generator = np.random.default_rng(seed)
    for count in batch_sizes(num_samples, size):
        drawn = generator.integers(size, size=(count, size))
        drawn += size * np.arange(count)[:, None]  # a separate range of indices for each sample
        counts = np.bincount(drawn.ravel(), minlength=count * size).reshape(count, size)
        yield counts @ statistics


def batch_sizes(num_samples: int, size: int) -> Iterator[int]:
    """Split the samples of `size` sentences into batches that fit into memory."""
    assert num_samples > 0 < size, f"{num_samples} samples of {size} sentences"
    max_batch = max(1, _MAX_ELEMENTS // size)
    for start in range(0, num_samples, max_batch):
        yield min(max_batch, num_samples - start)


def compare_systems(
    system: Array,
    baseline: Array,
    compute: ComputeFunction,
    *,
    test: SignificanceTest = "randomization",
    num_samples: int | None = None,
    seed: int = SEED,
) -> Difference:
    """Compare two systems, two-sided, by their statistics of the same sentences (sentences, k).

    `bootstrap` resamples the same sentences for both systems (Koehn 2004), 1000 times by default;
    `randomization` swaps the outputs of random sentences (Riezler & Maxwell 2005), 10,000 times.
    """
    assert system.shape == baseline.shape, f"{system.shape} and {baseline.shape} cannot be paired"
    resample, default_samples = {
        "bootstrap": (_bootstrap_differences, NUM_BOOTSTRAP_SAMPLES),
        "randomization": (_randomized_differences, NUM_TRIALS),
    }[test]
    null_differences = resample(system, baseline, compute, num_samples or default_samples, seed)
    value = float(compute(system.sum(axis=0)) - compute(baseline.sum(axis=0)))
    num_as_large = int((np.abs(null_differences) >= abs(value) - _TIE_TOLERANCE).sum())
    return Difference(value, (num_as_large + 1) / (len(null_differences) + 1))


def _bootstrap_differences(
    system: Array, baseline: Array, compute: ComputeFunction, num_samples: int, seed: int
) -> Array:
    """Return the resampled differences, shifted to mean 0.

    sacreBLEU takes absolute values first, so that its p of a clear difference is about half of it.
    """
    both, k = np.concatenate([system, baseline], axis=1), system.shape[1]
    samples = resample_sums(both, num_samples, seed)
    resampled = np.concatenate([compute(sums[:, :k]) - compute(sums[:, k:]) for sums in samples])
    return resampled - resampled.mean()


def _randomized_differences(
    system: Array, baseline: Array, compute: ComputeFunction, num_samples: int, seed: int
) -> Array:
    change, total, baseline_total = system - baseline, system.sum(axis=0), baseline.sum(axis=0)
    generator = np.random.default_rng(seed)
    differences = []
    for count in batch_sizes(num_samples, len(system)):
        swapped = generator.integers(2, size=(count, len(system)), dtype=np.int8) @ change
        differences.append(compute(total - swapped) - compute(baseline_total + swapped))
    return np.concatenate(differences)
