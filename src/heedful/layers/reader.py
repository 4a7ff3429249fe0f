"""Readers: what reads vectors from left to right, and can go on later from where it stopped.

Law: what comes out at a place knows nothing of the places after it, and a text read piece by
piece, each from the state the last one left, is read as if it were whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.layers.encoded import NO_PENALTIES
from heedful.shapes import Float, Int


class Read(NamedTuple):
    """Vectors that have been read."""

    outputs: Float[Tensor, "B T D"]  # one for every place; past a row's end they mean nothing
    state: Any  # a nested value: what is needed to go on after each row's own end
    penalties: Mapping[str, Float[Tensor, ""]] = NO_PENALTIES  # by name, to be added to the loss
    weights: Float[Tensor, "B T S"] | None = None  # where was looked, of all places so far


class Reader(nn.Module, ABC):
    """What reads vectors from left to right."""

    size: int
    """Width of what comes out."""

    @abstractmethod
    def begin(self, inputs: Float[Tensor, "B T E"]) -> Any:
        """Make the state of having read nothing, for as many rows as these."""

    @abstractmethod
    def forward(
        self,
        inputs: Float[Tensor, "B T E"],
        lengths: Int[Tensor, "B"],
        state: Any,
        *,
        need_state: bool = True,
        need_weights: bool = False,
    ) -> Read:
        """Read on from a state; of each row only the first `lengths` vectors are there.

        Where no state is needed to go on from, and no weights, they may not be made. A reader
        that looks nowhere has no weights.
        """
