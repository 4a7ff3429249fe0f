"""Kernels of recurrent layers: torch's own, or steps in a CUDA graph.

Invariant: values and gradients equal the reference, up to rounding.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.acceleration.cuda.graphs import is_capturing
from heedful.acceleration.cuda.unrolled_rnn import unroll_gru, unroll_lstm
from heedful.layers.rnn_cell_config import RecurrentDropout
from heedful.layers.rnn_cells import (
    CellState,
    GRUCell,
    LSTMCell,
    ProjectedLSTMCell,
    RecurrentCell,
    RecurrentState,
    RNNCell,
    TorchCell,
    final_part,
)
from heedful.shapes import LayerInputs, LayerOutputs, Lengths

IS_ARM = platform.machine().lower() in {"aarch64", "arm64"}

_LSTM_CELLS = (LSTMCell, ProjectedLSTMCell)  # exact types: a subclass may compute something else
_TORCH_CELLS = (RNNCell, GRUCell, *_LSTM_CELLS)


def torch_cell(cell: RecurrentCell) -> TorchCell | None:
    """Return the cell whose torch kernel computes the same as `cell`, or None."""
    if type(cell) is RecurrentDropout and not cell.training:
        return torch_cell(cell.cell)
    if type(cell) not in _TORCH_CELLS or not isinstance(cell, TorchCell):
        return None
    is_narrow = torch.is_autocast_enabled("cpu") and not _has_cpu_lstm()
    lacks_kernel = is_narrow and type(cell) in _LSTM_CELLS and cell.weights[0].device.type == "cpu"
    return None if lacks_kernel else cell


def _has_cpu_lstm() -> bool:
    """Whether torch has an LSTM for autocast: never in float16, in bfloat16 if oneDNN has one."""
    is_half = torch.get_autocast_dtype("cpu") == torch.float16
    return not is_half and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def has_kernel(
    cell: RecurrentCell, inputs: Tensor, state: RecurrentState, lengths: Lengths | None
) -> bool:
    """Whether torch has a kernel for the cell; the cell state of one step is faster as a step."""
    kernel = torch_cell(cell)
    is_lstm_step = lengths is not None and type(kernel) in _LSTM_CELLS and inputs.size(1) == 1
    return kernel is not None and not is_lstm_step


def torch_unroll(
    cell: RecurrentCell, inputs: LayerInputs, state: RecurrentState, lengths: Lengths | None
) -> tuple[LayerOutputs, RecurrentState | None]:
    """Kernel of `unroll`."""
    kernel = torch_cell(cell)
    assert kernel is not None, f"torch has no kernel for {type(cell).__name__}"
    if lengths is None:
        return _torch_outputs(kernel, inputs, state), None
    carried = state[1:]
    if isinstance(kernel, LSTMCell):
        outputs, cell_state = _torch_cell_state(kernel, inputs, lengths, state)
        carried = cell_state, *state[2:]
    else:
        outputs = _torch_outputs(kernel, inputs, state)
    return outputs, (final_part(state[0], outputs, lengths), *carried)


def _torch_outputs(kernel: TorchCell, inputs: LayerInputs, state: RecurrentState) -> LayerOutputs:
    # By index: a wrapper may carry more behind the state of the cell.
    if is_capturing() and type(kernel) is LSTMCell:
        return unroll_lstm(inputs, state[0], state[1], kernel.weights)[0]
    if is_capturing() and type(kernel) is GRUCell:
        return unroll_gru(inputs, state[0], kernel.weights)
    hidden = state[0].unsqueeze(0)
    with rnn_library():
        if isinstance(kernel, LSTMCell):
            return kernel.layer(inputs, (hidden, state[1].unsqueeze(0)))[0]
        return kernel.layer(inputs, hidden)[0]


@contextmanager
def rnn_library() -> Iterator[None]:
    """Let torch run an RNN by its own kernels where those of a library are wrong or slow.

    torch gives cuDNN the lengths of sequences in host memory that it frees after the call; what a
    CUDA graph reads there when it is replayed is not defined. On Arm, oneDNN has no fast LSTM:
    Neoverse N1, one thread, 40 rows of 25, hidden size 512, forward and backward: 829 ms by oneDNN,
    481 by torch; forward only 329 and 151.
    """
    if is_capturing():
        with torch.backends.cudnn.flags(enabled=False):
            yield
    elif IS_ARM and not torch.compiler.is_compiling() and torch._C._get_mkldnn_enabled():
        torch._C._set_mkldnn_enabled(False)
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(True)
    else:
        yield


def _torch_cell_state(
    cell: LSTMCell, inputs: LayerInputs, lengths: Lengths, state: RecurrentState
) -> tuple[LayerOutputs, CellState]:
    """Return the outputs and the final cell states of an LSTM.

    CPU, forward and backward, one thread, 32 rows of 4 to 24, hidden size 128: 5.7 ms with frozen
    padding, 12.4 with packed sequences, 10.4 step by step; only outputs 5.4. On a GPU sequences
    are packed, since cuDNN wants all weights in one block of memory, and an added column means a
    copy of it; but to be packed they have to be read, which a CUDA graph cannot do.
    """
    if is_capturing() and type(cell) is LSTMCell:
        return unroll_lstm(inputs, state[0], state[1], cell.weights, lengths)
    can_pack = inputs.is_cuda and not is_capturing()
    return (run_packed if can_pack else run_with_frozen_padding)(cell, inputs, lengths, state)


def run_with_frozen_padding(
    cell: LSTMCell, inputs: LayerInputs, lengths: Lengths, state: RecurrentState
) -> tuple[LayerOutputs, CellState]:
    """Return the outputs and the final cell states; in padding the gates keep the cell state.

    An additional input is 1 in padding and 0 before it. Its weights close the input gate and open
    the forget gate, and are large enough to be exact: sigmoid(-1e4) = 0, sigmoid(1e4) = 1.
    """
    positions = torch.arange(inputs.size(1), device=inputs.device)
    is_padding = (positions >= lengths[:, None]).unsqueeze(-1)  # (B, S, 1)
    marked_inputs = torch.cat([inputs.masked_fill(is_padding, 0), is_padding.to(inputs)], dim=-1)
    weight_ih, *others = cell.weights
    size = cell.cell_state_size
    closed, opened = weight_ih.new_full((size, 1), -1e4), weight_ih.new_full((size, 1), 1e4)
    padding_gates = torch.cat([closed, opened, weight_ih.new_zeros(2 * size, 1)])  # i, f, g, o
    with rnn_library():
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
    cell: LSTMCell, inputs: LayerInputs, lengths: Lengths, state: RecurrentState
) -> tuple[LayerOutputs, CellState]:
    """Return the outputs, zero in padding, and the final cell states, from a `PackedSequence`."""
    # An empty row cannot be packed: it reads one input, and its cell state is restored.
    packed_inputs = pack_padded_sequence(
        inputs, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
    )
    initial = state[0].unsqueeze(0), state[1].unsqueeze(0)
    packed, (_, cell_state) = cell.layer(packed_inputs, initial)
    outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=inputs.size(1))
    return outputs, torch.where(lengths.unsqueeze(-1) > 0, cell_state.squeeze(0), state[1])
