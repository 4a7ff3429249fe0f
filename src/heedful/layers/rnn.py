"""The cells, as a configuration names them: `cell: gru`, or a section with settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple, cast

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from heedful.layers.rnn_cells import (
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
    type_from_name,
)
from heedful.ops import op
from heedful.shapes import Float, Int

CellType = Literal["rnn", "gru", "lstm", "self-attentive-rnn", "self-attentive-lstm", "lstmn"]


_Cells = (
    RNNCellConfig
    | GRUCellConfig
    | LSTMCellConfig
    | SelfAttentiveCellConfig
    | SelfAttentiveLSTMCellConfig
    | LSTMNCellConfig
)


CellConfig = Annotated[
    _Cells,
    Field(discriminator="type"),
    BeforeValidator(type_from_name, json_schema_input_type=CellType | _Cells),
]


class ResidualCell(RecurrentCell):
    """A cell that shows the sum of what it made and what it read (Wu et al. 2016, section 3.1).

    x' = h' + x, where x is the first of its inputs, as many as its hidden state is wide. Its state
    is that of the cell, behind x'.
    """

    def __init__(self, cell: RecurrentCell) -> None:
        super().__init__()
        self.cell = cell
        self.hidden_size = cell.hidden_size
        self.cell_state_index = None if cell.cell_state_index is None else cell.cell_state_index + 1

    def initial_state(self, hidden: Float[Tensor, "B D"]) -> RecurrentState:
        """Start the cell from `mask_replace_prob`, and show it."""
        return (hidden, *self.cell.initial_state(hidden))

    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more input into the state."""
        after = self.cell.step(
            self.cell.project_inputs(projected_inputs), state[1:], recurrent_input
        )
        return (after[0] + projected_inputs[:, : self.hidden_size], *after)


class StackedCells(nn.Module):
    """Cells on top of one another: each reads the one below.

    From layer `first_residual_layer` on, counted from 1, each is a `ResidualCell`; not the first, for
    what it reads is of another kind than what it shows.
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
        plain = len(cells) if first_residual_layer is None else first_residual_layer - 1
        self.cells = nn.ModuleList([*cells[:plain], *map(ResidualCell, cells[plain:])])
        self.dropout = nn.Dropout(dropout)

    @property
    def has_cell_states(self) -> bool:
        """Whether every layer has a memory cell."""
        return all(cell.cell_state_index is not None for cell in self._cells)

    def initial_state(
        self,
        hidden: Sequence[Float[Tensor, "B D"]],
        cell_states: Sequence[Float[Tensor, "B D"]] = (),
    ) -> tuple[RecurrentState, ...]:
        """Make the first states, from what is to be seen of each layer.

        Memory cells hold `memories`, or nothing where there are none.
        """
        if not cell_states:
            return tuple(
                cell.initial_state(seen) for cell, seen in zip(self._cells, hidden, strict=True)
            )
        layers = zip(self._cells, hidden, cell_states, strict=True)
        return tuple(cell.initial_state_with_cell(seen, memory) for cell, seen, memory in layers)

    def forward(
        self,
        inputs: Float[Tensor, "B E"],
        states: tuple[RecurrentState, ...],
        context: Float[Tensor, "B V"] | None = None,
    ) -> tuple[RecurrentState, ...]:
        """Take one more input into every layer, from the bottom up; all hear the context."""
        after: list[RecurrentState] = []
        for cell, state in zip(self.cells, states, strict=True):
            below = self.dropout(after[-1][0]) if after else inputs
            layer_inputs = below if context is None else torch.cat([below, context], dim=-1)
            after.append(cell(layer_inputs, state))
        return tuple(after)

    @property
    def _cells(self) -> Iterable[RecurrentCell]:
        return cast(Iterable[RecurrentCell], self.cells)


# Sequences: what becomes of a cell's state along a whole sequence of inputs?
#
# The plain form repeats the cell. A rule takes a single kernel where there is one that does the
# same; which cell it is decides that, never a model or a configuration. A part of a state is
# (B, D), and made anew by every step, or it is a tape, (B, S, D), to which every step adds a place.


@op
def unroll_outputs(
    cell: RecurrentCell, inputs: Float[Tensor, "B S E"], state: RecurrentState
) -> Float[Tensor, "B S D"]:
    """What is seen of the state after each input."""
    return torch.stack([after[0] for after in unroll_steps(cell, inputs, state)], dim=1)


@op
def unroll_states(
    cell: RecurrentCell, inputs: Float[Tensor, "B S E"], state: RecurrentState
) -> tuple[Tensor, ...]:
    """The whole state after each input; of a tape the last, which has all before it in it."""
    parts = zip(*unroll_steps(cell, inputs, state), strict=True)
    return tuple(part[-1] if is_history(part[-1]) else torch.stack(part, dim=1) for part in parts)


@op
def unroll_with_final_state(
    cell: RecurrentCell,
    inputs: Float[Tensor, "B S E"],
    lengths: Int[Tensor, "B"],
    state: RecurrentState,
) -> tuple[Float[Tensor, "B S D"], RecurrentState]:
    """What is seen of the state after each input, and the state after each row's own last."""
    states = unroll_states(cell, inputs, state)
    return states[0], tuple(final_part(*part, lengths) for part in zip(state, states, strict=True))


