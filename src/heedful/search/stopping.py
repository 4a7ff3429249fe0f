"""Stopping criteria of beam search, checked for every beam after every step.

Each criterion states what it guarantees about the finished hypotheses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PositiveFloat
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type


class BeamStatus(NamedTuple):
    """Scores of one beam after a step."""

    beam_size: int
    num_finished: int  # including hypotheses that are no longer among the best
    worst_finished: float  # of the `beam_size` best finished ones; -inf while there are fewer
    best_open_score: float  # as if the latest token were the last
    best_possible_score: float  # upper bound for every continuation of an open hypothesis


class StoppingCriterion(ABC):
    """When the search for one sentence stops."""

    @abstractmethod
    def is_done(self, status: BeamStatus) -> bool:
        """Return True if the beam needs no further step; called once something has finished."""


class HeuristicStopping(StoppingCriterion):
    """Stop when the best open hypothesis, scored as if it ended here, is not among the best.

    Guarantee: without a length penalty the same as `OptimalStopping`. With one, an open hypothesis
    could still improve by growing longer; few do, and the search is much shorter.
    """

    @override
    def is_done(self, status: BeamStatus) -> bool:
        return status.best_open_score <= status.worst_finished


class OptimalStopping(StoppingCriterion):
    """Stop when no continuation of an open hypothesis can be among the best.

    Guarantee: the result of a search in which every beam continues to its maximum length.
    """

    @override
    def is_done(self, status: BeamStatus) -> bool:
        return status.best_possible_score <= status.worst_finished


class PatienceStopping(StoppingCriterion):
    """Stop when factor * beam_size hypotheses have finished (Kasai et al. 2022).

    Guarantee: that many have finished, or every open hypothesis reached its maximum length.
    """

    def __init__(self, factor: float = 1.0) -> None:
        assert factor > 0, f"factor must be positive, but is {factor}"
        self.factor = factor

    @override
    def is_done(self, status: BeamStatus) -> bool:
        return status.num_finished >= self.factor * status.beam_size


FIRST_FINISHED = PatienceStopping(1.0)
"""Stop as soon as `beam_size` hypotheses have finished."""


class HeuristicStoppingConfig(BaseConfig):
    """Stop when the best open hypothesis would not be among the best if it ended now."""

    type: Literal["heuristic"] = "heuristic"

    def build(self) -> StoppingCriterion:
        return HeuristicStopping()


class OptimalStoppingConfig(BaseConfig):
    """Stop when no continuation of an open hypothesis can be among the best."""

    type: Literal["optimal"] = "optimal"

    def build(self) -> StoppingCriterion:
        return OptimalStopping()


class FirstFinishedStoppingConfig(BaseConfig):
    """Stop when `beam_size` hypotheses have finished."""

    type: Literal["first-finished"] = "first-finished"

    def build(self) -> StoppingCriterion:
        return FIRST_FINISHED


class PatienceStoppingConfig(BaseConfig):
    """Stop when `factor * beam_size` hypotheses have finished (Kasai et al. 2022)."""

    type: Literal["patience"] = "patience"
    factor: PositiveFloat = 1.0
    """Finished hypotheses per beam slot; 1 is the same as `first-finished`."""

    def build(self) -> StoppingCriterion:
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
