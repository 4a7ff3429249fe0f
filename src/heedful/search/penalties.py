"""Penalties: how is the worth of an output corrected for its length, and for where it looked?

An output is ranked by `log P / divisor(length) + coverage(weights)`. A divisor grows with the
length and a coverage penalty is never above zero: that is what bounds the worth of an output of
which only the beginning is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LEAST = 1e-10  # what a place got that nobody looked at: its logarithm would rank nothing


class LengthPenalty(NamedTuple):
    """log P / divisor(length) ^ alpha; alpha 0 is none.

    `gnmt`: the divisor is (5 + length) / 6 (Wu et al. 2016, equation 14). `power`: it is the
    length itself, and with alpha 1 the score is the average of the log-probabilities.
    """

    alpha: float = 0.0
    form: Literal["gnmt", "power"] = "gnmt"

    def __call__(self, log_prob: float, length: int) -> float:
        """Score an output of so many tokens, its end symbol counted."""
        base = (5 + length) / 6 if self.form == "gnmt" else length
        return float(log_prob / base**self.alpha)

    def bound(self, log_prob: float, length: int, longest: int) -> float:
        """The most that an output can score whose beginning has this length and worth.

        Log-probabilities only fall and the divisor only goes one way, so that the best case is to
        gain nothing but length, or not even that.
        """
        return max(self(log_prob, length), self(log_prob, longest))


AVERAGE = LengthPenalty(1.0, "power")
"""log P / length: the worth of an output is that of its average token."""


class CoveragePenalty(ABC):
    """What an output loses for where it looked."""

    def __init__(self, beta: float) -> None:
        assert beta >= 0, f"a penalty lowers: {beta}"
        self.beta = beta

    def __call__(self, weights: NDArray[np.float32]) -> float:
        """Judge the weights (tokens and end, real places of the source)."""
        return -self.beta * self.fault(weights.astype(np.float64))

    @abstractmethod
    def fault(self, weights: NDArray[np.float64]) -> float:
        """Say how much is wrong; nothing is 0."""


class Overlooked(CoveragePenalty):
    """beta * sum_j log(min(sum_i a_ij, 1)): what was not looked at (Wu et al. 2016, equation 14).

    Places that got nothing at all count as if they had got 1e-10: under attention that looks at
    one place each time, outputs are thus ranked by how many places they left out.
    """

    def fault(self, weights: NDArray[np.float64]) -> float:
        """Count what is missing, by its logarithm."""
        return float(-np.log(weights.sum(axis=0).clip(_LEAST, 1)).sum())


class LookedAgain(CoveragePenalty):
    """-beta * sum_i sum_j min(a_ij, sum_(k<i) a_kj): what was looked at again (See et al. 2017).

    It is the coverage loss of their equation 12, over a whole output.
    """

    def fault(self, weights: NDArray[np.float64]) -> float:
        """Count what overlaps with what was seen before."""
        before = weights.cumsum(axis=0) - weights
        return float(np.minimum(weights, before).sum())


class LookedTooLong(CoveragePenalty):
    """-beta * (sum_j max(sum_i a_ij, 1) - S): places that got more than one (Gehrmann et al. 2018).

    Toolkits call it the penalty for summaries.
    """

    def fault(self, weights: NDArray[np.float64]) -> float:
        """Count what went beyond one."""
        return float((weights.sum(axis=0) - 1).clip(min=0).sum())
