"""Sequences: what becomes of a cell's state along a whole sequence of inputs?

The plain form repeats the cell. A rule takes a single kernel where there is one that does the
same; which cell it is decides that, never a model or a configuration. A part of a state is
(B, D), and made anew by every step, or it is a tape, (B, S, D), to which every step adds a place.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.layers.cells import Cell, CellState
from heedful.layers.fused.sequences import fused_shown, fused_states, fusible
from heedful.shapes import Float


def shown_along(
    cell: Cell, inputs: Float[Tensor, "B S E"], state: CellState
) -> Float[Tensor, "B S D"]:
    """What is seen of the state after each input."""
    plain = fusible(cell)
    if plain is not None:
        return fused_shown(plain, inputs, state)
    return torch.stack([after[0] for after in repeat(cell, inputs, state)], dim=1)


def states_along(
    cell: Cell, inputs: Float[Tensor, "B S E"], state: CellState
) -> tuple[Tensor, ...]:
    """The whole state after each input; of a tape the last, which has all before it in it."""
    plain = fusible(cell)
    states = fused_states(plain, inputs, state) if plain is not None else None
    if states is not None:
        return states
    parts = zip(*repeat(cell, inputs, state), strict=True)
    return tuple(part[-1] if is_tape(part[-1]) else torch.stack(part, dim=1) for part in parts)


def repeat(cell: Cell, inputs: Float[Tensor, "B S E"], state: CellState) -> list[CellState]:
    """The state after each input, one by one."""
    states = []
    for prepared in cell.prepare(inputs).unbind(dim=1):
        state = cell.step(prepared, state)
        states.append(state)
    return states


def is_tape(part: Tensor) -> bool:
    """Whether a part of a state has a place for every step so far."""
    return part.dim() > 2