def final_part(first: Tensor, states: Tensor, lengths: Int[Tensor, "B"]) -> Tensor:
    """One part of the state after each row's own last input, from the part along the sequence."""
    if is_history(first):
        places = torch.arange(states.size(1), device=states.device)
        written = places < first.size(1) + lengths[:, None]  # (B, S)
        return states.masked_fill(~written[:, :, None], 0)
    rows = torch.arange(len(lengths), device=lengths.device)
    return torch.cat([first.unsqueeze(1), states], dim=1)[rows, lengths]


def unroll_steps(
    cell: RecurrentCell, inputs: Float[Tensor, "B S E"], state: RecurrentState
) -> list[RecurrentState]:
    """The state after each input, one by one."""
    states = []
    for prepared in cell.project_inputs(inputs).unbind(dim=1):
        state = cell.step(prepared, state)
        states.append(state)
    return states


def is_history(part: Tensor) -> bool:
    """Whether a part of a state has a place for every step so far."""
    return part.dim() > 2


# Recurrence: a cell run along a whole sequence, in either direction or in both.
#
# Positions past a sequence's end have no influence on those before it: read forwards they come
# after, and read backwards each row starts at its own end.


class RecurrentLayerOutput(NamedTuple):
    """A batch of sequences that has been read."""

    outputs: Float[Tensor, "B S D"]  # what is seen at each position; past the end, anything
    final_states: tuple[
        RecurrentState, ...
    ]  # for each direction, the state after a row's own last input


class RecurrentLayer(nn.Module):
    """One recurrent layer: forwards, backwards, or both ways side by side."""

    def __init__(
        self,
        *,
        forward_cell: RecurrentCell | None = None,
        backward_cell: RecurrentCell | None = None,
    ) -> None:
        super().__init__()
        assert forward_cell or backward_cell, "a recurrence needs a cell for some direction"
        self.forward_cell = forward_cell
        self.backward_cell = backward_cell

    @property
    def cells(self) -> list[RecurrentCell]:
        """The cell of each direction, forwards first."""
        return [cell for cell in (self.forward_cell, self.backward_cell) if cell is not None]

    def initial_state(self, inputs: Float[Tensor, "B S E"]) -> list[RecurrentState]:
        """Make the first state of each direction, of which zeros are seen."""
        return [
            cell.initial_state(inputs.new_zeros(len(inputs), cell.hidden_size))
            for cell in self.cells
        ]

    def forward(
        self,
        inputs: Float[Tensor, "B S E"],
        lengths: Int[Tensor, "B"],
        initial_states: Sequence[RecurrentState] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Run along the sequences, each direction from its first state."""
        outputs = []
        for cell, state in zip(
            self.cells, initial_states or self.initial_state(inputs), strict=True
        ):
            shown = unroll_outputs(cell, self._to_reading_order(cell, inputs, lengths), state)
            outputs.append(self._to_reading_order(cell, shown, lengths))
        return torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]

    def forward_with_states(
        self,
        inputs: Float[Tensor, "B S E"],
        lengths: Int[Tensor, "B"],
        initial_states: Sequence[RecurrentState] | None = None,
    ) -> RecurrentLayerOutput:
        """Run along the sequences, and tell also the states in which they end."""
        outputs, ends = [], []
        for cell, state in zip(
            self.cells, initial_states or self.initial_state(inputs), strict=True
        ):
            shown, end = unroll_with_final_state(
                cell, self._to_reading_order(cell, inputs, lengths), lengths, state
            )
            outputs.append(self._to_reading_order(cell, shown, lengths))
            ends.append(end)
        return RecurrentLayerOutput(torch.cat(outputs, dim=-1), tuple(ends))

    def final_outputs(
        self, outputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B D"]:
        """What is seen of each direction after its last input, side by side."""
        rows = torch.arange(len(lengths), device=lengths.device)
        parts = outputs.split([cell.hidden_size for cell in self.cells], dim=-1)
        seen = [
            part[:, 0] if cell is self.backward_cell else part[rows, lengths - 1]
            for cell, part in zip(self.cells, parts, strict=True)
        ]
        return torch.cat(seen, dim=-1)

    def _to_reading_order(
        self, cell: RecurrentCell, sequences: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Put sequences into the order in which a cell reads them, or back into their own."""
        return reverse_padded(sequences, lengths) if cell is self.backward_cell else sequences


def reverse_padded(
    sequences: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
) -> Float[Tensor, "B S D"]:
    """Turn each row round up to its own end; what lies past the end stays."""
    positions = torch.arange(sequences.size(1), device=sequences.device)
    mirrored = lengths[:, None] - 1 - positions
    places = torch.where(mirrored >= 0, mirrored, positions)  # (B, S)
    return sequences.gather(1, places[:, :, None].expand_as(sequences))
