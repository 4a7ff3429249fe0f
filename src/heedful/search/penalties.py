"""Choices of decoding: the parts of a search, as a configuration names them.

Each builds the part of `heedful.search` that it describes; what the parts promise is said there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, NonNegativeFloat

from heedful.config import BaseConfig
from heedful.config.base import with_default_type

# Penalties: how is the worth of an output corrected for its length, and for where it looked?
#
# An output is ranked by `log P / divisor(length) + coverage_penalty(weights)`. A divisor grows with the
# length and a coverage penalty is never above zero: that is what bounds the worth of an output of
# which only the beginning is known.

_MIN_COVERAGE = 1e-10  # what a place got that nobody looked at: its logarithm would rank nothing


class LengthPenalty(NamedTuple):
    """log P / divisor(length) ^ alpha; alpha 0 is none.

    `gnmt`: the divisor is (5 + length) / 6 (Wu et al. 2016, equation 14). `power`: it is the
    length itself, and with alpha 1 the score is the average of the log-probabilities.
    """

    alpha: float = 0.0
    formula: Literal["gnmt", "power"] = "gnmt"

    def __call__(self, log_prob: float, length: int) -> float:
        """Score an output of so many tokens, its end symbol counted."""
        base = (5 + length) / 6 if self.formula == "gnmt" else length
        return float(log_prob / base**self.alpha)

    def upper_bound(self, log_prob: float, length: int, max_length: int) -> float:
        """The most that an output can score whose beginning has this length and worth.

        Log-probabilities only fall and the divisor only goes one way, so that the best case is to
        gain nothing but length, or not even that.
        """
        return max(self(log_prob, length), self(log_prob, max_length))


MEAN_LOG_PROB = LengthPenalty(1.0, "power")
"""log P / length: the worth of an output is that of its average token."""


class CoveragePenalty(ABC):
    """What an output loses for where it looked."""

    def __init__(self, beta: float) -> None:
        assert beta >= 0, f"a penalty lowers: {beta}"
        self.beta = beta

    def __call__(self, weights: NDArray[np.float32]) -> float:
        """Judge the weights (tokens and end, real places of the source)."""
        return -self.beta * self.violation(weights.astype(np.float64))

    @abstractmethod
    def violation(self, weights: NDArray[np.float64]) -> float:
        """Say how much is wrong; nothing is 0."""


class GNMTCoveragePenalty(CoveragePenalty):
    """beta * sum_j log(min(sum_i a_ij, 1)): what was not looked at (Wu et al. 2016, equation 14).

    Places that got nothing at all count as if they had got 1e-10: under attention that looks at
    one place each time, outputs are thus ranked by how many places they left out.
    """

    def violation(self, weights: NDArray[np.float64]) -> float:
        """Count what is missing, by its logarithm."""
        return float(-np.log(weights.sum(axis=0).clip(_MIN_COVERAGE, 1)).sum())


class RepeatedCoveragePenalty(CoveragePenalty):
    """-beta * sum_i sum_j min(a_ij, sum_(k<i) a_kj): what was looked at again (See et al. 2017).

    It is the coverage loss of their equation 12, over a whole output.
    """

    def violation(self, weights: NDArray[np.float64]) -> float:
        """Count what overlaps with what was seen before."""
        before = weights.cumsum(axis=0) - weights
        return float(np.minimum(weights, before).sum())


class SummaryCoveragePenalty(CoveragePenalty):
    """-beta * (sum_j max(sum_i a_ij, 1) - S): places that got more than one (Gehrmann et al. 2018).

    Toolkits call it the penalty for summaries.
    """

    def violation(self, weights: NDArray[np.float64]) -> float:
        """Count what went beyond one."""
        return float((weights.sum(axis=0) - 1).clip(min=0).sum())


Probability = Annotated[float, Field(gt=0, le=1)]


class GNMTLengthPenaltyConfig(BaseConfig):
    """log P / ((5 + length) / 6) ^ alpha (Wu et al. 2016, equation 14)."""

    type: Literal["gnmt"] = "gnmt"
    alpha: NonNegativeFloat = 0.6
    """The exponent; 0 leaves scores as they are."""

    def build(self) -> LengthPenalty:
        """Make the penalty."""
        return LengthPenalty(self.alpha)


class PowerLengthPenaltyConfig(BaseConfig):
    """log P / length ^ alpha."""

    type: Literal["power"] = "power"
    alpha: NonNegativeFloat = 1.0
    """The exponent; 0 leaves scores as they are."""

    def build(self) -> LengthPenalty:
        """Make the penalty."""
        return LengthPenalty(self.alpha, "power")


class MeanLengthPenaltyConfig(BaseConfig):
    """log P / length: the worth of the average token."""

    type: Literal["mean"] = "mean"

    def build(self) -> LengthPenalty:
        """Make the penalty."""
        return MEAN_LOG_PROB


class NoLengthPenaltyConfig(BaseConfig):
    """log P as it is."""

    type: Literal["none"] = "none"

    def build(self) -> LengthPenalty:
        """Make what changes nothing."""
        return LengthPenalty()


_LengthPenalties = Annotated[
    GNMTLengthPenaltyConfig
    | PowerLengthPenaltyConfig
    | MeanLengthPenaltyConfig
    | NoLengthPenaltyConfig,
    Field(discriminator="type"),
]


def _from_name_or_number(value: Any) -> Any:
    """A plain number is the exponent of gnmt, a plain word a kind."""
    if isinstance(value, str):
        return {"type": value}
    return {"type": "gnmt", "alpha": value} if isinstance(value, int | float) else value


LengthPenaltyConfig = Annotated[
    _LengthPenalties,
    with_default_type("gnmt"),
    BeforeValidator(
        _from_name_or_number,
        json_schema_input_type=_LengthPenalties | float | Literal["gnmt", "power", "mean", "none"],
    ),
]


class GNMTCoveragePenaltyConfig(BaseConfig):
    """What was not looked at lowers the score (Wu et al. 2016, equation 14)."""

    type: Literal["gnmt"] = "gnmt"
    beta: NonNegativeFloat = 0.2
    """How much it counts."""

    def build(self) -> CoveragePenalty:
        """Make the penalty."""
        return GNMTCoveragePenalty(self.beta)


class RepeatedCoveragePenaltyConfig(BaseConfig):
    """What was looked at again lowers the score (See et al. 2017, equation 12)."""

    type: Literal["repeated"] = "repeated"
    beta: NonNegativeFloat = 1.0
    """How much it counts."""

    def build(self) -> CoveragePenalty:
        """Make the penalty."""
        return RepeatedCoveragePenalty(self.beta)


class SummaryCoveragePenaltyConfig(BaseConfig):
    """Places that got more than one look in all lower the score (Gehrmann et al. 2018)."""

    type: Literal["summary"] = "summary"
    beta: NonNegativeFloat = 1.0
    """How much it counts."""

    def build(self) -> CoveragePenalty:
        """Make the penalty."""
        return SummaryCoveragePenalty(self.beta)


CoveragePenaltyConfig = Annotated[
    GNMTCoveragePenaltyConfig | RepeatedCoveragePenaltyConfig | SummaryCoveragePenaltyConfig,
    Field(discriminator="type"),
]
