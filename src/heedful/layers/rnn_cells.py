""""""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from heedful.config import BaseConfig
from heedful.shapes import Float

# Cells: how is one more input taken into a recurrent state?
#
# A cell turns an input (B, E) and a state into the next state. A state is a tuple of tensors with a
# row for each of the batch, whose first is what others see of it. Law: a cell keeps nothing between
# calls, and rows have no influence on one another.

BasicCellType = Literal["rnn", "gru", "lstm"]


RecurrentState = tuple[Tensor, ...]


class RecurrentCell(nn.Module, ABC):
    """One step of a recurrence."""

    hidden_size: int
    cell_state_index: int | None = None
    """Which part of a state is the memory cell, in a cell that has one; a tape is none."""

    def initial_state(self, hidden: Float[Tensor, "B D"]) -> RecurrentState:
        """Make the first state, of which others see `mask_replace_prob`; a memory cell is empty."""
        return (hidden,)

    def initial_state_with_cell(
        self, hidden: Float[Tensor, "B D"], memory: Float[Tensor, "B D"]
    ) -> RecurrentState:
        """Make the first state, of which others see `mask_replace_prob` and whose memory cell is given."""
        assert self.cell_state_index is not None, f"{type(self).__name__} has no memory cell"
        parts = list(self.initial_state(hidden))
        parts[self.cell_state_index] = memory
        return tuple(parts)

    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """Do to inputs what waits for no state: for a whole sequence, all at once."""
        return inputs

    @abstractmethod
    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more prepared input into the state.

        The recurrent products see `recalled` in place of the hidden state, where it is given;
        what a gate carries over from the hidden state is not touched by it.
        """

    def forward(self, inputs: Float[Tensor, "B E"], state: RecurrentState) -> RecurrentState:
        """Take one more input into the state."""
        return self.step(self.project_inputs(inputs), state)


class TorchCell(RecurrentCell):
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


class RNNCell(TorchCell):
    """h' = tanh(W x + U h + b)  (Elman 1990)."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(nn.RNN(input_size, hidden_size, batch_first=True))

    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more input into the state."""
        hidden = state[0] if recurrent_input is None else recurrent_input
        return (torch.rnn_tanh_cell(projected_inputs, hidden, *self.weights),)


class GRUCell(TorchCell):
    """The gated recurrent unit (Cho et al. 2014), reset after the product, as in torch and cuDNN.

    n = tanh(W x + r * (U h)); h' = (1 - z) * n + z * h
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(nn.GRU(input_size, hidden_size, batch_first=True))

    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more input into the state."""
        if recurrent_input is None:
            return (torch.gru_cell(projected_inputs, state[0], *self.weights),)
        # The kernel has one place for the state, but z carries over what no product sees.
        weight_ih, weight_hh, input_bias, hidden_bias = self.weights
        input_projection = linear(projected_inputs, weight_ih, input_bias)
        return (
            gru_update(input_projection, linear(recurrent_input, weight_hh, hidden_bias), state[0]),
        )


class LSTMCell(TorchCell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997, with forget gate).

    c' = f * c + i * g; h' = o * tanh(c')
    """

    cell_state_index = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(nn.LSTM(input_size, hidden_size, batch_first=True))

    def initial_state(self, hidden: Float[Tensor, "B D"]) -> RecurrentState:
        """Start from `mask_replace_prob`, with an empty memory cell."""
        return (hidden, torch.zeros_like(hidden))

    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more input into the state."""
        hidden, memory = state
        seen = hidden if recurrent_input is None else recurrent_input
        return torch.lstm_cell(projected_inputs, (seen, memory), *self.weights)


def gru_update(
    input_projection: Float[Tensor, "B X"],
    recurrent_input: Float[Tensor, "B X"],
    hidden: Float[Tensor, "B D"],
) -> Float[Tensor, "B D"]:
    """The next hidden state, from W x and U h, each r, z and n side by side."""
    (reset_told, keep_told, new_told), (reset_recalled, keep_recalled, new_recalled) = (
        part.chunk(3, dim=-1) for part in (input_projection, recurrent_input)
    )
    reset = (reset_told + reset_recalled).sigmoid()
    update_gate = (keep_told + keep_recalled).sigmoid()
    return (1 - update_gate) * (new_told + reset * new_recalled).tanh() + update_gate * hidden


CELL_CLASSES: dict[BasicCellType, type[RNNCell] | type[GRUCell] | type[LSTMCell]] = {
    "rnn": RNNCell,
    "gru": GRUCell,
    "lstm": LSTMCell,
}


# Gated cells, written out: those for which torch has no kernel.
#
# What a cell multiplies inputs and states with is a product, injected: `nn.Linear`, or one that
# normalises. W x waits for no state, so it is made for a whole sequence at once.

LinearFactory = Callable[[int, int], nn.Module]


class UnfusedGRUCell(RecurrentCell):
    """What both forms of a gated recurrent unit share: products for two gates and a candidate."""

    def __init__(
        self, input_size: int, hidden_size: int, *, make_linear: LinearFactory = nn.Linear
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.input_to_gates = make_linear(input_size, 2 * hidden_size)
        self.input_to_candidate = make_linear(input_size, hidden_size)
        self.hidden_to_gates = make_linear(hidden_size, 2 * hidden_size)
        self.hidden_to_candidate = make_linear(hidden_size, hidden_size)

    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """W x, for the gates and for the candidate."""
        return torch.cat([self.input_to_gates(inputs), self.input_to_candidate(inputs)], dim=-1)


class ResetAfterGRUCell(UnfusedGRUCell):
    """The unit of `GRUCell`, which resets the product U h, with products of any kind.

    n = tanh(W x + r * (U h)); h' = (1 - z) * n + z * h
    """

    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more input into the state."""
        hidden = state[0]
        recurrent_hidden = hidden if recurrent_input is None else recurrent_input
        hidden_projection = torch.cat(
            [self.hidden_to_gates(recurrent_hidden), self.hidden_to_candidate(recurrent_hidden)],
            dim=-1,
        )
        return (gru_update(projected_inputs, hidden_projection, hidden),)


