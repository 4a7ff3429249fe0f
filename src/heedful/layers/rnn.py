"""Recurrent layers: cells run along a sequence, in one or both directions.

A part of a state is (B, D), replaced by each step, or a history (B, S, D), to which it appends.
Invariant: padding has no influence; a backward layer starts each row at its last position.
"""

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import NO_AUXILIARY_LOSSES, sum_losses
from heedful.layers.mixture_of_experts import MoEOutput, MoESublayer
from heedful.layers.rnn_cells import CellState, RecurrentCell, RecurrentState, ResidualCell
from heedful.layers.sublayers import apply_dropout
from heedful.ops import op
from heedful.shapes import (
    Embedded,
    Float,
    Hidden,
    LayerInputs,
    LayerOutputs,
    Lengths,
    Losses,
    TargetMask,
)


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


class StackedCells(nn.Module):
    """Cells on top of one another, each reading the output of the one below.

    Layers from `first_residual_layer` on, counted from 1, are residual, but never the first. The
    n-th of `experts`, if any, follow the n-th layer.
    """

    def __init__(
        self,
        cells: Sequence[RecurrentCell],
        dropout: float,
        *,
        first_residual_layer: int | None = None,
        experts: Sequence[MoESublayer | None] = (),
    ) -> None:
        super().__init__()
        assert first_residual_layer is None or first_residual_layer > 1, (
            f"residual from layer {first_residual_layer}"
        )
        num_plain = len(cells) if first_residual_layer is None else first_residual_layer - 1
        layers = [*cells[:num_plain], *map(ResidualCell, cells[num_plain:])]
        self.cells = cast(MutableSequence[RecurrentCell], nn.ModuleList(layers))
        self.experts = nn.ModuleDict(
            {str(layer): module for layer, module in enumerate(experts, start=1) if module}
        )
        self.dropout = nn.Dropout(dropout)

    @property
    def has_cell_states(self) -> bool:
        """Whether each layer has an LSTM cell state."""
        return all(cell.cell_state_index is not None for cell in self.cells)

    def initial_state(
        self, hidden: Sequence[Hidden], cell_states: Sequence[CellState] = ()
    ) -> tuple[RecurrentState, ...]:
        """Return the first state of each layer; without `cell_states` these are zero."""
        if not cell_states:
            pairs = zip(self.cells, hidden, strict=True)
            return tuple(cell.initial_state(layer_hidden) for cell, layer_hidden in pairs)
        layers = zip(self.cells, hidden, cell_states, strict=True)
        return tuple(cell.initial_state_with_cell(*parts) for cell, *parts in layers)

    @override
    def forward(
        self,
        inputs: Embedded,
        states: tuple[RecurrentState, ...],
        context: Float[Tensor, "B V"] | None = None,
    ) -> tuple[RecurrentState, ...]:
        """Step each layer, from the bottom up; each input is concatenated with the context."""
        next_states: list[RecurrentState] = []
        for layer, (cell, state) in enumerate(zip(self.cells, states, strict=True)):
            layer_inputs = self._pass_on(layer, next_states[-1][0])[0] if next_states else inputs
            if context is not None:
                layer_inputs = torch.cat([layer_inputs, context], dim=-1)
            next_states.append(cell(layer_inputs, state))
        return tuple(next_states)

    def unroll(
        self,
        inputs: LayerInputs,
        states: tuple[RecurrentState, ...],
        mask: TargetMask,
        context: Float[Tensor, "B T V"] | None = None,
        *,
        num_done: int = 0,
    ) -> tuple[LayerOutputs, Losses]:
        """Run layer after layer over whole sequences; return outputs and auxiliary losses.

        Experts so process all tokens of a batch at once (Shazeer et al. 2017, section 3.1). The
        inputs are the outputs of layer `num_done` if the layers up to it have run.
        """
        losses: list[Losses] = []
        for layer in range(num_done, len(self.cells)):
            if layer > 0:
                inputs, layer_losses = self._pass_on(layer, inputs, mask)
                losses.append(layer_losses)
            if context is not None:
                inputs = torch.cat([inputs, context], dim=-1)
            inputs = unroll_outputs(self.cells[layer], inputs, states[layer])
        return inputs, sum_losses(*losses)

    def _pass_on(
        self, layer: int, outputs: Float[Tensor, "*B T D"], mask: TargetMask | None = None
    ) -> tuple[Float[Tensor, "*B T D"], Losses]:
        """Return the input of the layer above this one, counted from 1, and auxiliary losses."""
        if str(layer) not in self.experts:
            return apply_dropout(outputs, self.dropout), NO_AUXILIARY_LOSSES
        output: MoEOutput = self.experts[str(layer)](outputs, mask)
        return apply_dropout(output.outputs, self.dropout), output.auxiliary_losses
