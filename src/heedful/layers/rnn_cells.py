"""Recurrent cells: one step of an RNN, GRU or LSTM, plain or with layer norm.

A cell maps an input (B, E) and a state to the next state. A state is a tuple of tensors with one
row per example; its first part is the hidden state, which is also the output. A part is (B, D),
replaced by each step, or a history (B, S, D), to which it appends. Invariant: a cell keeps nothing
between calls, and rows do not influence one another.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from typing_extensions import override

from heedful.shapes import Embedded, Float, Hidden, Lengths

RecurrentState = tuple[Any, ...]  # tensors; with lower attention, a cache of inputs at the end
Projected = Float[Tensor, "B X"]
CellState = Float[Tensor, "B C"]  # of an LSTM; as large as a hidden state, or larger


def final_part(first: Tensor, states: Tensor, lengths: Lengths) -> Tensor:
    """Select one part of the state after each row's last real input from its values over time."""
    if is_history(first):
        positions = torch.arange(states.size(1), device=states.device)
        is_real = positions < first.size(1) + lengths[:, None]  # (B, S)
        return states.masked_fill(~is_real[:, :, None], 0)
    rows = torch.arange(len(lengths), device=lengths.device)
    return torch.cat([first.unsqueeze(1), states], dim=1)[rows, lengths]


def final_state(
    state: RecurrentState, states: Sequence[Tensor], lengths: Lengths
) -> RecurrentState:
    """Select the state after each row's last real input from the first one and all after it."""
    return tuple(final_part(*part, lengths) for part in zip(state, states, strict=True))


def is_history(part: Tensor) -> bool:
    """Whether a part of a state has one position per step so far."""
    return part.dim() > 2


class RecurrentCell(nn.Module, ABC):
    """One step of a recurrent layer."""

    hidden_size: int
    cell_state_index: int | None = None
    """Index of an LSTM's cell state among the parts of the state; None if there is none."""
    cell_state_size: int = 0
    """Size of an LSTM's cell state; larger than `hidden_size` if the output is projected."""

    def initial_state(self, hidden: Hidden) -> RecurrentState:
        """Return the first state with this hidden state; a cell state is zero."""
        if self.cell_state_index is None:
            return (hidden,)
        return hidden, hidden.new_zeros(len(hidden), self.cell_state_size)

    def initial_state_with_cell(self, hidden: Hidden, cell_state: CellState) -> RecurrentState:
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
        """The parameters in torch's order: W, U, bias of W, bias of U, and a projection if any."""
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
    initial_forget_bias: float = 0.0
    """Added to the initial bias of the forget gate, however that is drawn."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.cell_state_size = hidden_size

    @torch.no_grad()
    def add_forget_bias(self) -> None:
        """Add `initial_forget_bias` to the bias of the forget gate."""
        size = self.cell_state_size
        self.weights[3][size : 2 * size] += self.initial_forget_bias

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        return torch.lstm_cell(inputs, (hidden, state[1]), *self.weights)


class ProjectedLSTMCell(LSTMCell):
    """c' = f * c + i * g; h' = W_p (o * tanh(c'))  (Sak et al. 2014, recurrent projection).

    torch calls the size of h `proj_size`, and the size of c `hidden_size`.
    """

    def __init__(self, input_size: int, hidden_size: int, cell_state_size: int) -> None:
        RecurrentCell.__init__(self)
        self.layer = nn.LSTM(input_size, cell_state_size, proj_size=hidden_size, batch_first=True)
        self.hidden_size, self.cell_state_size = hidden_size, cell_state_size

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        # torch's kernel for one step has no projection.
        weight_ih, weight_hh, bias_ih, bias_hh, projection = self.weights
        gates = linear(inputs, weight_ih, bias_ih) + linear(hidden, weight_hh, bias_hh)
        output_gate, cell_state = lstm_update(gates, state[1])
        return linear(output_gate * cell_state.tanh(), projection), cell_state


CELL_CLASSES: dict[str, type[TorchCell]] = {"rnn": RNNCell, "gru": GRUCell, "lstm": LSTMCell}


def gru_update(input_projection: Projected, hidden_projection: Projected, hidden: Hidden) -> Hidden:
    """Return the next hidden state of a GRU from W x and U h, both in the order r, z, n."""
    r_input, z_input, n_input = input_projection.chunk(3, dim=-1)
    r_hidden, z_hidden, n_hidden = hidden_projection.chunk(3, dim=-1)
    reset = (r_input + r_hidden).sigmoid()
    update = (z_input + z_hidden).sigmoid()
    return (1 - update) * (n_input + reset * n_hidden).tanh() + update * hidden


def lstm_update(gates: Projected, cell_state: CellState) -> tuple[CellState, CellState]:
    """Return the output gate and the next cell state from W x + U h, in the order i, f, g, o."""
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
    cell_state = forget_gate.sigmoid() * cell_state + input_gate.sigmoid() * candidate.tanh()
    return output_gate.sigmoid(), cell_state


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
    """GRU that also resets the context: n = tanh(W x + r * (U h + C c)); h' = (1 - z) * n + z * h.

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

    Here z is the fraction of the new state, in `GRUCell` of the old one. Gate order: r, z.
    """

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        gate_inputs, candidate_inputs = inputs.split(
            [2 * self.hidden_size, self.hidden_size], dim=-1
        )
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

    [i f g o] = LN(W x) + LN(U h); c' = f * c + i * g; h' = o * tanh(LN(c')), projected if c is
    larger than h.
    """

    cell_state_index = 1

    def __init__(
        self, input_size: int, hidden_size: int, cell_state_size: int | None = None
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.cell_state_size = size = cell_state_size or hidden_size
        self.input_to_hidden = layer_norm_linear(input_size, 4 * size)
        self.hidden_to_hidden = layer_norm_linear(hidden_size, 4 * size)
        self.norm = nn.LayerNorm(size)
        self.projection: nn.Module = nn.Identity()
        if cell_state_size is not None:
            self.projection = nn.Linear(size, hidden_size, bias=False)

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        return self.input_to_hidden(inputs)

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        output_gate, cell_state = lstm_update(inputs + self.hidden_to_hidden(hidden), state[1])
        return self.projection(output_gate * self.norm(cell_state).tanh()), cell_state


class CellWrapper(RecurrentCell):
    """A cell that changes the steps of another cell."""

    def __init__(self, cell: RecurrentCell) -> None:
        super().__init__()
        self.cell = cell
        self.hidden_size = cell.hidden_size
        self.cell_state_index = cell.cell_state_index
        self.cell_state_size = cell.cell_state_size

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
