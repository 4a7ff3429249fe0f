"""Recurrence: a cell run along a whole sequence, in either direction.

Positions past a sequence's end have no influence on those before it: read forwards they come
after, and read backwards each row starts at its own end.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heedful.layers.cells import CellKind
from heedful.shapes import Float, Int

_LAYERS: dict[CellKind, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


class Recurrence(nn.Module):
    """One recurrent layer: forwards, or both ways side by side."""

    def __init__(
        self, kind: CellKind, input_size: int, hidden_size: int, *, bidirectional: bool
    ) -> None:
        super().__init__()
        self.forwards = _LAYERS[kind](input_size, hidden_size, batch_first=True)
        self.backwards = (
            _LAYERS[kind](input_size, hidden_size, batch_first=True) if bidirectional else None
        )

    def forward(
        self, inputs: Float[Tensor, "B S E"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Run along the sequences."""
        outputs = self.forwards(inputs)[0]
        if self.backwards is None:
            return outputs
        mirrored = self.backwards(reverse(inputs, lengths))[0]
        return torch.cat([outputs, reverse(mirrored, lengths)], dim=-1)


def reverse(sequences: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B S D"]:
    """Turn each row round up to its own end; what lies past the end stays."""
    positions = torch.arange(sequences.size(1), device=sequences.device)
    mirrored = lengths[:, None] - 1 - positions
    places = torch.where(mirrored >= 0, mirrored, positions)  # (B, S)
    return sequences.gather(1, places[:, :, None].expand_as(sequences))
