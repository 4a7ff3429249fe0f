"""Recurrent cells: one step of an RNN, GRU or LSTM, plain, with layer norm or regularized.

A cell maps an input (B, E) and a state to the next state. A state is a tuple of tensors with one
row per example; its first part is the hidden state, which is also the output. Invariant: a cell
keeps nothing between calls, and rows do not influence one another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout, linear
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.shapes import Embedded, Float, Hidden

RecurrentState = tuple[Tensor, ...]
Projected = Float[Tensor, "B X"]


class RecurrentCell(nn.Module, ABC):
    """One step of a recurrent layer."""

    hidden_size: int
    cell_state_index: int | None = None
    """Index of an LSTM's cell state among the parts of the state; None if there is none."""

    def initial_state(self, hidden: Hidden) -> RecurrentState:
        """Return the first state with this hidden state; a cell state is zero."""
        return (hidden,)

    def initial_state_with_cell(self, hidden: Hidden, cell_state: Hidden) -> RecurrentState:
        """Return the first state with this hidden state and this cell state."""
        assert self.cell_state_index is not None, f"{type(self).__name__} has no cell state"
        parts = list(self.initial_state(hidden))
        parts[self.cell_state_index] = cell_state
        return tuple(parts)

    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """Compute the part of a step that needs no state, for a whole sequence at once."""
        return inputs

    @abstractmethod
    def step(
        self, inputs: Projected, state: RecurrentState, recurrent_input: Hidden | None = None
    ) -> RecurrentState:
        """Return the next state for inputs that `project_inputs` has projected.

        `recurrent_input` replaces the hidden state in the recurrent products U h, but not in what
        a gate carries over.
        """

    @override
    def forward(self, inputs: Embedded, state: RecurrentState) -> RecurrentState:
        return self.step(self.project_inputs(inputs), state)


class TorchCell(RecurrentCell):
    """A cell with torch kernels for one step and for a whole sequence.

    The parameters belong to torch's own layer, which keeps them in one block of GPU memory, as
    cuDNN needs them.
    """

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
    def step(
        self, inputs: Projected, state: RecurrentState, recurrent_input: Hidden | None = None
    ) -> RecurrentState:
        hidden = state[0] if recurrent_input is None else recurrent_input
        return (torch.rnn_tanh_cell(inputs, hidden, *self.weights),)


class GRUCell(TorchCell):
    """Gated recurrent unit (Cho et al. 2014), reset after the product, as in torch and cuDNN.

    n = tanh(W x + r * (U h)); h' = (1 - z) * n + z * h
    """

    layer_class = nn.GRU

    @override
    def step(
        self, inputs: Projected, state: RecurrentState, recurrent_input: Hidden | None = None
    ) -> RecurrentState:
        if recurrent_input is None:
            return (torch.gru_cell(inputs, state[0], *self.weights),)
        # torch's kernel takes one hidden state, but z must carry over `state[0]`.
        weight_ih, weight_hh, bias_ih, bias_hh = self.weights
        input_projection = linear(inputs, weight_ih, bias_ih)
        hidden_projection = linear(recurrent_input, weight_hh, bias_hh)
        return (gru_update(input_projection, hidden_projection, state[0]),)


