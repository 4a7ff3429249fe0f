"""Kernels of the ops of attention, positional encoding and key-value caches.

Invariant: values and gradients are those of the reference, but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import compress, product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import get_device_states, set_device_states

from heedful.acceleration import tuning
from heedful.attention.alignments import mask_scores
from heedful.attention.outputs import Memory
from heedful.attention.positional_encoding import sinusoids
from heedful.layers.self_attention import AttendFunction, write_rows
from heedful.pytree import map_tensors, tensors_of
from heedful.shapes import Float, Int


def exceeds_unchunked(queries: Tensor, keys: Tensor, *_: object) -> bool:
    """Whether the hidden layer (*B, T, S, A) is too large to be held."""
    leading = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    num_elements = math.prod((*leading, *queries.shape[-2:], keys.size(-2)))
    return num_elements > tuning.MAX_UNCHUNKED_ELEMENTS


def chunked_additive_score(
    queries: Float[Tensor, "*#B T A"],
    keys: Float[Tensor, "*#B S A"],
    vector: Float[Tensor, "A"],
    max_elements: int | None = None,
) -> Float[Tensor, "*B T S"]:
    """Compute v . tanh(q + k) for at most `max_elements` hidden elements, or one query, at a time.

    The hidden layer is computed again for the gradient: no tensor is larger than a chunk, an input
    or the scores.
    """
    if max_elements is None:
        is_cpu = queries.device.type == "cpu"
        max_elements = tuning.CPU_CHUNK_ELEMENTS if is_cpu else tuning.GPU_CHUNK_ELEMENTS
    leading = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    # No leading dimension counts as one row.
    rows = [
        inputs.expand(*leading, -1, -1).unsqueeze(0).flatten(0, -3) for inputs in (queries, keys)
    ]
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
    ) -> Float[Tensor, "B T S"]:
        ctx.save_for_backward(queries, keys, vector)
        ctx.max_elements = max_elements
        scores = queries.new_empty(*queries.shape[:-1], keys.size(1))
        for rows, steps in _row_chunks(queries, keys, max_elements):
            scores[rows, steps] = _hidden(queries[rows, steps], keys[rows]) @ vector
        return scores

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_scores: Float[Tensor, "B T S"]
    ) -> tuple[Float[Tensor, "B T A"], Float[Tensor, "B S A"], Float[Tensor, "A"], None]:
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
        return (
            grad_queries.mul_(vector),
            grad_keys.mul_(vector).to(keys.dtype),
            grad_vector.to(vector.dtype),
            None,
        )


def _row_chunks(queries: Tensor, keys: Tensor, max_elements: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of rows and of queries: several whole rows, or queries of a single row."""
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


def has_single_cpu_query(queries: Tensor, memory: Memory, *_: object) -> bool:
    """Whether there is one query per row, on a CPU, and no values are shared by several heads."""
    is_shared = queries.shape[:-2] != memory.values.shape[:-2]
    return queries.size(-2) == 1 and queries.device.type == "cpu" and not is_shared


def single_query_context(
    queries: Float[Tensor, "*B 1 Q"], memory: Memory, temperature: float, dropout: float
) -> Float[Tensor, "*B 1 V"]:
    """Kernel of `softmax_context` that holds the weights, which are small for one query.

    It takes a third to a tenth of the time of torch's SDPA, which would copy the keys (160 rows of
    4 heads, 14 to 28 positions of size 64, two x86 cores).
    """
    scores = mask_scores(queries / temperature @ memory.keys.mT, memory.mask)
    weights = scores.softmax(dim=-1) * memory.mask
    return functional.dropout(weights, dropout) @ memory.values


def sdpa_context(
    queries: Float[Tensor, "*B T Q"], memory: Memory, temperature: float, dropout: float
) -> Float[Tensor, "*B T V"]:
    """Kernel of `softmax_context` by torch's SDPA, which never holds the weights (*B, T, S).

    A NaN in a key that some queries see and others do not reaches all of them, since torch adds its
    mask to the scores; in the reference it reaches only those that see the key.
    """
    values, keys, mask = memory
    mask = mask[(None,) * (queries.dim() - mask.dim())]
    mask = mask.expand(*queries.shape[:-3], *mask.shape[-3:])
    key_is_visible = mask.any(dim=-2).unsqueeze(-1)  # (*B, S, 1)
    # Without a mask torch returns zeros for a query of NaN, as if it saw nothing: so the mask is
    # passed even where it hides nothing.
    context = scaled_dot_product_attention(
        _to_4d(queries),
        _to_4d(keys.masked_fill(~key_is_visible, 0)),
        _to_4d(values),
        attn_mask=_to_4d(mask),
        dropout_p=dropout,
        scale=1 / temperature,
        enable_gqa=queries.shape[:-2] != keys.shape[:-2],
    )
    has_visible_key = mask.any(dim=-1, keepdim=True)  # (*B, T or 1, 1)
    return context.view(*queries.shape[:-1], values.size(-1)).masked_fill(~has_visible_key, 0)


def _to_4d(inputs: Tensor) -> Tensor:
    return inputs[None, None].flatten(0, -4)


def exceeds_query_chunk(attend: AttendFunction, queries: Tensor, *_: object) -> bool:
    """Whether there are so many queries that their masks would be large."""
    return queries.size(1) > tuning.QUERY_CHUNK_SIZE