class ResetBeforeGRUCell(UnfusedGRUCell):
    """The unit that resets the state before the product (Cho et al. 2014; Bahdanau et al. 2015).

    n = tanh(W x + U (r * h)); h' = (1 - z) * h + z * n

    Here z lets the new in; in `GRUCell` it keeps the old. Gates lie in the order r, z.
    """

    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more input into the state."""
        hidden, size = state[0], self.hidden_size
        recurrent_hidden = hidden if recurrent_input is None else recurrent_input
        gates = projected_inputs[:, : 2 * size] + self.hidden_to_gates(recurrent_hidden)
        reset, update = gates.sigmoid().chunk(2, dim=-1)
        candidate = (
            projected_inputs[:, 2 * size :] + self.hidden_to_candidate(reset * recurrent_hidden)
        ).tanh()
        return ((1 - update) * hidden + update * candidate,)


# Normalised cells: what is summed before a squashing function has mean 0 and variance 1.
#
# The mean and variance are those of one row at one step over its units, so neither the batch nor
# the length of a sequence has a say (Ba et al. 2016). The gated recurrent units are those of
# `gated`, with `normalised` products.


def layer_norm_linear(input_size: int, size: int) -> nn.Module:
    """LN(W x): a product whose outcome is normalised; gain and bias are learned."""
    return nn.Sequential(nn.Linear(input_size, size, bias=False), nn.LayerNorm(size))


class LayerNormRNNCell(RecurrentCell):
    """h' = tanh(LN(W x + U h))  (Ba et al. 2016, section 3.1): one norm, of the sum."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.input_to_hidden = nn.Linear(input_size, hidden_size, bias=False)
        self.hidden_to_hidden = nn.Linear(hidden_size, hidden_size, bias=False)
        self.norm = nn.LayerNorm(hidden_size)

    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B D"]:
        """W x."""
        return self.input_to_hidden(inputs)

    def step(
        self,
        projected_inputs: Float[Tensor, "B D"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more input into the state."""
        hidden = state[0] if recurrent_input is None else recurrent_input
        return (self.norm(projected_inputs + self.hidden_to_hidden(hidden)).tanh(),)


class LayerNormLSTMCell(RecurrentCell):
    """Long short-term memory with norms of both products and of what is shown.

    [i f g o] = LN(W x) + LN(U h); c' = f * c + i * g; h' = o * tanh(LN(c'))
    (Ba et al. 2016, supplementary material)
    """

    cell_state_index = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.input_to_hidden = layer_norm_linear(input_size, 4 * hidden_size)
        self.hidden_to_hidden = layer_norm_linear(hidden_size, 4 * hidden_size)
        self.norm = nn.LayerNorm(hidden_size)

    def initial_state(self, hidden: Float[Tensor, "B D"]) -> RecurrentState:
        """Start from `mask_replace_prob`, with an empty memory cell."""
        return (hidden, torch.zeros_like(hidden))

    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """LN(W x), for all gates."""
        return self.input_to_hidden(inputs)

    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more input into the state."""
        hidden, memory = state
        gates = projected_inputs + self.hidden_to_hidden(
            hidden if recurrent_input is None else recurrent_input
        )
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        memory = forget_gate.sigmoid() * memory + input_gate.sigmoid() * candidate.tanh()
        return (output_gate.sigmoid() * self.norm(memory).tanh(), memory)


# Regularised cells: how is a recurrence kept from leaning on single units?
#
# Each wraps a cell and is one. Law: what is drawn at random is drawn in training only; asked for an
# answer, the outcome is fixed.


class Zoneout(RecurrentCell):
    """A cell each of whose values now and then stays as it was (Krueger et al. 2017).

    s' = d * s + (1 - d) * cell(x, s), with d drawn anew for every value at every step; when the
    model is asked, d is its expectation. `rates` are the chances to stay, one for each part of the
    state: for an LSTM, of the hidden state and of the memory cell.
    """

    def __init__(self, cell: RecurrentCell, rates: Sequence[float]) -> None:
        super().__init__()
        self.cell = cell
        self.rates = tuple(rates)
        self.hidden_size = cell.hidden_size
        self.cell_state_index = cell.cell_state_index

    def initial_state(self, hidden: Float[Tensor, "B D"]) -> RecurrentState:
        """Begin as the cell does."""
        return self.cell.initial_state(hidden)

    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """Prepare as the cell does."""
        return self.cell.project_inputs(inputs)

    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more input into the state, or into most of it."""
        after = self.cell.step(projected_inputs, state, recurrent_input)
        parts = zip(state, after, self.rates, strict=True)
        return tuple(self._zoneout(old, new, rate) for old, new, rate in parts)

    def _zoneout(self, old: Tensor, new: Tensor, rate: float) -> Tensor:
        if self.training:
            keep_mask = torch.empty_like(new, dtype=torch.bool).bernoulli_(rate)
            return torch.where(keep_mask, old, new)
        return rate * old + (1 - rate) * new


class RecurrentDropout(RecurrentCell):
    """A cell whose recurrent products miss some units, the same all along a sequence.

    cell(x, m * h), with m drawn once, in `begin` (Gal & Ghahramani 2016); what a gate carries over
    is whole. The mask is the last part of the state, so it follows its row wherever that goes.
    """

    def __init__(self, cell: RecurrentCell, rate: float) -> None:
        super().__init__()
        self.cell = cell
        self.rate = rate
        self.hidden_size = cell.hidden_size
        self.cell_state_index = cell.cell_state_index

    def initial_state(self, hidden: Float[Tensor, "B D"]) -> RecurrentState:
        """Begin as the cell does, and draw the mask; when asked, it drops nothing."""
        mask = dropout(torch.ones_like(hidden), self.rate, self.training)
        return (*self.cell.initial_state(hidden), mask)

    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """Prepare as the cell does."""
        return self.cell.project_inputs(inputs)

    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Take one more input into the state."""
        *inner, mask = state
        if self.training:
            recurrent_input = mask * (inner[0] if recurrent_input is None else recurrent_input)
        return (*self.cell.step(projected_inputs, tuple(inner), recurrent_input), mask)


Probability = Annotated[float, Field(ge=0, lt=1)]


class CellConfigBase(BaseConfig):
    """A cell, and how it is kept from leaning on single units."""

    type: str
    layer_norm: bool = False
    """Whether sums within the cell are brought to mean 0 and variance 1 (Ba et al. 2016)."""
    recurrent_dropout: Probability = 0.0
    """Share of the state unseen within the cell, the same along a sequence (Gal & Ghahramani)."""
    zoneout: Probability = 0.0
    """Chance of each hidden value to stay as it was, at every step (Krueger et al. 2017)."""

    @abstractmethod
    def build_cell(self, input_size: int, hidden_size: int) -> RecurrentCell:
        """Make the cell itself."""

    @property
    def zoneout_rates(self) -> tuple[float, ...]:
        """The chance to stay as it was, for each part of the state."""
        return (self.zoneout,)

    def build(self, *, input_size: int, hidden_size: int) -> RecurrentCell:
        """Make the cell for inputs and states of these widths, in what is wrapped round it."""
        cell = self.build_cell(input_size, hidden_size)
        if any(self.zoneout_rates):
            cell = Zoneout(cell, self.zoneout_rates)
        return RecurrentDropout(cell, self.recurrent_dropout) if self.recurrent_dropout else cell


class RNNCellConfig(CellConfigBase):
    """Add input and state and squash the sum (Elman 1990)."""

    type: Literal["rnn"] = "rnn"

    def build_cell(self, input_size: int, hidden_size: int) -> RecurrentCell:
        """Make the cell itself."""
        return (LayerNormRNNCell if self.layer_norm else RNNCell)(input_size, hidden_size)


class GRUCellConfig(CellConfigBase):
    """Let two gates say what is new and what is kept (Cho et al. 2014)."""

    type: Literal["gru"] = "gru"
    reset: Literal["after", "before"] = "after"
    """Whether the product with the state is reset, as in cuDNN, or the state before it."""

    def build_cell(self, input_size: int, hidden_size: int) -> RecurrentCell:
        """Make the cell itself."""
        if self.reset == "after" and not self.layer_norm:
            return GRUCell(input_size, hidden_size)
        cell_class = ResetAfterGRUCell if self.reset == "after" else ResetBeforeGRUCell
        if self.layer_norm:
            return cell_class(input_size, hidden_size, make_linear=layer_norm_linear)
        return cell_class(input_size, hidden_size)


class LSTMCellConfig(CellConfigBase):
    """Keep a memory cell behind gates (Hochreiter & Schmidhuber 1997)."""

    type: Literal["lstm"] = "lstm"
    cell_zoneout: Probability = 0.0
    """Chance of each value of the memory cell to stay as it was, at every step."""

    @property
    def zoneout_rates(self) -> tuple[float, ...]:
        """The chance to stay as it was, for each part of the state."""
        return (self.zoneout, self.cell_zoneout)

    def build_cell(self, input_size: int, hidden_size: int) -> RecurrentCell:
        """Make the cell itself."""
        return (LayerNormLSTMCell if self.layer_norm else LSTMCell)(input_size, hidden_size)
