"""Regularised cells: how is a recurrence kept from leaning on single units?

Each wraps a cell and is one. Law: what is drawn at random is drawn in training only; asked for an
answer, the outcome is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import dropout

from heedful.layers.cells import Cell, CellState
from heedful.shapes import Float


class Zoneout(Cell):
    """A cell each of whose values now and then stays as it was (Krueger et al. 2017).

    s' = d * s + (1 - d) * cell(x, s), with d drawn anew for every value at every step; when the
    model is asked, d is its expectation. `rates` are the chances to stay, one for each part of the
    state: for an LSTM, of the hidden state and of the memory cell.
    """

    def __init__(self, cell: Cell, rates: Sequence[float]) -> None:
        super().__init__()
        self.cell = cell
        self.rates = tuple(rates)
        self.hidden_size = cell.hidden_size
        self.memory_place = cell.memory_place

    def begin(self, hidden: Float[Tensor, "B D"]) -> CellState:
        """Begin as the cell does."""
        return self.cell.begin(hidden)

    def prepare(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """Prepare as the cell does."""
        return self.cell.prepare(inputs)

    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more input into the state, or into most of it."""
        after = self.cell.step(prepared, state, recalled)
        parts = zip(state, after, self.rates, strict=True)
        return tuple(self._stay(old, new, rate) for old, new, rate in parts)

    def _stay(self, old: Tensor, new: Tensor, rate: float) -> Tensor:
        if self.training:
            stays = torch.empty_like(new, dtype=torch.bool).bernoulli_(rate)
            return torch.where(stays, old, new)
        return rate * old + (1 - rate) * new


class RecurrentDropout(Cell):
    """A cell whose recurrent products miss some units, the same all along a sequence.

    cell(x, m * h), with m drawn once, in `begin` (Gal & Ghahramani 2016); what a gate carries over
    is whole. The mask is the last part of the state, so it follows its row wherever that goes.
    """

    def __init__(self, cell: Cell, rate: float) -> None:
        super().__init__()
        self.cell = cell
        self.rate = rate
        self.hidden_size = cell.hidden_size
        self.memory_place = cell.memory_place

    def begin(self, hidden: Float[Tensor, "B D"]) -> CellState:
        """Begin as the cell does, and draw the mask; when asked, it drops nothing."""
        mask = dropout(torch.ones_like(hidden), self.rate, self.training)
        return (*self.cell.begin(hidden), mask)

    def prepare(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """Prepare as the cell does."""
        return self.cell.prepare(inputs)

    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more input into the state."""
        *inner, mask = state
        if self.training:
            recalled = mask * (inner[0] if recalled is None else recalled)
        return (*self.cell.step(prepared, tuple(inner), recalled), mask)
