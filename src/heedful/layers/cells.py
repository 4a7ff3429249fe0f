"""Cells: how is one more input taken into a recurrent state?

A cell turns an input (B, E) and a state into the next state. A state is a tuple of tensors with a
row for each of the batch, whose first is what others see of it. Law: a cell keeps nothing between
calls, and rows have no influence on one another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from heedful.shapes import Float

CellKind = Literal["rnn", "gru", "lstm"]
CellState = tuple[Tensor, ...]


class Cell(nn.Module, ABC):
    """One step of a recurrence."""

    hidden_size: int
    memory_place: int | None = None
    """Which part of a state is the memory cell, in a cell that has one; a tape is none."""

    def begin(self, hidden: Float[Tensor, "B D"]) -> CellState:
        """Make the first state, of which others see `hidden`; a memory cell is empty."""
        return (hidden,)

    def begin_with(self, hidden: Float[Tensor, "B D"], memory: Float[Tensor, "B D"]) -> CellState:
        """Make the first state, of which others see `hidden` and whose memory cell is given."""
        assert self.memory_place is not None, f"{type(self).__name__} has no memory cell"
        parts = list(self.begin(hidden))
        parts[self.memory_place] = memory
        return tuple(parts)

    def prepare(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """Do to inputs what waits for no state: for a whole sequence, all at once."""
        return inputs

    @abstractmethod
    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more prepared input into the state.

        The recurrent products see `recalled` in place of the hidden state, where it is given;
        what a gate carries over from the hidden state is not touched by it.
        """

    def forward(self, inputs: Float[Tensor, "B E"], state: CellState) -> CellState:
        """Take one more input into the state."""
        return self.step(self.prepare(inputs), state)


class TorchCell(Cell):
    """A cell for which torch has kernels, for one step and for a whole sequence.

    Its weights lie in torch's own layer, which serves both and keeps them in one piece of memory
    on a GPU, where cuDNN would otherwise gather them anew at every call.
    """

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer
        self.hidden_size = layer.hidden_size

    @property
    def weights(self) -> list[nn.Parameter]:
        """The parameters, in torch's order: W, U, the bias of W, the bias of U."""
        return self.layer.all_weights[0]


class SimpleCell(TorchCell):
    """h' = tanh(W x + U h + b)  (Elman 1990)."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(nn.RNN(input_size, hidden_size, batch_first=True))

    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more input into the state."""
        hidden = state[0] if recalled is None else recalled
        return (torch.rnn_tanh_cell(prepared, hidden, *self.weights),)


class GruCell(TorchCell):
    """The gated recurrent unit (Cho et al. 2014), reset after the product, as in torch and cuDNN.

    n = tanh(W x + r * (U h)); h' = (1 - z) * n + z * h
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(nn.GRU(input_size, hidden_size, batch_first=True))

    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more input into the state."""
        if recalled is None:
            return (torch.gru_cell(prepared, state[0], *self.weights),)
        # The kernel has one place for the state, but z carries over what no product sees.
        of_input, of_hidden, input_bias, hidden_bias = self.weights
        told = linear(prepared, of_input, input_bias)
        return (reset_after(told, linear(recalled, of_hidden, hidden_bias), state[0]),)


class LstmCell(TorchCell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997, with forget gate).

    c' = f * c + i * g; h' = o * tanh(c')
    """

    memory_place = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(nn.LSTM(input_size, hidden_size, batch_first=True))

    def begin(self, hidden: Float[Tensor, "B D"]) -> CellState:
        """Start from `hidden`, with an empty memory cell."""
        return (hidden, torch.zeros_like(hidden))

    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more input into the state."""
        hidden, memory = state
        seen = hidden if recalled is None else recalled
        return torch.lstm_cell(prepared, (seen, memory), *self.weights)


def reset_after(
    told: Float[Tensor, "B X"], recalled: Float[Tensor, "B X"], hidden: Float[Tensor, "B D"]
) -> Float[Tensor, "B D"]:
    """The next hidden state, from W x and U h, each r, z and n side by side."""
    (reset_told, keep_told, new_told), (reset_recalled, keep_recalled, new_recalled) = (
        part.chunk(3, dim=-1) for part in (told, recalled)
    )
    reset = (reset_told + reset_recalled).sigmoid()
    keep = (keep_told + keep_recalled).sigmoid()
    return (1 - keep) * (new_told + reset * new_recalled).tanh() + keep * hidden


class ResidualCell(Cell):
    """A cell that shows the sum of what it made and what it read (Wu et al. 2016, section 3.1).

    x' = h' + x, where x is the first of its inputs, as many as its hidden state is wide. Its state
    is that of the cell, behind x'.
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell
        self.hidden_size = cell.hidden_size
        self.memory_place = None if cell.memory_place is None else cell.memory_place + 1

    def begin(self, hidden: Float[Tensor, "B D"]) -> CellState:
        """Start the cell from `hidden`, and show it."""
        return (hidden, *self.cell.begin(hidden))

    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more input into the state."""
        after = self.cell.step(self.cell.prepare(prepared), state[1:], recalled)
        return (after[0] + prepared[:, : self.hidden_size], *after)


CELLS: dict[CellKind, type[SimpleCell] | type[GruCell] | type[LstmCell]] = {
    "rnn": SimpleCell,
    "gru": GruCell,
    "lstm": LstmCell,
}


class CellStack(nn.Module):
    """Cells on top of one another: each reads the one below.

    From layer `residual_from` on, counted from 1, each is a `ResidualCell`; not the first, for
    what it reads is of another kind than what it shows.
    """

    def __init__(
        self, cells: Sequence[Cell], dropout: float, *, residual_from: int | None = None
    ) -> None:
        super().__init__()
        assert residual_from is None or residual_from > 1, f"residual from layer {residual_from}"
        plain = len(cells) if residual_from is None else residual_from - 1
        self.cells = nn.ModuleList([*cells[:plain], *map(ResidualCell, cells[plain:])])
        self.dropout = nn.Dropout(dropout)

    @property
    def has_memories(self) -> bool:
        """Whether every layer has a memory cell."""
        return all(cell.memory_place is not None for cell in self._cells)

    def begin(
        self,
        hidden: Sequence[Float[Tensor, "B D"]],
        memories: Sequence[Float[Tensor, "B D"]] = (),
    ) -> tuple[CellState, ...]:
        """Make the first states, from what is to be seen of each layer.

        Memory cells hold `memories`, or nothing where there are none.
        """
        if not memories:
            return tuple(cell.begin(seen) for cell, seen in zip(self._cells, hidden, strict=True))
        layers = zip(self._cells, hidden, memories, strict=True)
        return tuple(cell.begin_with(seen, memory) for cell, seen, memory in layers)

    def forward(
        self,
        inputs: Float[Tensor, "B E"],
        states: tuple[CellState, ...],
        context: Float[Tensor, "B V"] | None = None,
    ) -> tuple[CellState, ...]:
        """Take one more input into every layer, from the bottom up; all hear the context."""
        after: list[CellState] = []
        for cell, state in zip(self.cells, states, strict=True):
            below = self.dropout(after[-1][0]) if after else inputs
            heard = below if context is None else torch.cat([below, context], dim=-1)
            after.append(cell(heard, state))
        return tuple(after)

    @property
    def _cells(self) -> Iterable[Cell]:
        return cast(Iterable[Cell], self.cells)
