"""Normalised cells: what is summed before a squashing function has mean 0 and variance 1.

The mean and variance are those of one row at one step over its units, so neither the batch nor
the length of a sequence has a say (Ba et al. 2016). The gated recurrent units are those of
`gated`, with `normalised` products.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heedful.layers.cells import Cell, CellState
from heedful.shapes import Float


def normalised(input_size: int, size: int) -> nn.Module:
    """LN(W x): a product whose outcome is normalised; gain and bias are learned."""
    return nn.Sequential(nn.Linear(input_size, size, bias=False), nn.LayerNorm(size))


class NormalisedSimpleCell(Cell):
    """h' = tanh(LN(W x + U h))  (Ba et al. 2016, section 3.1): one norm, of the sum."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.of_input = nn.Linear(input_size, hidden_size, bias=False)
        self.of_hidden = nn.Linear(hidden_size, hidden_size, bias=False)
        self.norm = nn.LayerNorm(hidden_size)

    def prepare(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B D"]:
        """W x."""
        return self.of_input(inputs)

    def step(
        self,
        prepared: Float[Tensor, "B D"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more input into the state."""
        hidden = state[0] if recalled is None else recalled
        return (self.norm(prepared + self.of_hidden(hidden)).tanh(),)


class NormalisedLstmCell(Cell):
    """Long short-term memory with norms of both products and of what is shown.

    [i f g o] = LN(W x) + LN(U h); c' = f * c + i * g; h' = o * tanh(LN(c'))
    (Ba et al. 2016, supplementary material)
    """

    memory_place = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.of_input = normalised(input_size, 4 * hidden_size)
        self.of_hidden = normalised(hidden_size, 4 * hidden_size)
        self.norm = nn.LayerNorm(hidden_size)

    def begin(self, hidden: Float[Tensor, "B D"]) -> CellState:
        """Start from `hidden`, with an empty memory cell."""
        return (hidden, torch.zeros_like(hidden))

    def prepare(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """LN(W x), for all gates."""
        return self.of_input(inputs)

    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more input into the state."""
        hidden, memory = state
        gates = prepared + self.of_hidden(hidden if recalled is None else recalled)
        take, keep, new, show = gates.chunk(4, dim=-1)
        memory = keep.sigmoid() * memory + take.sigmoid() * new.tanh()
        return (show.sigmoid() * self.norm(memory).tanh(), memory)
