"""Additive scores and attention in chunks of queries, for memories that are long.

Invariant: values and gradients equal the reference, up to rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import compress, product
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states
from typing_extensions import override

from heedful.acceleration import tuning
from heedful.attention.attention import AttentionOutput
from heedful.layers.self_attention import CompressedSelfAttention, KVCache
from heedful.pytree import map_tensors, tensors_of
from heedful.shapes import Float, HiddenStates, Positions, Scores

AttendFunction = Callable[[Tensor, Tensor, Any], Tensor]


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
        sum_dtype = torch.promote_types(queries.dtype, torch.float32)
        grad_queries = torch.empty_like(queries)
        grad_keys = torch.zeros_like(keys, dtype=sum_dtype)
        grad_vector = torch.zeros_like(vector, dtype=sum_dtype)
        for rows, steps in _row_chunks(queries, keys, ctx.max_elements):
            hidden = _hidden(queries[rows, steps], keys[rows])
            grad = grad_scores[rows, steps]
            grad_vector += grad.flatten() @ hidden.flatten(0, 2)
            # hidden := grad * (1 - hidden^2), in place
            torch.ops.aten.tanh_backward.grad_input(
                grad.unsqueeze(-1).expand_as(hidden), hidden, grad_input=hidden
            )
            grad_queries[rows, steps] = hidden.sum(dim=2)
            grad_keys[rows] += hidden.sum(dim=1, dtype=sum_dtype)
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


class ChunkedCompressedSelfAttention(CompressedSelfAttention):
    """Compressed self-attention of many queries, chunk by chunk: their masks would be large."""

    @override
    def attend(
        self,
        queries: HiddenStates,
        positions: Positions,
        kv_cache: KVCache,
        *,
        need_weights: bool = False,
    ) -> AttentionOutput:
        attend = super().attend
        if need_weights or queries.size(1) <= tuning.QUERY_CHUNK_SIZE:
            return attend(queries, positions, kv_cache, need_weights=need_weights)
        parameters = list(self.attention.parameters())
        context = attend_in_chunks(
            lambda *chunk: attend(*chunk).context, queries, positions, kv_cache, parameters
        )
        return AttentionOutput(context, None, None, None)


def attend_in_chunks(
    attend: AttendFunction,
    queries: HiddenStates,
    positions: Positions,
    memory: Any,
    parameters: Sequence[Tensor],
) -> HiddenStates:
    """Return attend(queries, positions, memory), for `QUERY_CHUNK_SIZE` queries at a time.

    `parameters` are all that `attend` can learn. Chunks are computed again for the gradient, so
    that memory does not grow with the product of queries and positions. `torch.utils.checkpoint`
    would keep a little of each chunk, which fragments a CPU's heap: 16,384 queries over 5,461
    positions of size 64 would take 400 MiB, not 95.
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
