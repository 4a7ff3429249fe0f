"""Recurrence: a cell run along a whole sequence, in either direction or in both.

Positions past a sequence's end have no influence on those before it: read forwards they come
after, and read backwards each row starts at its own end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.layers.cells import Cell, CellState
from heedful.layers.sequences import read_along, shown_along
from heedful.shapes import Float, Int


class Reading(NamedTuple):
    """A batch of sequences that has been read."""

    outputs: Float[Tensor, "B S D"]  # what is seen at each position; past the end, anything
    ends: tuple[CellState, ...]  # for each direction, the state after a row's own last input


class Recurrence(nn.Module):
    """One recurrent layer: forwards, backwards, or both ways side by side."""

    def __init__(self, *, forwards: Cell | None = None, backwards: Cell | None = None) -> None:
        super().__init__()
        assert forwards or backwards, "a recurrence needs a cell for some direction"
        self.forwards = forwards
        self.backwards = backwards

    @property
    def cells(self) -> list[Cell]:
        """The cell of each direction, forwards first."""
        return [cell for cell in (self.forwards, self.backwards) if cell is not None]

    def begin(self, inputs: Float[Tensor, "B S E"]) -> list[CellState]:
        """Make the first state of each direction, of which zeros are seen."""
        return [cell.begin(inputs.new_zeros(len(inputs), cell.hidden_size)) for cell in self.cells]

    def forward(
        self,
        inputs: Float[Tensor, "B S E"],
        lengths: Int[Tensor, "B"],
        first: Sequence[CellState] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Run along the sequences, each direction from its first state."""
        outputs = []
        for cell, state in zip(self.cells, first or self.begin(inputs), strict=True):
            shown = shown_along(cell, self._as_read(cell, inputs, lengths), state)
            outputs.append(self._as_read(cell, shown, lengths))
        return torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]

    def read(
        self,
        inputs: Float[Tensor, "B S E"],
        lengths: Int[Tensor, "B"],
        first: Sequence[CellState] | None = None,
    ) -> Reading:
        """Run along the sequences, and tell also the states in which they end."""
        outputs, ends = [], []
        for cell, state in zip(self.cells, first or self.begin(inputs), strict=True):
            shown, end = read_along(cell, self._as_read(cell, inputs, lengths), lengths, state)
            outputs.append(self._as_read(cell, shown, lengths))
            ends.append(end)
        return Reading(torch.cat(outputs, dim=-1), tuple(ends))

    def seen_at_end(
        self, outputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B D"]:
        """What is seen of each direction after its last input, side by side."""
        rows = torch.arange(len(lengths), device=lengths.device)
        parts = outputs.split([cell.hidden_size for cell in self.cells], dim=-1)
        seen = [
            part[:, 0] if cell is self.backwards else part[rows, lengths - 1]
            for cell, part in zip(self.cells, parts, strict=True)
        ]
        return torch.cat(seen, dim=-1)

    def _as_read(
        self, cell: Cell, sequences: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Put sequences into the order in which a cell reads them, or back into their own."""
        return reverse(sequences, lengths) if cell is self.backwards else sequences


def reverse(sequences: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B S D"]:
    """Turn each row round up to its own end; what lies past the end stays."""
    positions = torch.arange(sequences.size(1), device=sequences.device)
    mirrored = lengths[:, None] - 1 - positions
    places = torch.where(mirrored >= 0, mirrored, positions)  # (B, S)
    return sequences.gather(1, places[:, :, None].expand_as(sequences))
