""""""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PositiveFloat

from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type

# Stopping: when has a beam looked far enough?
#
# A policy is asked after every step, and says what is known of the outputs once it stops.


class BeamStatus(NamedTuple):
    """What a beam has found, and what it may still find."""

    beam_size: int
    num_finished: int  # of all its hypotheses, kept or not
    worst_finished: (
        float  # score of the last of the best `width` that have ended; -inf while fewer have
    )
    best_open_score: float  # the best score of an open one, were the token it just got its end
    best_possible_score: float  # no open one can ever score more, whatever follows


class StoppingCriterion(ABC):
    """When a beam stops."""

    @abstractmethod
    def is_done(self, status: BeamStatus) -> bool:
        """Say whether nothing more is to be looked for."""


class HeuristicStopping(StoppingCriterion):
    """Stop when no open hypothesis, were its last token the end, would rank.

    Guarantee: without a length penalty as `OptimalStopping`. With one an open hypothesis might yet rise by
    growing longer; in practice few do, and the search is much shorter.
    """

    def is_done(self, status: BeamStatus) -> bool:
        """Compare as things stand."""
        return status.best_open_score <= status.worst_finished


class OptimalStopping(StoppingCriterion):
    """Stop when no open hypothesis can rank, whatever follows.

    Guarantee: what is found is what would be found if every beam went on to its longest length.
    """

    def is_done(self, status: BeamStatus) -> bool:
        """Compare with the best that can come."""
        return status.best_possible_score <= status.worst_finished


class PatienceStopping(StoppingCriterion):
    """Stop when factor * width hypotheses have ended (Kasai et al. 2022); with 1, at the first few.

    Guarantee: none but that so many have ended, or that every open one was cut off at its length.
    """

    def __init__(self, factor: float = 1.0) -> None:
        assert factor > 0, f"a beam that waits for nothing finds nothing: {factor}"
        self.factor = factor

    def is_done(self, status: BeamStatus) -> bool:
        """Count."""
        return status.num_finished >= self.factor * status.beam_size


FIRST_FINISHED = PatienceStopping(1.0)
"""Stop as soon as the beam is full of ended hypotheses: first come, first served."""


class HeuristicStoppingConfig(BaseConfig):
    """Stop when no open hypothesis would rank if it ended now."""

    type: Literal["heuristic"] = "heuristic"

    def build(self) -> StoppingCriterion:
        """Make the policy."""
        return HeuristicStopping()


class OptimalStoppingConfig(BaseConfig):
    """Stop when no open hypothesis can rank, whatever follows."""

    type: Literal["optimal"] = "optimal"

    def build(self) -> StoppingCriterion:
        """Make the policy."""
        return OptimalStopping()


class FirstFinishedStoppingConfig(BaseConfig):
    """Stop when as many hypotheses have ended as the beam is wide."""

    type: Literal["first-finished"] = "first-finished"

    def build(self) -> StoppingCriterion:
        """Make the policy."""
        return FIRST_FINISHED


class PatienceStoppingConfig(BaseConfig):
    """Stop when `factor` times as many have ended (Kasai et al. 2022)."""

    type: Literal["patience"] = "patience"
    factor: PositiveFloat = 1.0
    """How patient; 1 is the same as `first`."""

    def build(self) -> StoppingCriterion:
        """Make the policy."""
        return PatienceStopping(self.factor)


_Stoppings = Annotated[
    HeuristicStoppingConfig
    | OptimalStoppingConfig
    | FirstFinishedStoppingConfig
    | PatienceStoppingConfig,
    Field(discriminator="type"),
]


StoppingConfig = Annotated[
    _Stoppings,
    allow_bare_type(_Stoppings | Literal["heuristic", "optimal", "first-finished", "patience"]),
]
