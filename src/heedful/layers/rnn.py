"""Recurrent layers: cells run along a sequence, in one or both directions.

A part of a state is (B, D), replaced by each step, or a history (B, S, D), to which it appends.
Invariant: padding has no influence; a backward layer starts each row at its last position.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.layers.rnn_cells import RecurrentCell, RecurrentState
from heedful.ops import op
from heedful.shapes import Hidden, LayerInputs, LayerOutputs, Lengths


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
        zeros = [inputs.new_zeros(len(inputs), cell.hidden_size) for cell in self.cells]
        return [cell.initial_state(hidden) for cell, hidden in zip(self.cells, zeros, strict=True)]

    @override
    def forward(
        self, inputs: LayerInputs, lengths: Lengths, initial_states: Sequence[RecurrentState] = ()
    ) -> LayerOutputs:
        """Return the hidden states of all directions at each position."""
        states = initial_states or self.initial_state(inputs)
        outputs = []
        for cell, state in zip(self.cells, states, strict=True):
            hidden = unroll_outputs(cell, self._to_reading_order(cell, inputs, lengths), state)
            outputs.append(self._to_reading_order(cell, hidden, lengths))
        return torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]

    def forward_with_states(
        self, inputs: LayerInputs, lengths: Lengths, initial_states: Sequence[RecurrentState] = ()
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
