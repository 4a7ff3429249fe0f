"""How are additive scores found without holding their hidden layer?

The hidden layer tanh(q + k) of every query with every key is (*B, T, S, A): far larger than what
goes in or comes out. Here it is made a chunk of queries at a time, and made again for the
gradient. Law: values and gradients are those of the plain form, and no tensor holds more elements
than a chunk, an input or an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress, product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import get_device_states, set_device_states

from heedful.attention.alignments import mask_scores
from heedful.pytree import Nested, map_tensors
from heedful.shapes import Bool, Float, Int

# Measured on two cores with 2 MiB of level-2 cache each (B=16, T=S=128, A=256, single precision):
# forward and backward take 461 ms at 2**15, 263 at 2**17, 201 at 2**19, 231 at 2**20; plain, 988.
CPU_CHUNK_ELEMENTS = 2**19
# Measured on an H200 (B=16, T=S=A=512, single precision), forward and backward: 526 ms at 2**20,
# 129 at 2**22, 42 at 2**24, 36 at 2**26 and no less beyond; plain, 29 ms and 24 GiB against 0.6.
GPU_CHUNK_ELEMENTS = 2**26


def chunked_additive_score(
    queries: Float[Tensor, "*#B T A"],
    keys: Float[Tensor, "*#B S A"],
    vector: Float[Tensor, "A"],
    *,
    max_elements: int | None = None,
) -> Float[Tensor, "*B T S"]:
    """Score by v . tanh(q + k), at most `chunk` hidden elements, or one query, at a time."""
    if max_elements is None:
        max_elements = CPU_CHUNK_ELEMENTS if queries.device.type == "cpu" else GPU_CHUNK_ELEMENTS
    leading = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    rows = [_flatten(each.expand(*leading, -1, -1)) for each in (queries, keys)]
    # Under autocast the projections are narrow and the vector, a parameter, is not.
    scores: Tensor = _ChunkedAdditiveScore.apply(*rows, vector.to(queries.dtype), max_elements)
    return scores.view(*leading, queries.size(-2), keys.size(-2))


class _ChunkedAdditiveScore(torch.autograd.Function):
    """v . tanh(q + k), keeping its inputs alone for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Float[Tensor, "B T A"],
        keys: Float[Tensor, "B S A"],
        vector: Float[Tensor, "A"],
        max_elements: int,
    ) -> Float[Tensor, "B T S"]:
        """Score, a chunk at a time."""
        ctx.save_for_backward(queries, keys, vector)
        ctx.chunk = max_elements
        scores = queries.new_empty(*queries.shape[:-1], keys.size(1))
        for rows, steps in _chunked_chunks(queries, keys, max_elements):
            scores[rows, steps] = _hidden(queries[rows, steps], keys[rows]) @ vector
        return scores

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_scores: Float[Tensor, "B T S"]
    ) -> tuple[Float[Tensor, "B T A"], Float[Tensor, "B S A"], Float[Tensor, "A"], None]:
        """Make each chunk again; `alibi_slopes` are the gradients of the scores.

        dq_t = v sum_s slope_ts (1 - h_ts^2),  dk_s = v sum_t slope_ts (1 - h_ts^2),
        dv = sum_ts slope_ts h_ts,  where h_ts = tanh(q_t + k_s).
        """
        queries, keys, vector = ctx.saved_tensors
        # What is summed over chunks is summed in at least single precision, as one sum would be.
        wide = torch.promote_types(queries.dtype, torch.float32)
        grad_queries = torch.empty_like(queries)
        grad_keys = torch.zeros_like(keys, dtype=wide)
        grad_vector = torch.zeros_like(vector, dtype=wide)
        for rows, steps in _chunked_chunks(queries, keys, ctx.chunk):
            hidden = _hidden(queries[rows, steps], keys[rows])
            slope = grad_scores[rows, steps]
            grad_vector += slope.flatten() @ hidden.flatten(0, 2)
            _tanh_backward(hidden, slope.unsqueeze(-1))
            grad_queries[rows, steps] = hidden.sum(dim=2)
            grad_keys[rows] += hidden.sum(dim=1, dtype=wide)
        return (
            grad_queries.mul_(vector),
            grad_keys.mul_(vector).to(keys.dtype),
            grad_vector.to(vector.dtype),
            None,
        )


def _flatten(inputs: Float[Tensor, "*B N A"]) -> Float[Tensor, "B N A"]:
    return inputs.unsqueeze(0).flatten(0, -3)  # no leading dimension counts as one row


