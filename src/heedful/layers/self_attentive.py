"""Self-attentive cells: what if a cell recalled all its past states, and not the last alone?

Such a cell writes every state on a tape. At the next step it looks back at the tape and works
with what it finds there, where another cell works with its last state: no single vector has to
hold all that was read. Law: what step t recalls depends on the input of step t and on what was
written before it; begun with h, the first step recalls h, for nothing is written yet.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from heedful.layers.cells import Cell, CellState
from heedful.layers.tapes import OwnPast, Tape
from heedful.shapes import Float


class TapedCell(Cell):
    """A cell with a tape; its state is what it shows, what it recalled last, and the tape."""

    def __init__(self, past: OwnPast, *, input_size: int, hidden_size: int, num_sums: int) -> None:
        super().__init__()
        self.past = past
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.of_input = nn.Linear(input_size, num_sums * hidden_size)
        self.of_recalled = nn.Linear(hidden_size, num_sums * hidden_size, bias=False)

    def begin(self, hidden: Float[Tensor, "B D"]) -> CellState:
        """Recall `hidden` at the first step, and show it."""
        context = self.first_context(hidden)
        return (hidden, context, *self.past.begin(context))

    def first_context(self, hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        """What the first step recalls."""
        return hidden

    def prepare(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """W x, and beside it x, which may ask."""
        return torch.cat([self.of_input(inputs), inputs], dim=-1)

    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Look back, take one more input into the state, and write it down."""
        assert recalled is None, "what is recalled is taken from the tape"
        _, last, *written = state
        tape = Tape(*written)
        told, inputs = prepared.tensor_split([-self.input_size], dim=-1)
        context = self.past(inputs, last, tape)
        values = self.renew(told, context)
        return (values[:, : self.hidden_size], context, *self.past.write(tape, values))

    @abstractmethod
    def renew(
        self, told: Float[Tensor, "B X"], context: Float[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        """What is written down of this step, the hidden state first."""


class SelfAttentiveCell(TapedCell):
    """h_t = tanh(A [x_t; c] + b), c = sum_{i<t} a_i h_i  (after Cheng et al. 2016).

    c is what lectures write as c_{t-1} where a context is made after a step, from h_1 to h_t, and
    as c_t where it is made before it, from h_1 to h_{t-1}. `past` says how the weights come about.
    """

    def __init__(self, input_size: int, hidden_size: int, past: OwnPast) -> None:
        super().__init__(past, input_size=input_size, hidden_size=hidden_size, num_sums=1)

    def renew(
        self, told: Float[Tensor, "B X"], context: Float[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        """The hidden state."""
        return (told + self.of_recalled(context)).tanh()


class SelfAttentiveLstmCell(TapedCell):
    """LSTM with self-attention, as lectures have it: h_t = o * c_t.

    s_t = sum_{i<t} a_i h_i; c'_t = sum_{i<t} a_i c_i; i, f, g and o from x_t and s_t;
    c_t = f * c'_t + i * g. Begun with h, the first step has s = h and c' = 0.
    """

    def __init__(self, input_size: int, hidden_size: int, past: OwnPast) -> None:
        super().__init__(past, input_size=input_size, hidden_size=hidden_size, num_sums=4)

    def first_context(self, hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        """What the first step recalls: `hidden`, and an empty memory cell."""
        return torch.cat([hidden, torch.zeros_like(hidden)], dim=-1)

    def renew(
        self, told: Float[Tensor, "B X"], context: Float[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        """The hidden state and the memory cell."""
        return self._gated(told, context)

    def _gated(
        self,
        sums: Float[Tensor, "B X"],
        context: Float[Tensor, "B V"],
        added: Float[Tensor, "B D"] | float = 0.0,
    ) -> Float[Tensor, "B V"]:
        recalled, memory = context.chunk(2, dim=-1)
        take, keep, new, show = (sums + self.of_recalled(recalled)).chunk(4, dim=-1)
        memory = added + keep.sigmoid() * memory + take.sigmoid() * new.tanh()
        return torch.cat([show.sigmoid() * self.squash(memory), memory], dim=-1)

    def squash(self, memory: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """What the output gate is laid on."""
        return memory


class LstmnCell(SelfAttentiveLstmCell):
    """The long short-term memory-network: h_t = o * tanh(c_t)  (Cheng et al. 2016, section 3.2).

    But for that tanh it is the LSTM with self-attention, whose weights come from
    v . tanh(W_h h_i + W_x x_t + W_h~ h~_{t-1}). Authors' code has no last term in its encoder.
    """

    def squash(self, memory: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """What the output gate is laid on."""
        return memory.tanh()


class FusedLstmnCell(LstmnCell):
    """An LSTMN that is told what to add to its memory  (Cheng et al. 2016, section 4, deep fusion).

    c_t = added_t + f * c~_t + i * g. What is added comes behind the input, as wide as the state.
    """

    def prepare(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """W x, what is to be added, and x, which asks."""
        read, added = inputs.tensor_split([self.input_size], dim=-1)
        return torch.cat([self.of_input(read), added, read], dim=-1)

    def renew(
        self, told: Float[Tensor, "B X"], context: Float[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        """The hidden state and the memory cell."""
        sums, added = told.tensor_split([-self.hidden_size], dim=-1)
        return self._gated(sums, context, added)
