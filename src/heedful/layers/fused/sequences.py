"""Whole sequences by a single kernel: those of torch, for the cells it has.

Law: values and gradients are those of the cell, step by step.
"""

from __future__ import annotations

from torch import Tensor

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
) -> tuple[Float[Tensor, "B S D"], ...] | None:
    """The whole state after each input; None for an LSTM, of whose memory kernels tell the last.

    It could be made again from inputs and outputs, all gates at once; on a CPU that took longer
    than the cell step by step (66 ms against 48, forward and backward, 32 rows of 24, width 128).
    """
    if type(cell) is LstmCell:
        return None
    shown = fused_shown(cell, inputs, state)
    return (shown, *(carried.unsqueeze(1).expand_as(shown) for carried in state[1:]))