def _chunked_chunks(
    queries: Tensor, keys: Tensor, max_elements: int
) -> Iterator[tuple[slice, slice]]:
    """Whole rows as long as one fits into a chunk, otherwise queries of a single row."""
    num_rows, num_times, _ = queries.shape
    per_query = max(1, keys[:1].numel())
    steps = min(max(1, max_elements // per_query), max(1, num_times))
    rows = max(1, max_elements // (per_query * num_times)) if steps == num_times else 1
    row_starts, time_starts = range(0, num_rows, rows), range(0, num_times, steps)
    for row, time in product(row_starts, time_starts):
        yield slice(row, row + rows), slice(time, time + steps)


def _hidden(
    queries: Float[Tensor, "B T A"], keys: Float[Tensor, "B S A"]
) -> Float[Tensor, "B T S A"]:
    return (queries.unsqueeze(2) + keys.unsqueeze(1)).tanh_()


def _tanh_backward(hidden: Float[Tensor, "B T S A"], grad_score: Float[Tensor, "B T S 1"]) -> None:
    """Replace h by slope (1 - h^2), in one pass and without a second chunk."""
    torch.ops.aten.tanh_backward.grad_input(grad_score.expand_as(hidden), hidden, grad_input=hidden)


# How is a context taken from products alone, without holding the weights?
#
# The weights of a softmax over inner products are (*B, T, S); torch has kernels that sum the values
# under them piece by piece. Law: values and gradients are those of the plain form. Where torch lets
# through what is hidden, it is taken out again here.


def sdpa_context(
    queries: Float[Tensor, "*B T Q"],
    keys: Float[Tensor, "*G S Q"],
    values: Float[Tensor, "*G S V"],
    mask: Bool[Tensor, "*#B #T S"],
    dropout: float = 0.0,
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*B T V"]:
    """Average the values under softmax(q . k / temperature).

    The last leading dimension of the queries may be a multiple of that of keys and values: each
    of these then serves so many neighbours. A NaN in a key that some queries see and others do
    not reaches them all, for torch adds its mask to the scores; the plain form shields them.
    """
    if _is_single_cpu_query(queries, values):
        return _attend_single_query(queries / temperature, keys, values, mask, dropout)
    mask = mask[(None,) * (queries.dim() - mask.dim())]
    mask = mask.expand(*queries.shape[:-3], *mask.shape[-3:])
    key_is_visible = mask.any(dim=-2).unsqueeze(-1)  # (*B, S, 1)
    # Without a mask torch takes a query of NaN for one that sees nothing, and gives zeros: the
    # mask goes in even where it hides nothing.
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


def _is_single_cpu_query(queries: Tensor, values: Tensor) -> bool:
    """Whether there is one query, and nobody shares its values."""
    is_shared = queries.shape[:-2] != values.shape[:-2]
    return queries.size(-2) == 1 and queries.device.type == "cpu" and not is_shared


def _attend_single_query(
    queries: Float[Tensor, "*B 1 Q"],
    keys: Float[Tensor, "*B S Q"],
    values: Float[Tensor, "*B S V"],
    mask: Bool[Tensor, "*#B 1 S"],
    dropout: float,
) -> Float[Tensor, "*B 1 V"]:
    """The plain form: the weights of one query take no room.

    On a CPU it takes a third to a tenth of the time of torch's kernel, before which the keys would
    be copied (160 rows of 4 heads, 14 to 28 places of width 64).
    """
    weights = mask_scores(queries @ keys.mT, mask).softmax(dim=-1) * mask
    return functional.dropout(weights, dropout) @ values


def _to_4d(inputs: Tensor) -> Tensor:
    """Give a tensor the four dimensions that the kernels want."""
    return inputs[None, None].flatten(0, -4)


# How is a long sequence of queries asked without holding what is known of all of them?
#
# A few queries are asked at a time, and again for their gradient. Law: values and gradients are
# those of asking all at once, and what is held grows with the number of queries and with that of
# places, not with their product.
#
# `torch.utils.checkpoint` asks again too, but keeps a little of every chunk. On a CPU that comes to
# lie where a mask was, and what is left there is too small for the next one: for 16,384 queries of
# 5,461 places, of width 64, a process grew by 400 MiB. It grows by 95 where nothing is kept.

AttendFunction = Callable[[Tensor, Tensor, Any], Tensor]


def attend_in_chunks(
    attend: AttendFunction,
    queries: Float[Tensor, "B T D"],
    positions: Int[Tensor, "B T"],
    memory: Nested,
    *,
    parameters_used: Sequence[Tensor],
    chunk_size: int,
) -> Float[Tensor, "B T V"]:
    """Give ask(queries, places, memory), at most `chunk_size` queries at a time.

    `weights` are all that learns of what asks, whether it is used or not.
    """

    def attend_with_tensors(
        queries: Tensor, positions: Tensor, tensors: Sequence[Tensor]
    ) -> Tensor:
        left = iter(tensors)
        return attend(queries, positions, map_tensors(lambda _: next(left), memory))

    memory_tensors = _flatten_tensors(memory)
    return _ChunkedAttention.apply(
        _ChunkPlan(attend_with_tensors, chunk_size, len(memory_tensors)),
        queries,
        positions,
        *memory_tensors,
        *parameters_used,
    )


class _ChunkPlan(NamedTuple):
    """What is done with a chunk, how long it is, and how many tensors a memory has."""

    attend: AttendFunction
    chunk_size: int
    num_memory_tensors: int


class _ChunkedAttention(torch.autograd.Function):
    """Asks a chunk at a time, keeping its inputs alone for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: _ChunkPlan,
        queries: Float[Tensor, "B T D"],
        positions: Int[Tensor, "B T"],
        *tensors: Tensor,
    ) -> Float[Tensor, "B T V"]:
        """Ask, a chunk at a time."""
        ctx.plan = plan
        ctx.draws = torch.get_rng_state(), *get_device_states(queries)
        device = queries.device.type
        ctx.precision = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        ctx.save_for_backward(queries, positions, *tensors)
        outputs: Tensor | None = None
        for times in _in_chunks_chunks(queries, plan.chunk_size):
            found = plan.attend(
                queries[:, times], positions[:, times], tensors[: plan.num_memory_tensors]
            )
            if outputs is None:
                outputs = found.new_empty(*queries.shape[:2], found.size(-1))
            outputs[:, times] = found
        assert outputs is not None, "there is at least one query"
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Float[Tensor, "B T V"]) -> tuple[Tensor | None, ...]:
        """Ask each chunk again; `alibi_slopes` are the gradients of what was found."""
        queries, places, *tensors = ctx.saved_tensors
        num_held, needed = ctx.plan.num_memory_tensors, ctx.needs_input_grad[3:]
        memory_tensors = [each.detach() for each in tensors[:num_held]]
        sources = [*memory_tensors, *tensors[num_held:]]
        learning = [each.requires_grad_() for each in compress(sources, needed)]
        grad_queries = torch.zeros_like(queries)
        cumulative_log_probs = [_float32_zeros(each) for each in learning]
        with _restored_rng_and_autocast(ctx):
            for times in _in_chunks_chunks(queries, ctx.plan.chunk_size):
                own = queries[:, times].detach().requires_grad_()
                found = ctx.plan.attend(own, places[:, times], memory_tensors)
                parts = torch.autograd.grad(
                    found, [own, *learning], grad_outputs[:, times], materialize_grads=True
                )
                grad_queries[:, times] = parts[0]
                for total, part in zip(cumulative_log_probs, parts[1:], strict=True):
                    total.add_(part)
        done = (
            total.to(each.dtype) for total, each in zip(cumulative_log_probs, learning, strict=True)
        )
        return None, grad_queries, None, *(next(done) if wanted else None for wanted in needed)


@contextmanager
def _restored_rng_and_autocast(ctx: Any) -> Iterator[None]:
    """Draw the same numbers in the same precision, whatever goes on around."""
    (numbers, devices, states), (device, dtype, is_narrow) = ctx.draws, ctx.precision
    with (
        torch.enable_grad(),
        torch.random.fork_rng(devices),
        torch.autocast(device, dtype=dtype, enabled=is_narrow),
    ):
        torch.set_rng_state(numbers)
        set_device_states(devices, states)
        yield


def _flatten_tensors(value: Any) -> list[Tensor]:
    found = list[Tensor]()

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, value)
    return found


def _in_chunks_chunks(queries: Tensor, chunk_size: int) -> Iterator[slice]:
    return (slice(first, first + chunk_size) for first in range(0, queries.size(1), chunk_size))


def _float32_zeros(tensor: Tensor) -> Tensor:
    # What is summed over chunks is summed in at least single precision, as one sum would be.
    return torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
