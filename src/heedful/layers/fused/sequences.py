"""Whole sequences by a single kernel: those of torch, for the cells it has.

Law: values and gradients are those of the cell, step by step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.layers.cells import Cell, CellState, GruCell, LstmCell, SimpleCell, TorchCell
from heedful.layers.regularised import RecurrentDropout
from heedful.shapes import Float, Int


def fusible(cell: Cell) -> TorchCell | None:
    """The cell whose kernel does what this cell does; None where there is no such kernel."""
    if type(cell) is RecurrentDropout and not cell.training:
        return fusible(cell.cell)
    # The very types: a subclass may step otherwise.
    is_plain = type(cell) in {SimpleCell, GruCell, LstmCell}
    if not is_plain or not isinstance(cell, TorchCell) or _lacks_kernel(cell):
        return None
    return cell


def _lacks_kernel(cell: TorchCell) -> bool:
    """Whether torch would fail: on a CPU it learns no long short-term memory in fp16."""
    is_half = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16
    return is_half and type(cell) is LstmCell and cell.weights[0].device.type == "cpu"


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


def fused_memories(
    cell: LstmCell,
    inputs: Float[Tensor, "B S E"],
    lengths: Int[Tensor, "B"],
    state: CellState,
) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
    """What is seen after each input, and the memory cell after each row's own last.

    On a CPU, forward and backward, one thread, 32 rows of 4 to 24, width 128: 5.7 ms where padding
    is told to change nothing, 12.4 by ragged rows, 10.4 step by step; what is seen alone, 5.4. On
    a GPU weights must lie in one piece of memory, so none can be added; there rows are ragged.
    """
    return (ragged if inputs.is_cuda else holding)(cell, inputs, lengths, state)


def holding(
    cell: LstmCell,
    inputs: Float[Tensor, "B S E"],
    lengths: Int[Tensor, "B"],
    state: CellState,
) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
    """Read all rows to the last place, past their ends with gates that let c' = c.

    One more input is 1 past the end and 0 before it. Its weights close the input gate and open the
    forget gate, so wide that both are exact in any precision: sigmoid(-1e4) = 0, sigmoid(1e4) = 1.
    """
    places = torch.arange(inputs.size(1), device=inputs.device)
    past_the_end = (places >= lengths[:, None]).unsqueeze(-1)  # (B, S, 1)
    marked = torch.cat([inputs.masked_fill(past_the_end, 0), past_the_end.to(inputs)], dim=-1)
    of_input, *others = cell.weights
    gates = of_input.new_tensor([-1e4, 1e4, 0, 0])  # input, forget, new, output
    marking = gates.repeat_interleave(cell.hidden_size).unsqueeze(-1)
    shown, _, memory = torch.lstm(
        marked,
        (state[0].unsqueeze(0), state[1].unsqueeze(0)),
        [torch.cat([of_input, marking], dim=-1), *others],
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=cell.training,
        bidirectional=False,
        batch_first=True,
    )
    return shown, memory.squeeze(0)


def ragged(
    cell: LstmCell,
    inputs: Float[Tensor, "B S E"],
    lengths: Int[Tensor, "B"],
    state: CellState,
) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
    """Read each row to its own end and no further; what is seen past it is zero."""
    # A row without inputs cannot be packed: it reads one, and its memory stays.
    rows = pack_padded_sequence(
        inputs, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
    )
    outputs, (_, memory) = cell.layer(rows, (state[0].unsqueeze(0), state[1].unsqueeze(0)))
    shown, _ = pad_packed_sequence(outputs, batch_first=True, total_length=inputs.size(1))
    return shown, torch.where(lengths.unsqueeze(-1) > 0, memory.squeeze(0), state[1])
