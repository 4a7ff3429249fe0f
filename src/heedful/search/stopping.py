"""Stopping criteria of beam search, checked for each beam after each step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PositiveFloat

from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type


class BeamStatus(NamedTuple):
    """Scores of a beam after a step."""

    beam_size: int
    num_finished: int  # including hypotheses that are no longer among the best
    worst_finished: float  # score to beat: the `beam_size`-th best finished, or pruning's bound
    best_open_score: float  # as if the latest token were the last
    best_possible_score: float  # upper bound for every continuation of an open hypothesis


StoppingCriterion = Callable[[BeamStatus], bool]
"""Returns True if a beam needs no further step; called once something has finished."""


def heuristic_stopping(status: BeamStatus) -> bool:
    """Stop when the best open hypothesis, scored as if it ended here, is not among the best.

    Guarantee: without a length penalty the same as `optimal_stopping`. With one, an open hypothesis
    could still improve by growing longer; few do, and the search is much shorter.
    """
    return status.best_open_score <= status.worst_finished


def optimal_stopping(status: BeamStatus) -> bool:
    """Stop when no continuation of an open hypothesis can be among the best.

    Guarantee: the result of a search in which each beam continues to its maximum length.
    """
    return status.best_possible_score <= status.worst_finished


@dataclass(frozen=True)
class PatienceStopping:
    """Stop when factor * beam_size hypotheses have finished (Kasai et al. 2022).

    Guarantee: that many have finished, or each open hypothesis reached its maximum length.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        assert self.factor > 0, f"factor must be positive, but is {self.factor}"

    def __call__(self, status: BeamStatus) -> bool:
        """Return True if that many have finished."""
        return status.num_finished >= self.factor * status.beam_size


FIRST_FINISHED = PatienceStopping(1.0)
"""Stop as soon as `beam_size` hypotheses have finished."""


class HeuristicStoppingConfig(BaseConfig):
    """Stop when the best open hypothesis would not be among the best if it ended now."""

    type: Literal["heuristic"] = "heuristic"

    def build(self) -> StoppingCriterion:
        return heuristic_stopping


class OptimalStoppingConfig(BaseConfig):
    """Stop when no continuation of an open hypothesis can be among the best."""

    type: Literal["optimal"] = "optimal"

    def build(self) -> StoppingCriterion:
        return optimal_stopping


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
StoppingConfig = Annotated[_Stoppings, allow_bare_type(_Stoppings)]
