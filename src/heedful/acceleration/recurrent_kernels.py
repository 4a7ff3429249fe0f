"""Torch's kernels for whole sequences of `RNNCell`, `GRUCell` and `LSTMCell`.

Invariant: values and gradients are those of the cell, step by step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.layers.rnn import final_part
from heedful.layers.rnn_cells import (
    GRUCell,
    LSTMCell,
    RecurrentCell,
    RecurrentDropout,
    RecurrentState,
    RNNCell,
    TorchCell,
)
from heedful.shapes import Float, Int, Lengths


def torch_cell(cell: RecurrentCell) -> TorchCell | None:
    """Return the cell whose torch kernel computes what `cell` computes, or None."""
    if type(cell) is RecurrentDropout and not cell.training:
        return torch_cell(cell.cell)
    # Exact types: a subclass may compute something else.
    if type(cell) not in {RNNCell, GRUCell, LSTMCell} or not isinstance(cell, TorchCell):
        return None
    return None if _lacks_kernel(cell) else cell


def _lacks_kernel(cell: TorchCell) -> bool:
    """Whether torch would fail: on a CPU it has no LSTM backward in float16."""
    is_half = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16
    return is_half and type(cell) is LSTMCell and cell.weights[0].device.type == "cpu"


def has_kernel_for_outputs(cell: RecurrentCell, *_: object) -> bool:
    """Whether torch has a kernel for this cell."""
    return torch_cell(cell) is not None


def has_kernel_for_states(cell: RecurrentCell, *_: object) -> bool:
    """Whether the kernel returns all states; of an LSTM's cell state it returns the last alone.

    Recomputing the others from inputs and outputs, all gates at once, takes longer on a CPU than
    the steps (66 ms against 48, forward and backward, 32 rows of 24, hidden size 128).
    """
    kernel = torch_cell(cell)
    return kernel is not None and type(kernel) is not LSTMCell


def has_kernel_for_final_state(cell: RecurrentCell, inputs: Tensor, *_: object) -> bool:
    """Whether there is a kernel for the final cell state; a single step is faster as a step."""
    return type(torch_cell(cell)) is LSTMCell and inputs.size(1) > 1


def torch_outputs(
    cell: RecurrentCell, inputs: Float[Tensor, "B S E"], state: RecurrentState
) -> Float[Tensor, "B S D"]:
    """Kernel of `unroll_outputs`."""
    kernel = _require_kernel(cell)
    # By index: a wrapper may carry more behind the state of the cell.
    hidden = state[0].unsqueeze(0)
    if type(kernel) is LSTMCell:
        return kernel.layer(inputs, (hidden, state[1].unsqueeze(0)))[0]
    return kernel.layer(inputs, hidden)[0]


def torch_states(
    cell: RecurrentCell, inputs: Float[Tensor, "B S E"], state: RecurrentState
) -> tuple[Tensor, ...]:
    """Kernel of `unroll_states`."""
    outputs = torch_outputs(cell, inputs, state)
    return (outputs, *(carried.unsqueeze(1).expand_as(outputs) for carried in state[1:]))


def torch_final_state(
    cell: RecurrentCell, inputs: Float[Tensor, "B S E"], lengths: Lengths, state: RecurrentState
) -> tuple[Float[Tensor, "B S D"], RecurrentState]:
    """Kernel of `unroll_with_final_state` for an LSTM.

    CPU, forward and backward, one thread, 32 rows of 4 to 24, hidden size 128: 5.7 ms with frozen
    padding, 12.4 with packed sequences, 10.4 step by step; outputs alone 5.4. On a GPU cuDNN wants
    all weights in one block of memory, so that no column can be added: sequences are packed.
    """
    kernel = _require_kernel(cell)
    assert isinstance(kernel, LSTMCell), kernel
    run = run_packed if inputs.is_cuda else run_with_frozen_padding
    outputs, cell_state = run(kernel, inputs, lengths, state)
    return outputs, (final_part(state[0], outputs, lengths), cell_state, *state[2:])


def run_with_frozen_padding(
    cell: LSTMCell, inputs: Float[Tensor, "B S E"], lengths: Int[Tensor, "B"], state: RecurrentState
) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
    """Return the outputs and the final cell states; in padding the gates keep the cell state.

    An additional input is 1 in padding and 0 before it. Its weights close the input gate and open
    the forget gate, and are large enough to be exact: sigmoid(-1e4) = 0, sigmoid(1e4) = 1.
    """
    positions = torch.arange(inputs.size(1), device=inputs.device)
    is_padding = (positions >= lengths[:, None]).unsqueeze(-1)  # (B, S, 1)
    marked_inputs = torch.cat([inputs.masked_fill(is_padding, 0), is_padding.to(inputs)], dim=-1)
    weight_ih, *others = cell.weights
    gates = weight_ih.new_tensor([-1e4, 1e4, 0, 0])  # input, forget, new, output
    padding_gates = gates.repeat_interleave(cell.hidden_size).unsqueeze(-1)
    outputs, _, cell_state = torch.lstm(
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
    return outputs, cell_state.squeeze(0)


def run_packed(
    cell: LSTMCell, inputs: Float[Tensor, "B S E"], lengths: Int[Tensor, "B"], state: RecurrentState
) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
    """Return the outputs, zero in padding, and the final cell states, from a `PackedSequence`."""
    # An empty row cannot be packed: it reads one input, and its cell state is restored.
    packed_inputs = pack_padded_sequence(
        inputs, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
    )
    packed, (_, cell_state) = cell.layer(
        packed_inputs, (state[0].unsqueeze(0), state[1].unsqueeze(0))
    )
    outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=inputs.size(1))
    return outputs, torch.where(lengths.unsqueeze(-1) > 0, cell_state.squeeze(0), state[1])


def _require_kernel(cell: RecurrentCell) -> TorchCell:
    kernel = torch_cell(cell)
    assert kernel is not None, f"torch has no kernel for {type(cell).__name__}"
    return kernel
