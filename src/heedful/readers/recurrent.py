"""Recurrent readers: what has been read is what the state remembers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, cast

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.config import Choice
from heedful.layers.cell_choices import CellConfig, LstmCellConfig
from heedful.layers.cells import Cell, CellState
from heedful.layers.reader import Read, Reader
from heedful.layers.recurrence import Recurrence
from heedful.shapes import Float, Int

State = tuple[CellState, ...]


class RecurrentReader(Reader):
    """Recurrent layers on top of one another, with dropout between them."""

    def __init__(self, layers: Sequence[Recurrence], *, size: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.size = size
        self.dropout = nn.Dropout(dropout)

    @property
    def _layers(self) -> Iterable[Recurrence]:
        return cast(Iterable[Recurrence], self.layers)

    def begin(self, inputs: Float[Tensor, "B T E"]) -> State:
        """Make the state of having read nothing, for as many rows as these."""
        return tuple(layer.begin(inputs)[0] for layer in self._layers)

    def forward(
        self,
        inputs: Float[Tensor, "B T E"],
        lengths: Int[Tensor, "B"],
        state: State,
        *,
        need_state: bool = True,
        need_weights: bool = False,
    ) -> Read:
        """Read on from a state; nothing is looked at."""
        shown, ends = inputs, list[CellState]()
        for number, (layer, before) in enumerate(zip(self._layers, state, strict=True)):
            below = self.dropout(shown) if number else shown
            if need_state:
                shown, (end,) = layer.read(below, lengths, [before])
                ends.append(end)
            else:
                shown = layer(below, lengths, [before])
        return Read(shown, tuple(ends) if need_state else None)


class RecurrentReaderConfig(Choice):
    """Read from left to right with recurrent layers."""

    kind: Literal["recurrent"] = "recurrent"
    cell: CellConfig = LstmCellConfig()
    """The recurrent cell."""
    hidden_size: PositiveInt = 256
    """Width of a state."""
    num_layers: PositiveInt = 1
    """Layers on top of one another."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped between layers."""

    def build(self, *, input_size: int) -> RecurrentReader:
        """Make the reader for vectors of this width."""
        inputs = [input_size] + [self.hidden_size] * (self.num_layers - 1)
        layers = [Recurrence(forwards=self._cell(size)) for size in inputs]
        return RecurrentReader(layers, size=self.hidden_size, dropout=self.dropout)

    def _cell(self, input_size: int) -> Cell:
        return self.cell.build(input_size=input_size, hidden_size=self.hidden_size)
