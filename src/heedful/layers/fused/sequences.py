"""Whole sequences by a single kernel: those of torch, for the cells it has.

Law: values and gradients are those of the cell, step by step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from heedful.layers.cells import Cell, CellState, GruCell, LstmCell, SimpleCell, TorchCell
from heedful.layers.regularised import RecurrentDropout
from heedful.shapes import Float


def fusible(cell: Cell) -> TorchCell | None:
    """The cell whose kernel does what this cell does; None where there is no such kernel."""
    if type(cell) is RecurrentDropout and not cell.training:
        return fusible(cell.cell)
    # The very types: a subclass may step otherwise.
    is_plain = type(cell) in {SimpleCell, GruCell, LstmCell}
    return cell if is_plain and isinstance(cell, TorchCell) else None


def fused_shown(
    cell: TorchCell, inputs: Float[Tensor, "B S E"], state: CellState
) -> Float[Tensor, "B S D"]:
    """What is seen of the state after each input."""
    # By place, for what a wrapper carries behind the state of the cell has no part in it.
    hidden = state[0].unsqueeze(0)
    if type(cell) is LstmCell:
        return cell.layer(inputs, (hidden, state[1].unsqueeze(0)))[0]
    return cell.layer(inputs, hidden)[0]


def fused_states(
    cell: TorchCell, inputs: Float[Tensor, "B S E"], state: CellState
) -> tuple[Float[Tensor, "B S D"], ...]:
    """The whole state after each input."""
    states = [fused_shown(cell, inputs, state)]
    if type(cell) is LstmCell:
        states.append(_memories(cell, inputs, states[0], state))
    carried = state[len(states) :]
    return (*states, *(part.unsqueeze(1).expand_as(states[0]) for part in carried))


def _memories(
    cell: LstmCell,
    inputs: Float[Tensor, "B S E"],
    shown: Float[Tensor, "B S D"],
    state: CellState,
) -> Float[Tensor, "B S D"]:
    # The kernel tells the memory cell of an LSTM at the end of the padding only. But the gates
    # depend on inputs and on what was shown, which are known: what is left is c' = f * c + i * g.
    of_input, of_hidden, input_bias, hidden_bias = cell.weights
    before = torch.cat([state[0].unsqueeze(1), shown[:, :-1]], dim=1)
    gates = linear(inputs, of_input, input_bias) + linear(before, of_hidden, hidden_bias)
    take, keep, new, _ = gates.chunk(4, dim=-1)
    added, kept = take.sigmoid() * new.tanh(), keep.sigmoid()
    memories = [state[1]]
    for addition, share in zip(added.unbind(1), kept.unbind(1), strict=True):
        memories.append(share * memories[-1] + addition)
    return torch.stack(memories[1:], dim=1)
