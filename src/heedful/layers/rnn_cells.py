"""Recurrent cells: one step of an RNN, GRU or LSTM, plain or with layer norm, alone or stacked.

A cell maps an input (B, E) and a state to the next state. A state is a tuple of tensors with one
row per example; its first part is the hidden state, which is also the output. Invariant: a cell
keeps nothing between calls, and rows do not influence one another.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from typing_extensions import override

from heedful.shapes import Embedded, Float, Hidden

RecurrentState = tuple[Any, ...]  # tensors; with lower attention, a cache of inputs at the end
Projected = Float[Tensor, "B X"]


class RecurrentCell(nn.Module, ABC):
    """One step of a recurrent layer."""

    hidden_size: int
    cell_state_index: int | None = None
    """Index of an LSTM's cell state among the parts of the state; None if there is none."""

    def initial_state(self, hidden: Hidden) -> RecurrentState:
        """Return the first state with this hidden state; a cell state is zero."""
        return (hidden,) if self.cell_state_index is None else (hidden, torch.zeros_like(hidden))

    def initial_state_with_cell(self, hidden: Hidden, cell_state: Hidden) -> RecurrentState:
        """Return the first state with this hidden state and this cell state."""
        assert self.cell_state_index is not None, f"{type(self).__name__} has no cell state"
        parts = list(self.initial_state(hidden))
        parts[self.cell_state_index] = cell_state
        return tuple(parts)

    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """Compute the part of a step that needs no state, for a whole sequence at once."""
        return inputs

    def step(self, inputs: Projected, state: RecurrentState) -> RecurrentState:
        """Return the next state for inputs that `project_inputs` has projected."""
        return self.update(inputs, state, state[0])

    @abstractmethod
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        """Return the next state; products U h use `hidden`, a gate carries over part of `state`."""

    @override
    def forward(self, inputs: Embedded, state: RecurrentState) -> RecurrentState:
        return self.step(self.project_inputs(inputs), state)


class TorchCell(RecurrentCell):
    """A cell with torch kernels, whose parameters are one block of memory, as cuDNN needs them."""

    layer_class: ClassVar[Callable[..., nn.RNNBase]]

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.layer = self.layer_class(input_size, hidden_size, batch_first=True)
        self.hidden_size = hidden_size

    @property
    def weights(self) -> list[nn.Parameter]:
        """The parameters in torch's order: W, U, bias of W, bias of U."""
        return self.layer.all_weights[0]


class RNNCell(TorchCell):
    """h' = tanh(W x + U h + b)  (Elman 1990)."""

    layer_class = nn.RNN

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        return (torch.rnn_tanh_cell(inputs, hidden, *self.weights),)


class GRUCell(TorchCell):
    """n = tanh(W x + r * (U h)); h' = (1 - z) * n + z * h  (Cho et al. 2014, reset as in cuDNN)."""

    layer_class = nn.GRU

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        if hidden is state[0]:
            return (torch.gru_cell(inputs, hidden, *self.weights),)
        # torch's kernel takes one hidden state, but z must carry over `state[0]`.
        weight_ih, weight_hh, bias_ih, bias_hh = self.weights
        input_projection = linear(inputs, weight_ih, bias_ih)
        return (gru_update(input_projection, linear(hidden, weight_hh, bias_hh), state[0]),)


class LSTMCell(TorchCell):
    """c' = f * c + i * g; h' = o * tanh(c')  (Hochreiter & Schmidhuber 1997, with forget gate)."""

    layer_class = nn.LSTM
    cell_state_index = 1

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        return torch.lstm_cell(inputs, (hidden, state[1]), *self.weights)


CELL_CLASSES: dict[str, type[TorchCell]] = {"rnn": RNNCell, "gru": GRUCell, "lstm": LSTMCell}


def gru_update(input_projection: Projected, hidden_projection: Projected, hidden: Hidden) -> Hidden:
    """Return the next hidden state of a GRU from W x and U h, both in the order r, z, n."""
    r_input, z_input, n_input = input_projection.chunk(3, dim=-1)
    r_hidden, z_hidden, n_hidden = hidden_projection.chunk(3, dim=-1)
    reset = (r_input + r_hidden).sigmoid()
    update = (z_input + z_hidden).sigmoid()
    return (1 - update) * (n_input + reset * n_hidden).tanh() + update * hidden


LinearFactory = Callable[[int, int], nn.Module]


def layer_norm_linear(input_size: int, size: int) -> nn.Module:
    """Return LN(W x), with a learned gain and bias."""
    return nn.Sequential(nn.Linear(input_size, size, bias=False), nn.LayerNorm(size))


