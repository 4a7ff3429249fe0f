"""Memories: what did a layer keep at each position, beside what it showed?

Cells that write memory cells on a tape give them away for nothing; of others they are not known.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.layers.recurrence import Recurrence, reverse
from heedful.layers.self_attentive import SelfAttentiveLstmCell
from heedful.layers.tapes import Tape
from heedful.shapes import Float, Int


def read_with_memories(
    layer: Recurrence, inputs: Float[Tensor, "B S E"], lengths: Int[Tensor, "B"]
) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B S D"] | None]:
    """Run a layer along sequences; give what it shows, and its memory cells where it has a tape."""
    if not all(isinstance(cell, SelfAttentiveLstmCell) for cell in layer.cells):
        return layer(inputs, lengths), None
    outputs, ends = layer.read(inputs, lengths)
    kept = []
    for cell, (_, _, *tape) in zip(layer.cells, ends, strict=True):
        memories = Tape(*tape).values[..., cell.hidden_size :]  # behind the hidden states
        kept.append(reverse(memories, lengths) if cell is layer.backwards else memories)
    return outputs, torch.cat(kept, dim=-1)
