"""Floors: what surrounds one layer of a stack, below it and above?"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from heedful.attention.attend import Attends
from heedful.encoders.connections import Connection
from heedful.layers.experts import ExpertSublayer, Mixed
from heedful.shapes import Bool, Float


class Floor(nn.Module):
    """What surrounds one recurrent layer: what it hears, and what it passes on.

    It hears what it reads and, where it looks down, what it finds in all that the layer below
    showed, asking with what it reads.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        dropout: float,
        look_down: Attends | None = None,
        experts: ExpertSublayer | None = None,
    ) -> None:
        super().__init__()
        self.connection = connection
        self.dropout = nn.Dropout(dropout)
        self.look_down = look_down
        self.experts = experts

    def hear(
        self,
        read: Float[Tensor, "B S E"],
        below: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"],
    ) -> Float[Tensor, "B S X"]:
        """Make what the cells are told."""
        heard = self.dropout(read)
        if self.look_down is None:
            return heard
        memory = self.look_down.remember(below, mask.unsqueeze(1))
        found = self.look_down(heard, memory, need_weights=False).context
        return torch.cat([heard, found], dim=-1)

    def pass_on(
        self,
        read: Float[Tensor, "B S E"],
        shown: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B S X"], Mapping[str, Float[Tensor, ""]]]:
        """Make what the next layer reads, and say what is to be added to the loss for it."""
        passed = self.connection(read, shown)
        if self.experts is None:
            return passed, {}
        mixed: Mixed = self.experts(passed, mask)
        return mixed.outputs, mixed.penalties
