"""Significance: could the better of two systems have been so by chance?

Both answered the same sentences. p is how often a difference at least as large, in either
direction, would come about if the systems were equally good: by paired bootstrap (Koehn 2004), for
which the resampled differences are moved so that their mean is zero, or by approximate
randomisation (Riezler & Maxwell 2005), in which the outputs of the two are exchanged by the toss of
a coin, sentence by sentence. Laws: a system against itself has p = 1; which of the two is called
the baseline has no influence on p; p is never 0.

sacreBLEU's paired bootstrap takes absolute values before it moves the mean. Where a difference is
clear it so counts one tail only, and its p is about half of this one; the other test is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from heedful.evaluation.measures import Array
from heedful.evaluation.resampling import SAMPLES, SEED, Total, pieces, resampled

Test = Literal["bootstrap", "randomisation"]

TRIALS = 10_000
LEVEL = 0.05  # below which a difference is marked

_ROUNDING = 1e-9  # sums of other orders differ by less


class Difference(NamedTuple):
    """How far a system's score is from a baseline's, and how likely that is by chance."""

    value: float  # the system's score less the baseline's
    p: float

    @property
    def is_significant(self) -> bool:
        """Whether it is marked."""
        return self.p < LEVEL


def compare(
    system: Array, baseline: Array, total: Total, *, test: Test = "randomisation", seed: int = SEED
) -> Difference:
    """Compare two systems by their statistics of the same sentences, (sentences, k) each."""
    chosen = {"bootstrap": paired_bootstrap, "randomisation": approximate_randomisation}
    return chosen[test](system, baseline, total, seed=seed)


def paired_bootstrap(
    system: Array, baseline: Array, total: Total, *, samples: int = SAMPLES, seed: int = SEED
) -> Difference:
    """Draw sentences anew, the same for both systems."""
    both = _beside(system, baseline)
    width = system.shape[1]
    found = [
        total(sums[:, :width]) - total(sums[:, width:]) for sums in resampled(both, samples, seed)
    ]
    differences = np.concatenate(found)
    return _judge(system, baseline, total, [differences - differences.mean()])


def approximate_randomisation(
    system: Array, baseline: Array, total: Total, *, samples: int = TRIALS, seed: int = SEED
) -> Difference:
    """Exchange the outputs of sentences at random."""
    change = _beside(system, baseline)[:, : system.shape[1]] - baseline
    whole, generator = system.sum(axis=0), np.random.default_rng(seed)
    found = list[Array]()
    for count in pieces(samples, len(system)):
        exchanged = generator.integers(2, size=(count, len(system)), dtype=np.int8) @ change
        found.append(total(whole - exchanged) - total(baseline.sum(axis=0) + exchanged))
    return _judge(system, baseline, total, found)


def _beside(system: Array, baseline: Array) -> Array:
    assert system.shape == baseline.shape, f"{system.shape} and {baseline.shape} cannot be paired"
    return np.concatenate([system, baseline], axis=1)


def _judge(system: Array, baseline: Array, total: Total, by_chance: Iterable[Array]) -> Difference:
    value = float(total(system.sum(axis=0)) - total(baseline.sum(axis=0)))
    differences = np.abs(np.concatenate(list(by_chance)))
    as_large = int((differences >= abs(value) - _ROUNDING).sum())
    return Difference(value, (as_large + 1) / (len(differences) + 1))
