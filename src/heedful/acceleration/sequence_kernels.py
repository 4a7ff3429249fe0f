"""Kernels for whole sequences: additive scores and attention in chunks, recurrent layers by torch.

Invariant: values and gradients equal the reference, up to rounding.
"""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import compress, product
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import get_device_states, set_device_states

from heedful.acceleration import tuning
from heedful.acceleration.cuda_graphs import is_capturing
from heedful.acceleration.unrolled_rnn import unroll_gru, unroll_lstm
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
from heedful.layers.self_attention import AttendFunction
from heedful.pytree import map_tensors, tensors_of
from heedful.shapes import (
    Float,
    HiddenStates,
    LayerInputs,
    LayerOutputs,
    Lengths,
    Positions,
    Scores,
)

IS_ARM = platform.machine().lower() in {"aarch64", "arm64"}


def chunked_additive_score(
    queries: Float[Tensor, "*#B T A"],
    keys: Float[Tensor, "*#B S A"],
    vector: Float[Tensor, "A"],
    max_elements: int | None = None,
) -> Scores:
    """Compute v . tanh(q + k) for at most `max_elements` hidden elements, or one query, at a time.

    It is computed again for the gradient: no tensor exceeds a chunk, an input or the scores.
    """
    if max_elements is None:
        is_cpu = queries.device.type == "cpu"
        max_elements = tuning.CPU_CHUNK_ELEMENTS if is_cpu else tuning.GPU_CHUNK_ELEMENTS
    leading = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    # No leading dimension counts as one row.
    rows = [part.expand(*leading, -1, -1).unsqueeze(0).flatten(0, -3) for part in (queries, keys)]
    # Under autocast the projections are narrow and the vector, a parameter, is not.
    scores: Tensor = _ChunkedAdditiveScore.apply(*rows, vector.to(queries.dtype), max_elements)
    return scores.view(*leading, queries.size(-2), keys.size(-2))


