"""Sequences: what becomes of a cell's state along a whole sequence of inputs?

The plain form repeats the cell. A rule takes a single kernel where there is one that does the
same; which cell it is decides that, never a model or a configuration. A part of a state is
(B, D), and made anew by every step, or it is a tape, (B, S, D), to which every step adds a place.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.layers.cells import Cell, CellState, LstmCell
from heedful.layers.fused.sequences import fused_memories, fused_shown, fused_states, fusible
from heedful.shapes import Float, Int


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


def read_along(
    cell: Cell, inputs: Float[Tensor, "B S E"], lengths: Int[Tensor, "B"], state: CellState
) -> tuple[Float[Tensor, "B S D"], CellState]:
    """What is seen of the state after each input, and the state after each row's own last."""
    plain = fusible(cell)
    if isinstance(plain, LstmCell) and inputs.size(1) > 1:  # one step is soonest made as a step
        shown, memory = fused_memories(plain, inputs, lengths, state)
        return shown, (_at_end(state[0], shown, lengths), memory, *state[2:])
    states = states_along(cell, inputs, state)
    return states[0], tuple(_at_end(*part, lengths) for part in zip(state, states, strict=True))


def _at_end(first: Tensor, states: Tensor, lengths: Int[Tensor, "B"]) -> Tensor:
    """One part of the state after each row's own last input, from the part along the sequence."""
    if is_tape(first):
        places = torch.arange(states.size(1), device=states.device)
        written = places < first.size(1) + lengths[:, None]  # (B, S)
        return states.masked_fill(~written[:, :, None], 0)
    rows = torch.arange(len(lengths), device=lengths.device)
    return torch.cat([first.unsqueeze(1), states], dim=1)[rows, lengths]


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
