"""The penalties on where attention went, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from heedful.attention.penalties import CoverageLoss, DoublyStochastic, EntropyPenalty, Penalty
from heedful.config import Choice


class DoublyStochasticConfig(Choice):
    """Ask that each place of the source gets one unit of attention in all (Xu et al. 2015)."""

    kind: Literal["doubly-stochastic"] = "doubly-stochastic"
    weight: PositiveFloat = 1.0
    """What the sum over the places of a source is multiplied by."""

    def build(self) -> Penalty:
        """Make the penalty."""
        return DoublyStochastic(self.weight)


class CoverageLossConfig(Choice):
    """Ask that attention does not go where it has been before (See et al. 2017)."""

    kind: Literal["coverage"] = "coverage"
    weight: PositiveFloat = 1.0
    """What the overlap is multiplied by."""

    def build(self) -> Penalty:
        """Make the penalty."""
        return CoverageLoss(self.weight)


class EntropyPenaltyConfig(Choice):
    """Ask that attention is decided, or undecided."""

    kind: Literal["entropy"] = "entropy"
    weight: float
    """What the entropy is multiplied by: above 0 sharpens attention, below 0 evens it out."""

    def build(self) -> Penalty:
        """Make the penalty."""
        return EntropyPenalty(self.weight)


PenaltyConfig = Annotated[
    DoublyStochasticConfig | CoverageLossConfig | EntropyPenaltyConfig,
    Field(discriminator="kind"),
]
