"""The interface between search and models: a `step` function and a state.

A state is a nested tuple of tensors with one row per hypothesis, which search selects and reorders.
It is a value: a step returns a new state and never changes the one it received. A part that several
hypotheses share may select rows itself: see `heedful.pytree.map_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from heedful.shapes import Float, Int

State = TypeVar("State")


@dataclass(frozen=True)
class StepOutput(Generic[State]):
    """Output of one decoding step."""

    log_probs: Float[Tensor, "B N"]  # of the next token
    state: State
    weights: Float[Tensor, "B S"]  # attention over the source; zeros without attention


@runtime_checkable
class StepwiseModel(Protocol[State]):
    """A model that predicts one token at a time."""

    def step(self, tokens: Int[Tensor, "B"], state: State) -> StepOutput[State]:
        """Process one token per row and predict the next."""
        ...
