"""Cells: how is one more input taken into a recurrent state?

A cell turns an input (B, E) and a state into the next state. A state is a tuple of tensors
(B, D) whose first is what others see of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from heedful.shapes import Float

CellKind = Literal["gru", "lstm"]
CellState = tuple[Tensor, ...]


class Cell(nn.Module, ABC):
    """One step of a recurrence."""

    @abstractmethod
    def begin(self, hidden: Float[Tensor, "B D"]) -> CellState:
        """Make the first state, of which others see `hidden`."""

    @abstractmethod
    def forward(self, inputs: Float[Tensor, "B E"], state: CellState) -> CellState:
        """Take one more input into the state."""


class GruCell(Cell):
    """The gated recurrent unit (Cho et al. 2014), reset after the product, as in torch and cuDNN.

    n = tanh(W x + r * (U h)); h' = (1 - z) * n + z * h
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(input_size, hidden_size)

    def begin(self, hidden: Float[Tensor, "B D"]) -> CellState:
        """Start from `hidden`."""
        return (hidden,)

    def forward(self, inputs: Float[Tensor, "B E"], state: CellState) -> CellState:
        """Take one more input into the state."""
        return (self.cell(inputs, state[0]),)


class LstmCell(Cell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997, with forget gate).

    c' = f * c + i * g; h' = o * tanh(c')
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(input_size, hidden_size)

    def begin(self, hidden: Float[Tensor, "B D"]) -> CellState:
        """Start from `hidden`, with an empty memory cell."""
        return (hidden, hidden.new_zeros(hidden.shape))

    def forward(self, inputs: Float[Tensor, "B E"], state: CellState) -> CellState:
        """Take one more input into the state."""
        return self.cell(inputs, state)


CELLS: dict[CellKind, type[GruCell] | type[LstmCell]] = {"gru": GruCell, "lstm": LstmCell}


class CellStack(nn.Module):
    """Cells on top of one another: each reads the one below."""

    def __init__(self, cells: Sequence[Cell], dropout: float) -> None:
        super().__init__()
        self.cells = nn.ModuleList(cells)
        self.dropout = nn.Dropout(dropout)

    @classmethod
    def of(
        cls, kind: CellKind, input_size: int, hidden_size: int, *, num_layers: int, dropout: float
    ) -> CellStack:
        """Stack cells of one kind."""
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        return cls([CELLS[kind](size, hidden_size) for size in sizes], dropout)

    def begin(self, hidden: Sequence[Float[Tensor, "B D"]]) -> tuple[CellState, ...]:
        """Make the first states, from what is to be seen of each layer."""
        return tuple(
            cell.begin(seen)  # type: ignore[operator]
            for cell, seen in zip(self.cells, hidden, strict=True)
        )

    def forward(
        self, inputs: Float[Tensor, "B E"], states: tuple[CellState, ...]
    ) -> tuple[CellState, ...]:
        """Take one more input into every layer, from the bottom up."""
        after: list[CellState] = []
        for cell, state in zip(self.cells, states, strict=True):
            below = self.dropout(after[-1][0]) if after else inputs
            after.append(cell(below, state))
        return tuple(after)