class _ChunkedAdditiveScore(torch.autograd.Function):
    """v . tanh(q + k); saves only its inputs for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Float[Tensor, "B T A"],
        keys: Float[Tensor, "B S A"],
        vector: Float[Tensor, "A"],
        max_elements: int,
    ) -> Scores:
        ctx.save_for_backward(queries, keys, vector)
        ctx.max_elements = max_elements
        scores = queries.new_empty(*queries.shape[:-1], keys.size(1))
        for rows, steps in _row_chunks(queries, keys, max_elements):
            scores[rows, steps] = _hidden(queries[rows, steps], keys[rows]) @ vector
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: Scores) -> tuple[Tensor, Tensor, Tensor, None]:
        """With h_ts = tanh(q_t + k_s) and g the gradient of the scores.

        dq_t = v sum_s g_ts (1 - h_ts^2),  dk_s = v sum_t g_ts (1 - h_ts^2),  dv = sum_ts g_ts h_ts
        """
        queries, keys, vector = ctx.saved_tensors
        # Sums over chunks are kept in at least float32, as a single sum would be.
        wide = torch.promote_types(queries.dtype, torch.float32)
        grad_queries = torch.empty_like(queries)
        grad_keys = torch.zeros_like(keys, dtype=wide)
        grad_vector = torch.zeros_like(vector, dtype=wide)
        for rows, steps in _row_chunks(queries, keys, ctx.max_elements):
            hidden = _hidden(queries[rows, steps], keys[rows])
            grad = grad_scores[rows, steps]
            grad_vector += grad.flatten() @ hidden.flatten(0, 2)
            # hidden := grad * (1 - hidden^2), in place
            torch.ops.aten.tanh_backward.grad_input(
                grad.unsqueeze(-1).expand_as(hidden), hidden, grad_input=hidden
            )
            grad_queries[rows, steps] = hidden.sum(dim=2)
            grad_keys[rows] += hidden.sum(dim=1, dtype=wide)
        grad_queries, grad_keys = grad_queries.mul_(vector), grad_keys.mul_(vector).to(keys.dtype)
        return grad_queries, grad_keys, grad_vector.to(vector.dtype), None


def _row_chunks(queries: Tensor, keys: Tensor, max_elements: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of rows and of queries: multiple whole rows, or queries of a single row."""
    num_rows, num_queries, _ = queries.shape
    per_query = max(1, keys[:1].numel())
    steps = min(max(1, max_elements // per_query), max(1, num_queries))
    rows = max(1, max_elements // (per_query * num_queries)) if steps == num_queries else 1
    for row, step in product(range(0, num_rows, rows), range(0, num_queries, steps)):
        yield slice(row, row + rows), slice(step, step + steps)


def _hidden(
    queries: Float[Tensor, "B T A"], keys: Float[Tensor, "B S A"]
) -> Float[Tensor, "B T S A"]:
    return (queries.unsqueeze(2) + keys.unsqueeze(1)).tanh_()


def attend_in_chunks(
    attend: AttendFunction,
    queries: HiddenStates,
    positions: Positions,
    memory: Any,
    parameters: Sequence[Tensor],
) -> HiddenStates:
    """Kernel of `attend_at_positions` for `QUERY_CHUNK_SIZE` queries at a time.

    Chunks are computed again for the gradient, so that memory does not grow with the product of
    queries and positions. `torch.utils.checkpoint` would keep a little of each chunk, which
    fragments a CPU's heap: 16,384 queries over 5,461 positions of size 64 would take 400 MiB, not
    95.
    """
    memory_tensors = list(tensors_of(memory))

    def attend_with_tensors(queries: Tensor, positions: Tensor, parts: Sequence[Tensor]) -> Tensor:
        remaining = iter(parts)
        return attend(queries, positions, map_tensors(lambda _: next(remaining), memory))

    outputs: Tensor = _ChunkedAttention.apply(
        attend_with_tensors, len(memory_tensors), queries, positions, *memory_tensors, *parameters
    )
    return outputs


class _ChunkedAttention(torch.autograd.Function):
    """Attention in chunks of queries; saves only its inputs for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        attend: AttendFunction,
        num_memory_tensors: int,
        queries: HiddenStates,
        positions: Positions,
        *tensors: Tensor,
    ) -> HiddenStates:
        device, chunk_size = queries.device.type, tuning.QUERY_CHUNK_SIZE
        starts = range(0, queries.size(1), chunk_size)
        ctx.attend, ctx.num_memory_tensors = attend, num_memory_tensors
        ctx.chunks = [slice(start, start + chunk_size) for start in starts]
        ctx.rng_states = torch.get_rng_state(), *get_device_states(queries)
        ctx.autocast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        ctx.save_for_backward(queries, positions, *tensors)
        memory = tensors[:num_memory_tensors]
        outputs: Tensor | None = None
        for steps in ctx.chunks:
            chunk = attend(queries[:, steps], positions[:, steps], memory)
            if outputs is None:
                outputs = chunk.new_empty(*queries.shape[:2], chunk.size(-1))
            outputs[:, steps] = chunk
        assert outputs is not None, "there is no query"
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: HiddenStates) -> tuple[Tensor | None, ...]:
        queries, positions, *tensors = ctx.saved_tensors
        needs_grad = ctx.needs_input_grad[4:]
        memory = [tensor.detach() for tensor in tensors[: ctx.num_memory_tensors]]
        sources = [*memory, *tensors[ctx.num_memory_tensors :]]
        inputs = [tensor.requires_grad_() for tensor in compress(sources, needs_grad)]
        grad_queries = torch.zeros_like(queries)
        # Sums over chunks are kept in at least float32, as a single sum would be.
        sums = [
            torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
            for tensor in inputs
        ]
        cpu_state, devices, device_states = ctx.rng_states
        device, dtype, is_enabled = ctx.autocast
        with (
            torch.enable_grad(),
            torch.random.fork_rng(devices),
            torch.autocast(device, dtype=dtype, enabled=is_enabled),
        ):
            torch.set_rng_state(cpu_state)
            set_device_states(devices, device_states)
            for steps in ctx.chunks:
                chunk = queries[:, steps].detach().requires_grad_()
                outputs = ctx.attend(chunk, positions[:, steps], memory)
                grads = torch.autograd.grad(
                    outputs, [chunk, *inputs], grad_outputs[:, steps], materialize_grads=True
                )
                grad_queries[:, steps] = grads[0]
                for total, grad in zip(sums, grads[1:], strict=True):
                    total.add_(grad)
        totals = (total.to(tensor.dtype) for total, tensor in zip(sums, inputs, strict=True))
        grads_of_tensors = (next(totals) if needed else None for needed in needs_grad)
        return (None, None, grad_queries, None, *grads_of_tensors)


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


def has_kernel_for_outputs(cell: RecurrentCell, *_: object) -> bool:
    """Whether torch has a kernel for the cell."""
    return torch_cell(cell) is not None


def has_kernel_for_states(cell: RecurrentCell, *_: object) -> bool:
    """Whether the kernel returns all states; of an LSTM's cell states it returns only the last.

    Recomputing the others from inputs and outputs, all gates at once, takes longer on a CPU than
    the steps (66 ms against 48, forward and backward, 32 rows of 24, hidden size 128).
    """
    return type(torch_cell(cell)) in {RNNCell, GRUCell}


def has_kernel_for_final_state(cell: RecurrentCell, inputs: Tensor, *_: object) -> bool:
    """Whether there is a kernel for the final cell state; a single step is faster as a step."""
    return type(torch_cell(cell)) in _LSTM_CELLS and inputs.size(1) > 1


def torch_outputs(cell: RecurrentCell, inputs: LayerInputs, state: RecurrentState) -> LayerOutputs:
    """Kernel of `unroll_outputs`."""
    kernel = torch_cell(cell)
    assert kernel is not None, f"torch has no kernel for {type(cell).__name__}"
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


def torch_states(cell: RecurrentCell, inputs: LayerInputs, state: RecurrentState) -> RecurrentState:
    """Kernel of `unroll_states`."""
    outputs = torch_outputs(cell, inputs, state)
    return (outputs, *(carried.unsqueeze(1).expand_as(outputs) for carried in state[1:]))


def torch_final_state(
    cell: RecurrentCell, inputs: LayerInputs, lengths: Lengths, state: RecurrentState
) -> tuple[LayerOutputs, RecurrentState]:
    """Kernel of `unroll_with_final_state` for an LSTM.

    CPU, forward and backward, one thread, 32 rows of 4 to 24, hidden size 128: 5.7 ms with frozen
    padding, 12.4 with packed sequences, 10.4 step by step; only outputs 5.4. On a GPU sequences
    are packed, since cuDNN wants all weights in one block of memory, and an added column means a
    copy of it; but to be packed they have to be read, which a CUDA graph cannot do.
    """
    kernel = torch_cell(cell)
    assert isinstance(kernel, LSTMCell), kernel
    if is_capturing() and type(kernel) is LSTMCell:
        outputs, cell_state = unroll_lstm(inputs, state[0], state[1], kernel.weights, lengths)
    else:
        can_pack = inputs.is_cuda and not is_capturing()
        run = run_packed if can_pack else run_with_frozen_padding
        outputs, cell_state = run(kernel, inputs, lengths, state)
    return outputs, (final_part(state[0], outputs, lengths), cell_state, *state[2:])


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
