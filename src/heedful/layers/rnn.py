"""Recurrent layers: cells stacked for one step, or run along a sequence in one or both directions.

A part of a state is (B, D), replaced by every step, or a history (B, S, D), to which every step
appends a position. Invariant: padding has no influence; a backward layer starts each row at its own
last position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from heedful.config.base import allow_bare_type
from heedful.layers.rnn_cells import (
    CellWrapper,
    GRUCellConfig,
    LSTMCellConfig,
    RecurrentCell,
    RecurrentState,
    RNNCellConfig,
)
from heedful.layers.self_attentive_cells import (
    LSTMNCellConfig,
    SelfAttentiveCellConfig,
    SelfAttentiveLSTMCellConfig,
)
from heedful.ops import op
from heedful.shapes import Embedded, Float, Hidden, LayerInputs, LayerOutputs, Lengths

CellType = Literal["rnn", "gru", "lstm", "self-attentive-rnn", "self-attentive-lstm", "lstmn"]


_Cells = (
    RNNCellConfig
    | GRUCellConfig
    | LSTMCellConfig
    | SelfAttentiveCellConfig
    | SelfAttentiveLSTMCellConfig
    | LSTMNCellConfig
)


CellConfig = Annotated[_Cells, Field(discriminator="type"), allow_bare_type(CellType | _Cells)]


class ResidualCell(CellWrapper):
    """x' = h' + x, a cell with a residual connection (Wu et al. 2016, section 3.1).

    x is the first `hidden_size` values of the input. The state is x', then the cell's own state.
    """

    def __init__(self, cell: RecurrentCell) -> None:
        super().__init__(cell)
        if cell.cell_state_index is not None:
            self.cell_state_index = cell.cell_state_index + 1

    @override
    def initial_state(self, hidden: Hidden) -> RecurrentState:
        return (hidden, *self.cell.initial_state(hidden))

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        return inputs  # the step needs them unprojected, for the sum

    @override
    def step(
        self,
        inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Hidden | None = None,
    ) -> RecurrentState:
        projected = self.cell.project_inputs(inputs)
        cell_state = self.cell.step(projected, state[1:], recurrent_input)
        return (cell_state[0] + inputs[:, : self.hidden_size], *cell_state)


class StackedCells(nn.Module):
    """Cells on top of one another, each reading the output of the one below.

    Layers from `first_residual_layer` on, counted from 1, are residual; never the first, whose
    input is not a hidden state.
    """

    def __init__(
        self,
        cells: Sequence[RecurrentCell],
        dropout: float,
        *,
        first_residual_layer: int | None = None,
    ) -> None:
        super().__init__()
        assert first_residual_layer is None or first_residual_layer > 1, (
            f"residual from layer {first_residual_layer}"
        )
        num_plain = len(cells) if first_residual_layer is None else first_residual_layer - 1
        self.cells = nn.ModuleList([*cells[:num_plain], *map(ResidualCell, cells[num_plain:])])
        self.dropout = nn.Dropout(dropout)

    @property
    def has_cell_states(self) -> bool:
        """Whether every layer has an LSTM cell state."""
        return all(cell.cell_state_index is not None for cell in self._cells)

    def initial_state(
        self, hidden: Sequence[Hidden], cell_states: Sequence[Hidden] = ()
    ) -> tuple[RecurrentState, ...]:
        """Return the first state of every layer; without `cell_states` these are zero."""
        if not cell_states:
            pairs = zip(self._cells, hidden, strict=True)
            return tuple(cell.initial_state(layer_hidden) for cell, layer_hidden in pairs)
        layers = zip(self._cells, hidden, cell_states, strict=True)
        return tuple(cell.initial_state_with_cell(*parts) for cell, *parts in layers)

    @override
    def forward(
        self,
        inputs: Embedded,
        states: tuple[RecurrentState, ...],
        context: Float[Tensor, "B V"] | None = None,
    ) -> tuple[RecurrentState, ...]:
        """Step every layer, from the bottom up; each input is concatenated with the context."""
        next_states: list[RecurrentState] = []
        for cell, state in zip(self.cells, states, strict=True):
            layer_inputs = self.dropout(next_states[-1][0]) if next_states else inputs
            if context is not None:
                layer_inputs = torch.cat([layer_inputs, context], dim=-1)
            next_states.append(cell(layer_inputs, state))
        return tuple(next_states)

    @property
    def _cells(self) -> Iterable[RecurrentCell]:
        return cast(Iterable[RecurrentCell], self.cells)


@op
def unroll_outputs(cell: RecurrentCell, inputs: LayerInputs, state: RecurrentState) -> LayerOutputs:
    """Return the hidden state after each input."""
    return torch.stack([after[0] for after in unroll_steps(cell, inputs, state)], dim=1)


@op
def unroll_states(
    cell: RecurrentCell, inputs: LayerInputs, state: RecurrentState
) -> tuple[Tensor, ...]:
    """Return the state after each input; of a history only the last, which contains the others."""
    parts = zip(*unroll_steps(cell, inputs, state), strict=True)
    return tuple(part[-1] if is_history(part[-1]) else torch.stack(part, dim=1) for part in parts)


@op
def unroll_with_final_state(
    cell: RecurrentCell, inputs: LayerInputs, lengths: Lengths, state: RecurrentState
) -> tuple[LayerOutputs, RecurrentState]:
    """Return the hidden state after each input, and the state after each row's last real input."""
    states = unroll_states(cell, inputs, state)
    return states[0], tuple(final_part(*part, lengths) for part in zip(state, states, strict=True))


