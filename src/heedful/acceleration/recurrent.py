"""Whole sequences by a single kernel: those of torch, for the cells it has.

Law: values and gradients are those of the cell, step by step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.layers.rnn_cells import (
    GRUCell,
    LSTMCell,
    RecurrentCell,
    RecurrentDropout,
    RecurrentState,
    RNNCell,
    TorchCell,
)
from heedful.shapes import Float, Int


def fused_cell_for(cell: RecurrentCell) -> TorchCell | None:
    """The cell whose kernel does what this cell does; None where there is no such kernel."""
    if type(cell) is RecurrentDropout and not cell.training:
        return fused_cell_for(cell.cell)
    # The very types: a subclass may step otherwise.
    is_plain = type(cell) in {RNNCell, GRUCell, LSTMCell}
    if not is_plain or not isinstance(cell, TorchCell) or _lacks_kernel(cell):
        return None
    return cell


def _lacks_kernel(cell: TorchCell) -> bool:
    """Whether torch would fail: on a CPU it learns no long short-term memory in fp16."""
    is_half = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16
    return is_half and type(cell) is LSTMCell and cell.weights[0].device.type == "cpu"


def fused_outputs(
    cell: TorchCell, inputs: Float[Tensor, "B S E"], state: RecurrentState
) -> Float[Tensor, "B S D"]:
    """What is seen of the state after each input."""
    # By place, for what a wrapper carries behind the state of the cell has no part in it.
    hidden = state[0].unsqueeze(0)
    if type(cell) is LSTMCell:
        return cell.layer(inputs, (hidden, state[1].unsqueeze(0)))[0]
    return cell.layer(inputs, hidden)[0]


def fused_states(
    cell: TorchCell, inputs: Float[Tensor, "B S E"], state: RecurrentState
) -> tuple[Float[Tensor, "B S D"], ...] | None:
    """The whole state after each input; None for an LSTM, of whose memory kernels tell the last.

    It could be made again from inputs and outputs, all gates at once; on a CPU that took longer
    than the cell step by step (66 ms against 48, forward and backward, 32 rows of 24, width 128).
    """
    if type(cell) is LSTMCell:
        return None
    hidden_outputs = fused_outputs(cell, inputs, state)
    return (
        hidden_outputs,
        *(carried.unsqueeze(1).expand_as(hidden_outputs) for carried in state[1:]),
    )


def fused_final_cell_state(
    cell: LSTMCell,
    inputs: Float[Tensor, "B S E"],
    lengths: Int[Tensor, "B"],
    state: RecurrentState,
) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
    """What is seen after each input, and the memory cell after each row's own last.

    On a CPU, forward and backward, one thread, 32 rows of 4 to 24, width 128: 5.7 ms where padding
    is told to change nothing, 12.4 by ragged rows, 10.4 step by step; what is seen alone, 5.4. On
    a GPU weights must lie in one piece of memory, so none can be added; there rows are ragged.
    """
    return (run_packed if inputs.is_cuda else run_with_frozen_padding)(cell, inputs, lengths, state)


def run_with_frozen_padding(
    cell: LSTMCell,
    inputs: Float[Tensor, "B S E"],
    lengths: Int[Tensor, "B"],
    state: RecurrentState,
) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
    """Read all rows to the last place, past their ends with gates that let c' = c.

    One more input is 1 past the end and 0 before it. Its weights close the input gate and open the
    forget gate, so wide that both are exact in any precision: sigmoid(-1e4) = 0, sigmoid(1e4) = 1.
    """
    places = torch.arange(inputs.size(1), device=inputs.device)
    is_padding = (places >= lengths[:, None]).unsqueeze(-1)  # (B, S, 1)
    marked_inputs = torch.cat([inputs.masked_fill(is_padding, 0), is_padding.to(inputs)], dim=-1)
    weight_ih, *others = cell.weights
    gates = weight_ih.new_tensor([-1e4, 1e4, 0, 0])  # input, forget, new, output
    padding_gates = gates.repeat_interleave(cell.hidden_size).unsqueeze(-1)
    hidden_outputs, _, memory = torch.lstm(
        marked_inputs,
        (state[0].unsqueeze(0), state[1].unsqueeze(0)),
        [torch.cat([weight_ih, padding_gates], dim=-1), *others],
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=cell.training,
        bidirectional=False,
        batch_first=True,
    )
    return hidden_outputs, memory.squeeze(0)


def run_packed(
    cell: LSTMCell,
    inputs: Float[Tensor, "B S E"],
    lengths: Int[Tensor, "B"],
    state: RecurrentState,
) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
    """Read each row to its own end and no further; what is seen past it is zero."""
    # A row without inputs cannot be packed: it reads one, and its memory stays.
    rows = pack_padded_sequence(
        inputs, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
    )
    outputs, (_, memory) = cell.layer(rows, (state[0].unsqueeze(0), state[1].unsqueeze(0)))
    hidden_outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=inputs.size(1))
    return hidden_outputs, torch.where(lengths.unsqueeze(-1) > 0, memory.squeeze(0), state[1])