class UnfusedGRUCell(RecurrentCell):
    """Parameters of a GRU that torch has no kernel for; `make_linear` may add layer norm."""

    def __init__(
        self, input_size: int, hidden_size: int, *, make_linear: LinearFactory = nn.Linear
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.input_to_gates = make_linear(input_size, 2 * hidden_size)
        self.input_to_candidate = make_linear(input_size, hidden_size)
        self.hidden_to_gates = make_linear(hidden_size, 2 * hidden_size)
        self.hidden_to_candidate = make_linear(hidden_size, hidden_size)

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        return torch.cat([self.input_to_gates(inputs), self.input_to_candidate(inputs)], dim=-1)


class ResetAfterGRUCell(UnfusedGRUCell):
    """`GRUCell` with any linear layers: n = tanh(W x + r * (U h)); h' = (1 - z) * n + z * h."""

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        projections = [self.hidden_to_gates(hidden), self.hidden_to_candidate(hidden)]
        return (gru_update(inputs, torch.cat(projections, dim=-1), state[0]),)


class ContextGRUCell(UnfusedGRUCell):
    """GRU that resets the context, too: n = tanh(W x + r * (U h + C c)); h' = (1 - z) * n + z * h.

    r and z have a term for c as well (Cho et al. 2014, A.1.2). The inputs are [x; c].
    """

    def __init__(
        self, input_size: int, hidden_size: int, context_size: int, *, make_linear: LinearFactory
    ) -> None:
        super().__init__(input_size - context_size, hidden_size, make_linear=make_linear)
        self.context_projection = make_linear(context_size, 3 * hidden_size)
        self.context_size = context_size

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        layer_inputs, context = inputs.tensor_split([-self.context_size], dim=-1)
        parts = [super().project_inputs(layer_inputs), self.context_projection(context)]
        return torch.cat(parts, dim=-1)

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        input_projection, context_projection = inputs.chunk(2, dim=-1)
        projections = [self.hidden_to_gates(hidden), self.hidden_to_candidate(hidden)]
        hidden_projection = torch.cat(projections, dim=-1) + context_projection
        return (gru_update(input_projection, hidden_projection, state[0]),)


class ResetBeforeGRUCell(UnfusedGRUCell):
    """GRU that resets the state before the product (Cho et al. 2014; Bahdanau et al. 2015).

    n = tanh(W x + U (r * h)); h' = (1 - z) * h + z * n

    Here z is the share of the new state; in `GRUCell` it is that of the old one. Gate order: r, z.
    """

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        gate_inputs, candidate_inputs = inputs.tensor_split([2 * self.hidden_size], dim=-1)
        reset, update = (gate_inputs + self.hidden_to_gates(hidden)).sigmoid().chunk(2, dim=-1)
        candidate = (candidate_inputs + self.hidden_to_candidate(reset * hidden)).tanh()
        return ((1 - update) * state[0] + update * candidate,)


class LayerNormRNNCell(RecurrentCell):
    """h' = tanh(LN(W x + U h))  (Ba et al. 2016, section 3.1)."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.input_to_hidden = nn.Linear(input_size, hidden_size, bias=False)
        self.hidden_to_hidden = nn.Linear(hidden_size, hidden_size, bias=False)
        self.norm = nn.LayerNorm(hidden_size)

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        return self.input_to_hidden(inputs)

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        return (self.norm(inputs + self.hidden_to_hidden(hidden)).tanh(),)


class LayerNormLSTMCell(RecurrentCell):
    """LSTM with layer norm on both products and on the cell state (Ba et al. 2016, supplement).

    [i f g o] = LN(W x) + LN(U h); c' = f * c + i * g; h' = o * tanh(LN(c'))
    """

    cell_state_index = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.input_to_hidden = layer_norm_linear(input_size, 4 * hidden_size)
        self.hidden_to_hidden = layer_norm_linear(hidden_size, 4 * hidden_size)
        self.norm = nn.LayerNorm(hidden_size)

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        return self.input_to_hidden(inputs)

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        gates = inputs + self.hidden_to_hidden(hidden)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        cell_state = forget_gate.sigmoid() * state[1] + input_gate.sigmoid() * candidate.tanh()
        return (output_gate.sigmoid() * self.norm(cell_state).tanh(), cell_state)


class CellWrapper(RecurrentCell):
    """A cell that changes the steps of another cell."""

    def __init__(self, cell: RecurrentCell) -> None:
        super().__init__()
        self.cell = cell
        self.hidden_size = cell.hidden_size
        self.cell_state_index = cell.cell_state_index

    @override
    def initial_state(self, hidden: Hidden) -> RecurrentState:
        return self.cell.initial_state(hidden)

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        return self.cell.project_inputs(inputs)


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
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        assert hidden is state[0], "the recurrent input of a residual cell is its cell's state"
        cell_state = self.cell.step(self.cell.project_inputs(inputs), state[1:])
        return (cell_state[0] + inputs[:, : self.hidden_size], *cell_state)


class StackedCells(nn.Module):
    """Cells on top of one another, each reading the output of the one below.

    Layers from `first_residual_layer` on, counted from 1, are residual, but never the first.
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
        layers = [*cells[:num_plain], *map(ResidualCell, cells[num_plain:])]
        self.cells = cast(MutableSequence[RecurrentCell], nn.ModuleList(layers))
        self.dropout = nn.Dropout(dropout)

    @property
    def has_cell_states(self) -> bool:
        """Whether each layer has an LSTM cell state."""
        return all(cell.cell_state_index is not None for cell in self.cells)

    def initial_state(
        self, hidden: Sequence[Hidden], cell_states: Sequence[Hidden] = ()
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
        for cell, state in zip(self.cells, states, strict=True):
            layer_inputs = self.dropout(next_states[-1][0]) if next_states else inputs
            if context is not None:
                layer_inputs = torch.cat([layer_inputs, context], dim=-1)
            next_states.append(cell(layer_inputs, state))
        return tuple(next_states)