def final_part(first: Tensor, states: Tensor, lengths: Lengths) -> Tensor:
    """Select one part of the state after each row's last real input from its values over time."""
    if is_history(first):
        positions = torch.arange(states.size(1), device=states.device)
        is_real = positions < first.size(1) + lengths[:, None]  # (B, S)
        return states.masked_fill(~is_real[:, :, None], 0)
    rows = torch.arange(len(lengths), device=lengths.device)
    return torch.cat([first.unsqueeze(1), states], dim=1)[rows, lengths]


def unroll_steps(
    cell: RecurrentCell, inputs: LayerInputs, state: RecurrentState
) -> list[RecurrentState]:
    """Return the state after each input, one `cell.step` at a time."""
    states = []
    for projected in cell.project_inputs(inputs).unbind(dim=1):
        state = cell.step(projected, state)
        states.append(state)
    return states


def is_history(part: Tensor) -> bool:
    """Whether a part of a state has one position per step so far."""
    return part.dim() > 2


class RecurrentLayerOutput(NamedTuple):
    """Output of a recurrent layer over a batch of sequences."""

    outputs: LayerOutputs  # arbitrary values at padding
    final_states: tuple[RecurrentState, ...]  # per direction, after each row's last real input


class RecurrentLayer(nn.Module):
    """A forward, backward or bidirectional recurrent layer; directions are concatenated."""

    def __init__(
        self,
        *,
        forward_cell: RecurrentCell | None = None,
        backward_cell: RecurrentCell | None = None,
    ) -> None:
        super().__init__()
        assert forward_cell or backward_cell, "a recurrent layer needs a cell"
        self.forward_cell = forward_cell
        self.backward_cell = backward_cell

    @property
    def cells(self) -> list[RecurrentCell]:
        """The cell of each direction, forward first."""
        return [cell for cell in (self.forward_cell, self.backward_cell) if cell is not None]

    def initial_state(self, inputs: LayerInputs) -> list[RecurrentState]:
        """Return the first state of each direction: zeros."""
        return [
            cell.initial_state(inputs.new_zeros(len(inputs), cell.hidden_size))
            for cell in self.cells
        ]

    @override
    def forward(
        self,
        inputs: LayerInputs,
        lengths: Lengths,
        initial_states: Sequence[RecurrentState] | None = None,
    ) -> LayerOutputs:
        """Return the hidden states of all directions at every position."""
        states = initial_states or self.initial_state(inputs)
        outputs = []
        for cell, state in zip(self.cells, states, strict=True):
            hidden = unroll_outputs(cell, self._to_reading_order(cell, inputs, lengths), state)
            outputs.append(self._to_reading_order(cell, hidden, lengths))
        return torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]

    def forward_with_states(
        self,
        inputs: LayerInputs,
        lengths: Lengths,
        initial_states: Sequence[RecurrentState] | None = None,
    ) -> RecurrentLayerOutput:
        """Return the hidden states and each direction's final state."""
        states = initial_states or self.initial_state(inputs)
        outputs, final_states = [], []
        for cell, state in zip(self.cells, states, strict=True):
            hidden, final_state = unroll_with_final_state(
                cell, self._to_reading_order(cell, inputs, lengths), lengths, state
            )
            outputs.append(self._to_reading_order(cell, hidden, lengths))
            final_states.append(final_state)
        return RecurrentLayerOutput(torch.cat(outputs, dim=-1), tuple(final_states))

    def final_outputs(self, outputs: LayerOutputs, lengths: Lengths) -> Hidden:
        """Select the hidden state of each direction after its last input, concatenated."""
        rows = torch.arange(len(lengths), device=lengths.device)
        parts = outputs.split([cell.hidden_size for cell in self.cells], dim=-1)
        final_outputs = [
            part[:, 0] if cell is self.backward_cell else part[rows, lengths - 1]
            for cell, part in zip(self.cells, parts, strict=True)
        ]
        return torch.cat(final_outputs, dim=-1)

    def _to_reading_order(
        self, cell: RecurrentCell, sequences: LayerOutputs, lengths: Lengths
    ) -> LayerOutputs:
        return reverse_padded(sequences, lengths) if cell is self.backward_cell else sequences


def reverse_padded(sequences: LayerOutputs, lengths: Lengths) -> LayerOutputs:
    """Reverse each row up to its length; padding stays where it is."""
    positions = torch.arange(sequences.size(1), device=sequences.device)
    mirrored = lengths[:, None] - 1 - positions
    indices = torch.where(mirrored >= 0, mirrored, positions)  # (B, S)
    return sequences.gather(1, indices[:, :, None].expand_as(sequences))
