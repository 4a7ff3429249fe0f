"""Recurrent layers: cells along a sequence, in one or both directions, and what connects layers.

Connections are plain, residual or fast-forward. Invariant: padding has no influence; a backward
layer starts each row at its last position; a connection sees a single position at a time.
"""

from collections.abc import MutableSequence, Sequence
from typing import Annotated, Literal, NamedTuple, cast

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.attention import Attention
from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.errors import check
from heedful.layers.mixture_of_experts import MoEOutput, MoESublayer
from heedful.layers.rnn_cells import (
    CellState,
    RecurrentCell,
    RecurrentState,
    ResidualCell,
    final_state,
    is_history,
)
from heedful.ops import op
from heedful.pytree import sum_losses
from heedful.shapes import (
    Embedded,
    Float,
    Hidden,
    LayerInputs,
    LayerOutputs,
    Lengths,
    Losses,
    SourceMask,
    TargetMask,
)

NextInputs = Float[Tensor, "B S X"]


@op
def unroll(
    cell: RecurrentCell, inputs: LayerInputs, state: RecurrentState, lengths: Lengths | None
) -> tuple[LayerOutputs, RecurrentState | None]:
    """Return the hidden state after each input.

    With lengths, also return the state after each row's last real input.
    """
    if lengths is None:
        steps = unroll_steps(cell, inputs, state)
        return torch.stack([after[0] for after in steps], dim=1), None
    states = unroll_states(cell, inputs, state)
    return states[0], final_state(state, states, lengths)


def unroll_outputs(cell: RecurrentCell, inputs: LayerInputs, state: RecurrentState) -> LayerOutputs:
    """Return the hidden state after each input."""
    return unroll(cell, inputs, state, None)[0]


def unroll_states(
    cell: RecurrentCell, inputs: LayerInputs, state: RecurrentState
) -> tuple[Tensor, ...]:
    """Return the state after each input; of a history only the last, which contains the others."""
    parts = zip(*unroll_steps(cell, inputs, state), strict=True)
    return tuple(part[-1] if is_history(part[-1]) else torch.stack(part, dim=1) for part in parts)


def unroll_steps(
    cell: RecurrentCell, inputs: LayerInputs, state: RecurrentState
) -> list[RecurrentState]:
    """Return the state after each input, one `cell.step` at a time."""
    states = []
    for projected in cell.project_inputs(inputs).unbind(dim=1):
        state = cell.step(projected, state)
        states.append(state)
    return states


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
            ordered = self._to_reading_order(cell, inputs, lengths)
            hidden = unroll_outputs(cell, ordered, state)
            outputs.append(self._to_reading_order(cell, hidden, lengths))
        return torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]

    def forward_with_states(
        self, inputs: LayerInputs, lengths: Lengths, initial_states: Sequence[RecurrentState] = ()
    ) -> RecurrentLayerOutput:
        """Return the hidden states and each direction's final state."""
        states = initial_states or self.initial_state(inputs)
        outputs, final_states = [], []
        for cell, state in zip(self.cells, states, strict=True):
            ordered = self._to_reading_order(cell, inputs, lengths)
            hidden, last_state = unroll(cell, ordered, state, lengths)
            assert last_state is not None
            outputs.append(self._to_reading_order(cell, hidden, lengths))
            final_states.append(last_state)
        return RecurrentLayerOutput(torch.cat(outputs, dim=-1), tuple(final_states))

    def final_outputs(self, outputs: LayerOutputs, lengths: Lengths) -> Hidden:
        """Select the hidden state of each direction after its last input, concatenated."""
        rows = torch.arange(len(lengths), device=lengths.device)
        parts = outputs.split([cell.hidden_size for cell in self.cells], dim=-1)
        pairs = zip(self.cells, parts, strict=True)
        ends = [p[:, 0] if c is self.backward_cell else p[rows, lengths - 1] for c, p in pairs]
        return torch.cat(ends, dim=-1)

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


class Connection(nn.Module):
    """The input of the next layer, or the encoder's states: by default the layer's output."""

    @override
    def forward(self, layer_input: LayerInputs, layer_output: LayerOutputs) -> NextInputs:
        return layer_output


class ResidualConnection(Connection):
    """x^i = m^i + x^(i-1)  (Wu et al. 2016, section 3.1)."""

    @override
    def forward(self, layer_input: LayerInputs, layer_output: LayerOutputs) -> NextInputs:
        return layer_output + layer_input