class LSTMCell(TorchCell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997, with forget gate).

    c' = f * c + i * g; h' = o * tanh(c')
    """

    layer_class = nn.LSTM
    cell_state_index = 1

    @override
    def initial_state(self, hidden: Hidden) -> RecurrentState:
        return (hidden, torch.zeros_like(hidden))

    @override
    def step(
        self, inputs: Projected, state: RecurrentState, recurrent_input: Hidden | None = None
    ) -> RecurrentState:
        hidden, cell_state = state
        if recurrent_input is not None:
            hidden = recurrent_input
        return torch.lstm_cell(inputs, (hidden, cell_state), *self.weights)


def gru_update(
    input_projection: Projected, hidden_projection: Projected, hidden: Hidden
) -> Float[Tensor, "B D"]:
    """Return the next hidden state of a GRU from W x and U h, both in the order r, z, n."""
    r_input, z_input, n_input = input_projection.chunk(3, dim=-1)
    r_hidden, z_hidden, n_hidden = hidden_projection.chunk(3, dim=-1)
    reset = (r_input + r_hidden).sigmoid()
    update = (z_input + z_hidden).sigmoid()
    return (1 - update) * (n_input + reset * n_hidden).tanh() + update * hidden


CELL_CLASSES: dict[str, type[TorchCell]] = {"rnn": RNNCell, "gru": GRUCell, "lstm": LSTMCell}

LinearFactory = Callable[[int, int], nn.Module]


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
    def step(
        self, inputs: Projected, state: RecurrentState, recurrent_input: Hidden | None = None
    ) -> RecurrentState:
        hidden = state[0] if recurrent_input is None else recurrent_input
        hidden_projection = torch.cat(
            [self.hidden_to_gates(hidden), self.hidden_to_candidate(hidden)], dim=-1
        )
        return (gru_update(inputs, hidden_projection, state[0]),)


class ResetBeforeGRUCell(UnfusedGRUCell):
    """GRU that resets the state before the product (Cho et al. 2014; Bahdanau et al. 2015).

    n = tanh(W x + U (r * h)); h' = (1 - z) * h + z * n

    Here z is the share of the new state; in `GRUCell` it is that of the old one. Gate order: r, z.
    """

    @override
    def step(
        self, inputs: Projected, state: RecurrentState, recurrent_input: Hidden | None = None
    ) -> RecurrentState:
        hidden = state[0] if recurrent_input is None else recurrent_input
        gate_inputs, candidate_inputs = inputs.tensor_split([2 * self.hidden_size], dim=-1)
        reset, update = (gate_inputs + self.hidden_to_gates(hidden)).sigmoid().chunk(2, dim=-1)
        candidate = (candidate_inputs + self.hidden_to_candidate(reset * hidden)).tanh()
        return ((1 - update) * state[0] + update * candidate,)


def layer_norm_linear(input_size: int, size: int) -> nn.Module:
    """Return LN(W x), with a learned gain and bias."""
    return nn.Sequential(nn.Linear(input_size, size, bias=False), nn.LayerNorm(size))


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
    def step(
        self, inputs: Projected, state: RecurrentState, recurrent_input: Hidden | None = None
    ) -> RecurrentState:
        hidden = state[0] if recurrent_input is None else recurrent_input
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
    def initial_state(self, hidden: Hidden) -> RecurrentState:
        return (hidden, torch.zeros_like(hidden))

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        return self.input_to_hidden(inputs)

    @override
    def step(
        self, inputs: Projected, state: RecurrentState, recurrent_input: Hidden | None = None
    ) -> RecurrentState:
        hidden, cell_state = state
        gates = inputs + self.hidden_to_hidden(
            hidden if recurrent_input is None else recurrent_input
        )
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        cell_state = forget_gate.sigmoid() * cell_state + input_gate.sigmoid() * candidate.tanh()
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


class Zoneout(CellWrapper):
    """s' = d * s + (1 - d) * cell(x, s)  (Krueger et al. 2017).

    d is drawn for every value at every step in training; in eval mode it is its expectation.
    `rates` has one probability for each part of the state.
    """

    def __init__(self, cell: RecurrentCell, rates: Sequence[float]) -> None:
        super().__init__(cell)
        self.rates = tuple(rates)

    @override
    def step(
        self, inputs: Projected, state: RecurrentState, recurrent_input: Hidden | None = None
    ) -> RecurrentState:
        next_state = self.cell.step(inputs, state, recurrent_input)
        parts = zip(state, next_state, self.rates, strict=True)
        return tuple(self._zoneout(old, new, rate) for old, new, rate in parts)

    def _zoneout(self, old: Tensor, new: Tensor, rate: float) -> Tensor:
        if self.training:
            keep_mask = torch.empty_like(new, dtype=torch.bool).bernoulli_(rate)
            return torch.where(keep_mask, old, new)
        return rate * old + (1 - rate) * new


class RecurrentDropout(CellWrapper):
    """cell(x, m * h), with one dropout mask m per sequence (Gal & Ghahramani 2016).

    What a gate carries over is not dropped. The mask is drawn in `initial_state` and is the last
    part of the state, so that it is reordered with its row.
    """

    def __init__(self, cell: RecurrentCell, rate: float) -> None:
        super().__init__(cell)
        self.rate = rate

    @override
    def initial_state(self, hidden: Hidden) -> RecurrentState:
        mask = dropout(torch.ones_like(hidden), self.rate, self.training)
        return (*self.cell.initial_state(hidden), mask)

    @override
    def step(
        self, inputs: Projected, state: RecurrentState, recurrent_input: Hidden | None = None
    ) -> RecurrentState:
        *cell_parts, mask = state
        if self.training:
            recurrent_input = mask * (cell_parts[0] if recurrent_input is None else recurrent_input)
        return (*self.cell.step(inputs, tuple(cell_parts), recurrent_input), mask)


Rate = Annotated[float, Field(ge=0, lt=1)]


class CellConfigBase(BaseConfig):
    """A recurrent cell and its regularization."""

    type: str
    layer_norm: bool = False
    """Apply layer normalization inside the cell (Ba et al. 2016)."""
    recurrent_dropout: Rate = 0.0
    """Dropout on the recurrent connection, one mask per sequence (Gal & Ghahramani 2016)."""
    zoneout: Rate = 0.0
    """Probability that a hidden value keeps its previous value at a step (Krueger et al. 2017)."""

    @abstractmethod
    def build_cell(self, input_size: int, hidden_size: int) -> RecurrentCell:
        """Build the cell without zoneout and recurrent dropout."""

    @property
    def zoneout_rates(self) -> tuple[float, ...]:
        """The zoneout probability of each part of the state."""
        return (self.zoneout,)

    def build(self, *, input_size: int, hidden_size: int) -> RecurrentCell:
        cell = self.build_cell(input_size, hidden_size)
        if any(self.zoneout_rates):
            cell = Zoneout(cell, self.zoneout_rates)
        return RecurrentDropout(cell, self.recurrent_dropout) if self.recurrent_dropout else cell


class RNNCellConfig(CellConfigBase):
    """Simple recurrent cell with tanh (Elman 1990)."""

    type: Literal["rnn"] = "rnn"

    @override
    def build_cell(self, input_size: int, hidden_size: int) -> RecurrentCell:
        return (LayerNormRNNCell if self.layer_norm else RNNCell)(input_size, hidden_size)


class GRUCellConfig(CellConfigBase):
    """Gated recurrent unit (Cho et al. 2014)."""

    type: Literal["gru"] = "gru"
    reset: Literal["after", "before"] = "after"
    """Apply the reset gate after the product with the state, as in cuDNN, or before it."""

    @override
    def build_cell(self, input_size: int, hidden_size: int) -> RecurrentCell:
        if self.reset == "after" and not self.layer_norm:
            return GRUCell(input_size, hidden_size)
        cell_class = ResetAfterGRUCell if self.reset == "after" else ResetBeforeGRUCell
        make_linear: LinearFactory = layer_norm_linear if self.layer_norm else nn.Linear
        return cell_class(input_size, hidden_size, make_linear=make_linear)


class LSTMCellConfig(CellConfigBase):
    """Long short-term memory (Hochreiter & Schmidhuber 1997)."""

    type: Literal["lstm"] = "lstm"
    cell_zoneout: Rate = 0.0
    """Probability that a value of the cell state keeps its previous value at a step."""

    @property
    @override
    def zoneout_rates(self) -> tuple[float, ...]:
        return (self.zoneout, self.cell_zoneout)

    @override
    def build_cell(self, input_size: int, hidden_size: int) -> RecurrentCell:
        return (LayerNormLSTMCell if self.layer_norm else LSTMCell)(input_size, hidden_size)