def attend_in_chunks(
    attend: AttendFunction,
    queries: Float[Tensor, "B T D"],
    positions: Int[Tensor, "B T"],
    memory: Any,
    parameters: Sequence[Tensor],
) -> Float[Tensor, "B T V"]:
    """Kernel of `attend_at_positions` for `QUERY_CHUNK_SIZE` queries at a time.

    Chunks are computed again for the gradient, so that memory grows with the number of queries and
    of positions, not with their product. `torch.utils.checkpoint` would keep a little of each
    chunk, which fragments the heap of a CPU: for 16,384 queries over 5,461 positions of size 64 the
    process grows by 400 MiB instead of 95.
    """

    def attend_with_tensors(
        queries: Tensor, positions: Tensor, tensors: Sequence[Tensor]
    ) -> Tensor:
        remaining = iter(tensors)
        return attend(queries, positions, map_tensors(lambda _: next(remaining), memory))

    memory_tensors = list(tensors_of(memory))
    outputs: Tensor = _ChunkedAttention.apply(
        _ChunkPlan(attend_with_tensors, tuning.QUERY_CHUNK_SIZE, len(memory_tensors)),
        queries,
        positions,
        *memory_tensors,
        *parameters,
    )
    return outputs


class _ChunkPlan(NamedTuple):
    attend: AttendFunction
    chunk_size: int
    num_memory_tensors: int

    def slices(self, queries: Tensor) -> Iterator[slice]:
        size = self.chunk_size
        return (slice(start, start + size) for start in range(0, queries.size(1), size))


class _ChunkedAttention(torch.autograd.Function):
    """Attention in chunks of queries; saves only its inputs for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: _ChunkPlan,
        queries: Float[Tensor, "B T D"],
        positions: Int[Tensor, "B T"],
        *tensors: Tensor,
    ) -> Float[Tensor, "B T V"]:
        ctx.plan = plan
        ctx.rng_states = torch.get_rng_state(), *get_device_states(queries)
        device = queries.device.type
        ctx.autocast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        ctx.save_for_backward(queries, positions, *tensors)
        memory = tensors[: plan.num_memory_tensors]
        outputs: Tensor | None = None
        for steps in plan.slices(queries):
            chunk = plan.attend(queries[:, steps], positions[:, steps], memory)
            if outputs is None:
                outputs = chunk.new_empty(*queries.shape[:2], chunk.size(-1))
            outputs[:, steps] = chunk
        assert outputs is not None, "there is no query"
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Float[Tensor, "B T V"]) -> tuple[Tensor | None, ...]:
        queries, positions, *tensors = ctx.saved_tensors
        num_memory, needs_grad = ctx.plan.num_memory_tensors, ctx.needs_input_grad[3:]
        memory = [tensor.detach() for tensor in tensors[:num_memory]]
        sources = [*memory, *tensors[num_memory:]]
        inputs = [tensor.requires_grad_() for tensor in compress(sources, needs_grad)]
        grad_queries = torch.zeros_like(queries)
        # Sums over chunks are kept in at least float32, as a single sum would be.
        sums = [
            torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
            for tensor in inputs
        ]
        with _restored_rng_and_autocast(ctx):
            for steps in ctx.plan.slices(queries):
                chunk = queries[:, steps].detach().requires_grad_()
                outputs = ctx.plan.attend(chunk, positions[:, steps], memory)
                grads = torch.autograd.grad(
                    outputs, [chunk, *inputs], grad_outputs[:, steps], materialize_grads=True
                )
                grad_queries[:, steps] = grads[0]
                for total, grad in zip(sums, grads[1:], strict=True):
                    total.add_(grad)
        totals = (total.to(tensor.dtype) for total, tensor in zip(sums, inputs, strict=True))
        return (
            None,
            grad_queries,
            None,
            *(next(totals) if needed else None for needed in needs_grad),
        )


@contextmanager
def _restored_rng_and_autocast(ctx: Any) -> Iterator[None]:
    (cpu_state, devices, device_states), (device, dtype, is_enabled) = ctx.rng_states, ctx.autocast
    with (
        torch.enable_grad(),
        torch.random.fork_rng(devices),
        torch.autocast(device, dtype=dtype, enabled=is_enabled),
    ):
        torch.set_rng_state(cpu_state)
        set_device_states(devices, device_states)
        yield


def can_look_up(positions: Tensor, *_: object) -> bool:
    """Whether positions are on a CPU; a GPU would have to be waited for to check their range."""
    return (
        positions.device.type == "cpu"
        and type(positions) is Tensor
        and not torch.compiler.is_compiling()
    )


def lookup_sinusoids(
    positions: Int[Tensor, "*B T"], size: int, dtype: torch.dtype
) -> Float[Tensor, "*B T E"]:
    """Kernel of `sinusoids` that looks small positions up in a table."""
    try:
        return functional.embedding(positions, _sinusoid_table(size, dtype))
    except IndexError:
        return sinusoids.reference(positions, size, dtype)


@lru_cache(maxsize=16)
def _sinusoid_table(size: int, dtype: torch.dtype) -> Float[Tensor, "positions E"]:
    with torch.inference_mode(mode=False):
        positions = torch.arange(tuning.NUM_TABULATED_POSITIONS, device="cpu")
        return sinusoids.reference(positions, size, dtype)


def is_eager_on_cpu(cached: Tensor, new: Tensor, positions: Tensor) -> bool:
    """Whether positions can be read without waiting for a GPU or breaking a graph."""
    return positions.device.type == "cpu" and not torch.compiler.is_compiling()


def append_rows(
    cached: Float[Tensor, "B *H S X"],
    new: Float[Tensor, "B *H N X"],
    positions: Int[Tensor, "B N"],
) -> Float[Tensor, "B *H R X"]:
    """Kernel of `write_rows` that concatenates where every row continues behind the cache."""
    if bool((positions[:, 0] == cached.size(-2)).all()):
        return torch.cat([cached, new], dim=-2)
    return write_rows.reference(cached, new, positions)
