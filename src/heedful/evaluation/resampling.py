"""Resampling: how much of a score is owed to the sentences that happened to be asked?

A test set is drawn anew from its own sentences, some of them several times and others not at all,
and scored again (Koehn 2004, section 3). Laws: the same seed gives the same interval; sentences
that are all alike leave no doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from heedful.evaluation.measures import Array

SEED = 12345  # sacreBLEU's
SAMPLES = 1000

_MOST = 4_000_000  # sentences that are drawn at a time

Total = Callable[[Array], Array]
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


def bootstrap(
    statistics: Array,
    total: Total,
    *,
    level: float = 0.95,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> Interval:
    """Find the interval within which `level` of the scores of resampled sets lie."""
    assert 0 < level < 1, f"{level} is no share between 0 and 1"
    scores = np.concatenate([total(sums) for sums in resampled(statistics, samples, seed)])
    ends = (1 - level) / 2, (1 + level) / 2
    # Scores that came about, not points between two of them: one of these may be infinite.
    low, high = np.quantile(scores, ends, method="inverted_cdf")
    return Interval(float(low), float(high), level)


def resampled(statistics: Array, samples: int, seed: int) -> Iterator[Array]:
    """Draw sets of sentences anew, and give their sums (some of the samples, k)."""
    size = len(statistics)
    generator = np.random.default_rng(seed)
    for count in pieces(samples, size):
        drawn = generator.integers(size, size=(count, size))
        drawn += size * np.arange(count)[:, None]  # each row has numbers of its own
        times = np.bincount(drawn.ravel(), minlength=count * size).reshape(count, size)
        yield times @ statistics


def pieces(samples: int, size: int) -> Iterator[int]:
    """Part samples of so many sentences into numbers that fit into memory."""
    assert samples > 0 < size, f"{samples} samples of {size} sentences"
    most = max(1, _MOST // size)
    for start in range(0, samples, most):
        yield min(most, samples - start)
