"""The protocol between search and models: all that search asks of a model.

Search knows no kind of model. Whatever answers `step`, and whose state is a nested value of
tensors with one row for every hypothesis, can be searched: a recurrent decoder, an ensemble,
a table of probabilities in a test. A state is a value: a step makes a new one and changes nothing
in the one it was given, so that what it hands on untouched is known to be untouched. What several
hypotheses have in common a state may hold once, `SharedRows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from heedful.shapes import Float, Int

State = TypeVar("State")


@dataclass(frozen=True)
class StepOutput(Generic[State]):
    """The outcome of reading one token."""

    log_probs: Float[Tensor, "B N"]  # of the next token
    state: State
    weights: Float[Tensor, "B S"]  # where the model looked


@runtime_checkable
class StepwiseModel(Protocol[State]):
    """A model that can be asked step by step."""

    def step(self, tokens: Int[Tensor, "B"], state: State) -> StepOutput[State]:
        """Read one token per row."""
        ...
