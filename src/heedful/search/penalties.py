"""Length and coverage penalties: score = log P / divisor(length)^alpha + coverage(weights).

Invariants: the divisor is monotonic in the length and a coverage penalty is never positive, which
bounds the score of each continuation of a hypothesis.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, NonNegativeFloat

from heedful.config import BaseConfig
from heedful.config.base import with_default_type

CoverageFormula = Literal["gnmt", "repeated", "summary"]
_MIN_COVERAGE = 1e-10  # of a position without any weight, whose logarithm would be -inf


class LengthPenalty(NamedTuple):
    """log P / divisor(length)^alpha; alpha 0 is no penalty.

    The divisor of `gnmt` is (5 + length) / 6 (Wu et al. 2016, equation 14), that of `power` is the
    length; with alpha 1 the latter gives the mean log-probability per token.
    """

    alpha: float = 0.0
    formula: Literal["gnmt", "power"] = "gnmt"

    def __call__(self, log_prob: float, length: int) -> float:
        """Return the score of an output whose length includes EOS."""
        base = (5 + length) / 6 if self.formula == "gnmt" else length
        return float(log_prob / base**self.alpha)

    def upper_bound(self, log_prob: float, length: int, max_length: int) -> float:
        """Return the highest score of any continuation: the shortest or longest, of probability 1.

        (Log-probabilities only fall, and the divisor is monotonic.)
        """
        return max(self(log_prob, length), self(log_prob, max_length))


MEAN_LOG_PROB = LengthPenalty(1.0, "power")
"""log P / length: the mean log-probability per token."""


@dataclass(frozen=True)
class CoveragePenalty:
    """-beta * violation(a), where a_ij is the attention weight of token i on source position j.

    `gnmt`: -sum_j log(min(sum_i a_ij, 1)), uncovered positions (Wu et al. 2016, equation 14). A
    position without any weight counts as 1e-10, so that under hard attention outputs are ranked by
    the number of positions that they leave out.
    `repeated`: sum_i sum_j min(a_ij, sum_(k<i) a_kj), repeated attention: the coverage loss of See
    et al. 2017, equation 12, summed over a whole output.
    `summary`: sum_j max(sum_i a_ij, 1) - S, coverage above 1 (Gehrmann et al. 2018); OpenNMT-py
    calls it `coverage_summary`.
    """

    beta: float
    formula: CoverageFormula = "gnmt"

    def __post_init__(self) -> None:
        assert self.beta >= 0, f"beta must not be negative, but is {self.beta}"

    def __call__(self, weights: NDArray[np.float32]) -> float:
        """Score weights (tokens + EOS, source positions without padding)."""
        attention = weights.astype(np.float64)
        coverage = attention.sum(axis=0)
        if self.formula == "gnmt":
            violation = -np.log(coverage.clip(_MIN_COVERAGE, 1)).sum()
        elif self.formula == "repeated":
            violation = np.minimum(attention, attention.cumsum(axis=0) - attention).sum()
        else:
            violation = (coverage - 1).clip(min=0).sum()
        return -self.beta * float(violation)


class GNMTLengthPenaltyConfig(BaseConfig):
    """log P / ((5 + length) / 6) ^ alpha (Wu et al. 2016, equation 14)."""

    type: Literal["gnmt"] = "gnmt"
    alpha: NonNegativeFloat = Field(default=0.6, le=10)
    """Exponent; 0 is no penalty, larger values favor longer outputs."""

    def build(self) -> LengthPenalty:
        return LengthPenalty(self.alpha)


class PowerLengthPenaltyConfig(BaseConfig):
    """log P / length ^ alpha (Gehring et al. 2017, section 4.3)."""

    type: Literal["power"] = "power"
    alpha: NonNegativeFloat = Field(default=1.0, le=10)
    """Exponent; 0 is no penalty, larger values favor longer outputs."""

    def build(self) -> LengthPenalty:
        return LengthPenalty(self.alpha, "power")


class MeanLengthPenaltyConfig(BaseConfig):
    """log P / length: the mean log-probability per token."""

    type: Literal["mean"] = "mean"

    def build(self) -> LengthPenalty:
        return MEAN_LOG_PROB


class NoLengthPenaltyConfig(BaseConfig):
    """log P without a penalty."""

    type: Literal["none"] = "none"

    def build(self) -> LengthPenalty:
        return LengthPenalty()


_LengthPenalties = Annotated[
    GNMTLengthPenaltyConfig
    | PowerLengthPenaltyConfig
    | MeanLengthPenaltyConfig
    | NoLengthPenaltyConfig,
    Field(discriminator="type"),
]


def _from_name_or_number(value: Any) -> Any:
    """Read a bare number as the alpha of gnmt, and a bare word as a type."""
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


class _CoveragePenaltyConfig(BaseConfig):
    type: CoverageFormula
    beta: NonNegativeFloat = 1.0
    """Weight of the penalty."""

    def build(self) -> CoveragePenalty:
        return CoveragePenalty(self.beta, self.type)


class GNMTCoveragePenaltyConfig(_CoveragePenaltyConfig):
    """Penalize source positions with little attention (Wu et al. 2016, equation 14)."""

    type: Literal["gnmt"] = "gnmt"
    beta: NonNegativeFloat = 0.2
    """Weight of the penalty."""


class RepeatedCoveragePenaltyConfig(_CoveragePenaltyConfig):
    """Penalize attending to the same positions again (See et al. 2017, equation 12)."""

    type: Literal["repeated"] = "repeated"


class SummaryCoveragePenaltyConfig(_CoveragePenaltyConfig):
    """Penalize positions whose attention adds up to more than 1 (Gehrmann et al. 2018)."""

    type: Literal["summary"] = "summary"


CoveragePenaltyConfig = Annotated[
    GNMTCoveragePenaltyConfig | RepeatedCoveragePenaltyConfig | SummaryCoveragePenaltyConfig,
    Field(discriminator="type"),
]
