"""Gated cells, written out: those for which torch has no kernel.

What a cell multiplies inputs and states with is a product, injected: `nn.Linear`, or one that
normalises. W x waits for no state, so it is made for a whole sequence at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from heedful.layers.cells import Cell, CellState, reset_after
from heedful.shapes import Float

Product = Callable[[int, int], nn.Module]


class WrittenGruCell(Cell):
    """What both forms of a gated recurrent unit share: products for two gates and a candidate."""

    def __init__(self, input_size: int, hidden_size: int, *, product: Product = nn.Linear) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.gates_of_input = product(input_size, 2 * hidden_size)
        self.candidate_of_input = product(input_size, hidden_size)
        self.gates_of_hidden = product(hidden_size, 2 * hidden_size)
        self.candidate_of_hidden = product(hidden_size, hidden_size)

    def prepare(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """W x, for the gates and for the candidate."""
        return torch.cat([self.gates_of_input(inputs), self.candidate_of_input(inputs)], dim=-1)


class ResetAfterGruCell(WrittenGruCell):
    """The unit of `GruCell`, which resets the product U h, with products of any kind.

    n = tanh(W x + r * (U h)); h' = (1 - z) * n + z * h
    """

    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more input into the state."""
        hidden = state[0]
        seen = hidden if recalled is None else recalled
        products = torch.cat([self.gates_of_hidden(seen), self.candidate_of_hidden(seen)], dim=-1)
        return (reset_after(prepared, products, hidden),)


class ResetBeforeGruCell(WrittenGruCell):
    """The unit that resets the state before the product (Cho et al. 2014; Bahdanau et al. 2015).

    n = tanh(W x + U (r * h)); h' = (1 - z) * h + z * n

    Here z lets the new in; in `GruCell` it keeps the old. Gates lie in the order r, z.
    """

    def step(
        self,
        prepared: Float[Tensor, "B X"],
        state: CellState,
        recalled: Float[Tensor, "B D"] | None = None,
    ) -> CellState:
        """Take one more input into the state."""
        hidden, size = state[0], self.hidden_size
        seen = hidden if recalled is None else recalled
        gates = prepared[:, : 2 * size] + self.gates_of_hidden(seen)
        reset, update = gates.sigmoid().chunk(2, dim=-1)
        new = (prepared[:, 2 * size :] + self.candidate_of_hidden(reset * seen)).tanh()
        return ((1 - update) * hidden + update * new,)