class FastForwardConnection(Connection):
    """f^(k+1) = W [first values of f^k; dropout(h^k)]  (Zhou et al. 2016, section 3.1).

    f is the input of a layer, of which the paper passes on one half, and h its output. The path
    along f is linear and not recurrent, so that gradients reach the embeddings through any number
    of layers.
    """

    def __init__(
        self, shortcut_size: int, hidden_size: int, output_size: int, *, dropout: float
    ) -> None:
        super().__init__()
        self.shortcut_size = shortcut_size
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(shortcut_size + hidden_size, output_size, bias=False)

    @override
    def forward(self, layer_input: LayerInputs, layer_output: LayerOutputs) -> NextInputs:
        shortcut = layer_input[..., : self.shortcut_size]
        return self.projection(torch.cat([shortcut, self.dropout(layer_output)], dim=-1))


class ConnectionConfigBase(BaseConfig):
    """Connection of a layer to the next; layers are numbered from 1."""

    type: str

    def path_size(self, hidden_size: int) -> int | None:
        """Return the size of the linear path parallel to the layers, None without one."""
        return None

    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        return Connection()


class PlainConnectionConfig(ConnectionConfigBase):
    """Pass on the layer's output."""

    type: Literal["plain"] = "plain"


class ResidualConnectionConfig(ConnectionConfigBase):
    """Pass on the sum of input and output (Wu et al. 2016)."""

    type: Literal["residual"] = "residual"
    first_residual_layer: int = Field(default=3, ge=2)
    """First layer with a residual connection, counted from 1; the paper's is the third. Never the
    first, whose input is embeddings."""

    @override
    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        return ResidualConnection() if layer >= self.first_residual_layer else Connection()


class FastForwardConnectionConfig(ConnectionConfigBase):
    """A linear path parallel to the layers, from the embeddings to the top (Zhou et al. 2016).

    In the paper the path is four times as wide and replaces the input product of the cells. Here
    it is the input of any cell.
    """

    type: Literal["fast-forward"] = "fast-forward"
    shortcut_size: PositiveInt | None = None
    """Size of the linear path; by default hidden_size."""
    halve_shortcut: bool = True
    """Pass on half of the path from layer to layer, as in the paper, or all of it."""

    @override
    def path_size(self, hidden_size: int) -> int:
        size = self.shortcut_size or hidden_size
        message = f"a path of size {size} cannot be halved"
        hint = "choose an even size, or set `halve_shortcut: false`"
        check(not self.halve_shortcut or size % 2 == 0, "connection.shortcut_size", message, hint)
        return size

    @override
    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        size = self.path_size(hidden_size)
        if is_top:
            return FastForwardConnection(size, hidden_size, hidden_size, dropout=0.0)
        shortcut_size = size // 2 if self.halve_shortcut else size
        return FastForwardConnection(shortcut_size, hidden_size, size, dropout=dropout)


_Connections = PlainConnectionConfig | ResidualConnectionConfig | FastForwardConnectionConfig
ConnectionConfig = Annotated[
    _Connections, Field(discriminator="type"), allow_bare_type(_Connections)
]


class RecurrentLayerWrapper(nn.Module):
    """A recurrent layer with the modules before and after its cells.

    With `lower_attention`, the cells also read a context of the outputs of the layer below; its
    queries are the layer's input.
    """

    def __init__(
        self,
        connection: Connection,
        dropout: float,
        lower_attention: Attention | None,
        experts: MoESublayer | None,
    ) -> None:
        super().__init__()
        self.connection = connection
        self.dropout = nn.Dropout(dropout)
        self.lower_attention = lower_attention
        self.experts = experts

    def prepare_input(
        self, layer_input: LayerInputs, lower_outputs: LayerOutputs, mask: SourceMask
    ) -> NextInputs:
        """Return the input of the cells."""
        cell_input = self.dropout(layer_input)
        if self.lower_attention is None:
            return cell_input
        memory = self.lower_attention.build_memory(lower_outputs, mask.unsqueeze(1))
        context = self.lower_attention(cell_input, memory, need_weights=False).context
        return torch.cat([cell_input, context], dim=-1)

    def connect_output(
        self, layer_input: LayerInputs, layer_output: LayerOutputs, mask: SourceMask
    ) -> tuple[NextInputs, Losses]:
        """Return the input of the next layer and its auxiliary losses."""
        connected = self.connection(layer_input, layer_output)
        if self.experts is None:
            return connected, {}
        moe_output = self.experts(connected, mask)
        return moe_output.outputs, moe_output.auxiliary_losses


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
        num_plain = len(cells) if first_residual_layer is None else first_residual_layer - 1
        assert num_plain > 0, f"residual from layer {first_residual_layer}"
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
            return self.dropout(outputs), NO_AUXILIARY_LOSSES
        output: MoEOutput = self.experts[str(layer)](outputs, mask)
        return self.dropout(output.outputs), output.auxiliary_losses
