"""Choices of decoding: the parts of a search, as a configuration names them.

Each builds the part of `heedful.search` that it describes; what the parts promise is said there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from heedful.config import Choice
from heedful.config.choice import assuming, naming
from heedful.search import (
    AVERAGE,
    FIRST,
    CoveragePenalty,
    Diversity,
    LengthPenalty,
    Optimal,
    Patience,
    Settled,
    Stopping,
)
from heedful.search.penalties import LookedAgain, LookedTooLong, Overlooked
from heedful.search.sampling import Sampling

Share = Annotated[float, Field(gt=0, le=1)]


class GnmtLengthConfig(Choice):
    """log P / ((5 + length) / 6) ^ alpha (Wu et al. 2016, equation 14)."""

    kind: Literal["gnmt"] = "gnmt"
    alpha: NonNegativeFloat = 0.6
    """The exponent; 0 leaves scores as they are."""

    def build(self) -> LengthPenalty:
        """Make the penalty."""
        return LengthPenalty(self.alpha)


class PowerLengthConfig(Choice):
    """log P / length ^ alpha."""

    kind: Literal["power"] = "power"
    alpha: NonNegativeFloat = 1.0
    """The exponent; 0 leaves scores as they are."""

    def build(self) -> LengthPenalty:
        """Make the penalty."""
        return LengthPenalty(self.alpha, "power")


class AverageLengthConfig(Choice):
    """log P / length: the worth of the average token."""

    kind: Literal["average"] = "average"

    def build(self) -> LengthPenalty:
        """Make the penalty."""
        return AVERAGE


class NoLengthConfig(Choice):
    """log P as it is."""

    kind: Literal["none"] = "none"

    def build(self) -> LengthPenalty:
        """Make what changes nothing."""
        return LengthPenalty()


_Lengths = Annotated[
    GnmtLengthConfig | PowerLengthConfig | AverageLengthConfig | NoLengthConfig,
    Field(discriminator="kind"),
]


def _name_or_number(said: Any) -> Any:
    """A plain number is the exponent of gnmt, a plain word a kind."""
    if isinstance(said, str):
        return {"kind": said}
    return {"kind": "gnmt", "alpha": said} if isinstance(said, int | float) else said


LengthPenaltyConfig = Annotated[
    _Lengths,
    assuming("gnmt"),
    BeforeValidator(
        _name_or_number,
        json_schema_input_type=_Lengths | float | Literal["gnmt", "power", "average", "none"],
    ),
]


class GnmtCoverageConfig(Choice):
    """What was not looked at lowers the score (Wu et al. 2016, equation 14)."""

    kind: Literal["gnmt"] = "gnmt"
    beta: NonNegativeFloat = 0.2
    """How much it counts."""

    def build(self) -> CoveragePenalty:
        """Make the penalty."""
        return Overlooked(self.beta)


class SeeCoverageConfig(Choice):
    """What was looked at again lowers the score (See et al. 2017, equation 12)."""

    kind: Literal["see"] = "see"
    beta: NonNegativeFloat = 1.0
    """How much it counts."""

    def build(self) -> CoveragePenalty:
        """Make the penalty."""
        return LookedAgain(self.beta)


class SummaryCoverageConfig(Choice):
    """Places that got more than one look in all lower the score (Gehrmann et al. 2018)."""

    kind: Literal["summary"] = "summary"
    beta: NonNegativeFloat = 1.0
    """How much it counts."""

    def build(self) -> CoveragePenalty:
        """Make the penalty."""
        return LookedTooLong(self.beta)


CoverageConfig = Annotated[
    GnmtCoverageConfig | SeeCoverageConfig | SummaryCoverageConfig, Field(discriminator="kind")
]


class SettledConfig(Choice):
    """Stop when no open hypothesis would rank if it ended now."""

    kind: Literal["settled"] = "settled"

    def build(self) -> Stopping:
        """Make the policy."""
        return Settled()


class OptimalConfig(Choice):
    """Stop when no open hypothesis can rank, whatever follows."""

    kind: Literal["optimal"] = "optimal"

    def build(self) -> Stopping:
        """Make the policy."""
        return Optimal()


class FirstConfig(Choice):
    """Stop when as many hypotheses have ended as the beam is wide."""

    kind: Literal["first"] = "first"

    def build(self) -> Stopping:
        """Make the policy."""
        return FIRST


class PatienceConfig(Choice):
    """Stop when `factor` times as many have ended (Kasai et al. 2022)."""

    kind: Literal["patience"] = "patience"
    factor: PositiveFloat = 1.0
    """How patient; 1 is the same as `first`."""

    def build(self) -> Stopping:
        """Make the policy."""
        return Patience(self.factor)


_Stoppings = Annotated[
    SettledConfig | OptimalConfig | FirstConfig | PatienceConfig, Field(discriminator="kind")
]
StoppingConfig = Annotated[
    _Stoppings, naming(_Stoppings | Literal["settled", "optimal", "first", "patience"])
]


class DiversityConfig(Choice):
    """Groups of hypotheses that avoid one another (Vijayakumar et al. 2018, section 4)."""

    groups: PositiveInt = 1
    """How many groups share the beam; 1 is a plain beam."""
    strength: NonNegativeFloat = 0.5
    """What a token loses for each time an earlier group chose it at the same step."""

    def build(self) -> Diversity:
        """Make the groups."""
        return Diversity(self.groups, self.strength)


class SamplingConfig(Choice):
    """How outputs are drawn; as it stands, exactly as likely as the model finds them."""

    temperature: NonNegativeFloat = 1.0
    """What log-probabilities are divided by; 0 takes the likeliest token."""
    top_k: PositiveInt | None = None
    """Draw among so many of the likeliest tokens (Fan et al. 2018)."""
    top_p: Share = 1.0
    """Draw among the fewest that add up to this (Holtzman et al. 2020, section 3.1)."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Draw among those at least so much as likely as the likeliest (Nguyen et al. 2025)."""
    typical: Share = 1.0
    """Draw among those nearest to the expected surprise, up to this sum (Meister et al. 2023)."""
    seed: int = 0
    """What is drawn for a text follows from this and the number of the text."""

    def build(self) -> Sampling:
        """Say how tokens are drawn."""
        return Sampling(
            self.temperature, self.top_k, self.top_p, min_p=self.min_p, typical=self.typical
        )


class ConsensusConfig(Choice):
    """Of drawn outputs take the one nearest to all of them (Eikema and Aziz 2020)."""

    samples: PositiveInt = 32
    """How many are drawn."""
    gain: Literal["bleu", "chrf"] = "bleu"
    """What nearness is measured by."""
