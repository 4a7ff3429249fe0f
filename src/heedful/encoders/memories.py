"""Memories: what did a layer keep in memory cells, beside what it showed?

Cells that write memory cells on a tape give away those of all positions for nothing; of others
that have one it can be asked what it holds where a row ends.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.layers.recurrence import Recurrence, reverse
from heedful.layers.self_attentive import SelfAttentiveLstmCell
from heedful.layers.tapes import Tape
from heedful.shapes import Float, Int


class Kept(NamedTuple):
    """What a layer showed, and what it kept."""

    shown: Float[Tensor, "B S D"]
    memories: Float[Tensor, "B S D"] | None = None  # at each position, from a tape
    at_end: Float[Tensor, "B D"] | None = None  # of each direction after its last input


def read_with_memories(
    layer: Recurrence,
    inputs: Float[Tensor, "B S E"],
    lengths: Int[Tensor, "B"],
    *,
    keep_ends: bool,
) -> Kept:
    """Run a layer along sequences; tell also its memory cells: on a tape, or asked for at ends."""
    if all(isinstance(cell, SelfAttentiveLstmCell) for cell in layer.cells):
        return _from_tapes(layer, inputs, lengths)
    places = [cell.memory_place for cell in layer.cells if cell.memory_place is not None]
    if not (keep_ends and places):
        return Kept(layer(inputs, lengths))
    shown, ends = layer.read(inputs, lengths)
    held = [end[place] for place, end in zip(places, ends, strict=True)]
    return Kept(shown, at_end=torch.cat(held, dim=-1))


def _from_tapes(
    layer: Recurrence, inputs: Float[Tensor, "B S E"], lengths: Int[Tensor, "B"]
) -> Kept:
    shown, ends = layer.read(inputs, lengths)
    kept = []
    for cell, (_, _, *tape) in zip(layer.cells, ends, strict=True):
        memories = Tape(*tape).values[..., cell.hidden_size :]  # behind the hidden states
        kept.append(reverse(memories, lengths) if cell is layer.backwards else memories)
    return Kept(shown, memories=torch.cat(kept, dim=-1))
