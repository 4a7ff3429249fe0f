"""Following: how does the state of a model follow the hypotheses that are kept?

Every tensor of a state has a row for each hypothesis, and kept rows are copied. Two kinds of copy
are spared. Where every row stays where it is, nothing is copied. And a tensor that each step so
far has handed on untouched is what the source gave, the same for all hypotheses of a sentence: it
is copied only when sentences leave the batch or new hypotheses are opened. What a model itself
gives out as `Shared` is not moved at all: rows only say anew which of it is theirs.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from heedful.nested import leaves, map_rows
from heedful.shapes import Int


class Follower:
    """Selects rows of the states of one search."""

    def __init__(self, state: Any) -> None:
        self._untouched = {id(tensor): tensor for tensor in leaves(state)}

    def follow(
        self, state: Any, rows: Int[Tensor, "R"], *, same_rows: bool, same_sentences: bool
    ) -> Any:
        """Keep these rows, each in its own place, or in that of another of its sentence, or not."""
        untouched: dict[int, Tensor] = {}

        def change(tensor: Tensor) -> Tensor:
            is_untouched = id(tensor) in self._untouched
            spared = same_rows or (same_sentences and is_untouched)
            moved = tensor if spared else tensor.index_select(0, rows)
            if is_untouched:
                untouched[id(moved)] = moved
            return moved

        followed = map_rows(change, state)
        self._untouched = untouched
        return followed
