"""Encoded: what an encoder hands to a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from heedful.shapes import Float, Int

NO_PENALTIES: Mapping[str, Tensor] = MappingProxyType({})


class Encoded(NamedTuple):
    """A source that has been read."""

    states: Float[Tensor, "B S V"]  # one for every position; zero past the end
    lengths: Int[Tensor, "B"]
    summary: Float[Tensor, "B V"]  # the whole source in one vector
    ends: tuple[Float[Tensor, "B D"], ...] = ()  # what is seen of each layer at its own end
    memories: Float[Tensor, "B S V"] | None = None  # the memory cells beside the states, if kept
    penalties: Mapping[str, Float[Tensor, ""]] = NO_PENALTIES  # by name, to be added to the loss
    unfolded: Float[Tensor, "B U V"] | None = None  # the source as long as a target may grow
    called_by: Float[Tensor, "B S V"] | None = None  # the keys, where they are not the states
    end_memories: tuple[Float[Tensor, "B D"], ...] = ()  # what memory cells hold there, if asked


def add_up(*parts: Mapping[str, Float[Tensor, ""]]) -> dict[str, Float[Tensor, ""]]:
    """Add up penalties of the same name."""
    total = dict[str, Tensor]()
    for part in parts:
        for name, penalty in part.items():
            total[name] = total[name] + penalty if name in total else penalty
    return total
