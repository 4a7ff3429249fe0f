"""Softmax attention over short memories in Triton, one kernel in each direction.

All keys of a head fit into one block, so a program computes whole rows of weights and the gradient
needs neither outputs nor normalizers from the forward pass. Heads and masks are read in whatever
layout they have, and outputs are written as (B, T, H, V), so splitting and merging heads copies
nothing. A query without any visible key gets zeros. There are no atomics: the same inputs give the
same bits. Imported only where there is Triton; `TRITON_INTERPRET=1` runs it on a CPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.acceleration import tuning
from heedful.acceleration.triton.blocks import (
    LENGTHS,
    LOG2_E,
    attention_options,
    empty_heads,
    load_block,
    load_mask,
    store_block,
    weight_dropout,
    weight_gradients,
    with_strides,
)
from heedful.acceleration.triton.long_attention import LongAttention
from heedful.shapes import Bool, Float, Int


@triton.jit
def _weights(
    q, k, mask, mask_query, mask_key, queries, num_queries, keys, num_keys, scale,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return softmax(scale q k), zero for hidden keys."""
    is_visible = load_mask(mask, mask_query, mask_key, queries, num_queries, keys, num_keys)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2_E)
    scores = tl.where(is_visible, scores, float("-inf"))
    largest = tl.max(scores, axis=1)
    largest = tl.where(largest == float("-inf"), 0.0, largest)  # nothing is visible
    exponentials = tl.exp2(scores - largest[:, None])
    total = tl.sum(exponentials, axis=1)
    return exponentials / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit(do_not_specialize=LENGTHS)
def _forward_kernel(
    q_ptr, q_batch, q_head, q_position, q_channel,
    k_ptr, k_batch, k_head, k_position, k_channel,
    v_ptr, v_batch, v_head, v_position, v_channel,
    mask_ptr, mask_batch, mask_head, mask_query, mask_key,
    out_ptr, out_batch, out_head, out_position, out_channel,
    seed, num_heads, num_repeats, num_queries, num_keys, key_size, value_size, scale, p,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, KEY_CHANNELS: tl.constexpr,
    VALUE_CHANNELS: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the context of one block of queries of one head."""
    num_tiles = tl.cdiv(num_queries, QUERIES)
    row = tl.program_id(0) // num_tiles
    batch, head = (row // num_heads).to(tl.int64), row % num_heads
    kv_head = head // num_repeats
    queries = tl.program_id(0) % num_tiles * QUERIES + tl.arange(0, QUERIES)
    keys = tl.arange(0, KEYS)
    q = load_block(
        q_ptr + batch * q_batch + head * q_head, q_position, q_channel,
        queries, num_queries, key_size, KEY_CHANNELS,
    )  # fmt: skip
    k = load_block(
        k_ptr + batch * k_batch + kv_head * k_head, k_position, k_channel,
        keys, num_keys, key_size, KEY_CHANNELS,
    )  # fmt: skip
    weights = _weights(
        q, k, mask_ptr + batch * mask_batch + head * mask_head, mask_query, mask_key,
        queries, num_queries, keys, num_keys, scale, PRECISION,
    )  # fmt: skip
    if HAS_DROPOUT:
        weights *= weight_dropout(seed, row, queries, num_queries, keys, num_keys, p)
    v = load_block(
        v_ptr + batch * v_batch + kv_head * v_head, v_position, v_channel,
        keys, num_keys, value_size, VALUE_CHANNELS,
    )  # fmt: skip
    context = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    store_block(
        out_ptr + batch * out_batch + head * out_head, out_position, out_channel,
        queries, num_queries, value_size, context, VALUE_CHANNELS,
    )  # fmt: skip


@triton.jit(do_not_specialize=LENGTHS)
def _backward_kernel(
    q_ptr, q_batch, q_head, q_position, q_channel,
    k_ptr, k_batch, k_head, k_position, k_channel,
    v_ptr, v_batch, v_head, v_position, v_channel,
    mask_ptr, mask_batch, mask_head, mask_query, mask_key,
    grad_ptr, grad_batch, grad_head, grad_position, grad_channel,
    dq_ptr, dq_batch, dq_head, dq_position, dq_channel,
    dk_ptr, dk_batch, dk_head, dk_position, dk_channel,
    dv_ptr, dv_batch, dv_head, dv_position, dv_channel,
    seed, num_heads, num_repeats, num_queries, num_keys, key_size, value_size, scale, p,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, KEY_CHANNELS: tl.constexpr,
    VALUE_CHANNELS: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one key-value head and of the queries of all its heads."""
    num_kv_heads = num_heads // num_repeats
    batch = (tl.program_id(0) // num_kv_heads).to(tl.int64)
    kv_head = tl.program_id(0) % num_kv_heads
    keys = tl.arange(0, KEYS)
    k = load_block(
        k_ptr + batch * k_batch + kv_head * k_head, k_position, k_channel,
        keys, num_keys, key_size, KEY_CHANNELS,
    )  # fmt: skip
    v = load_block(
        v_ptr + batch * v_batch + kv_head * v_head, v_position, v_channel,
        keys, num_keys, value_size, VALUE_CHANNELS,
    )  # fmt: skip
    dk = tl.zeros([KEYS, KEY_CHANNELS], tl.float32)
    dv = tl.zeros([KEYS, VALUE_CHANNELS], tl.float32)
    for repeat in range(num_repeats):
        head = kv_head * num_repeats + repeat
        row = (tl.program_id(0) // num_kv_heads) * num_heads + head
        for start in range(0, num_queries, QUERIES):
            queries = start + tl.arange(0, QUERIES)
            q = load_block(
                q_ptr + batch * q_batch + head * q_head, q_position, q_channel,
                queries, num_queries, key_size, KEY_CHANNELS,
            )  # fmt: skip
            grad = load_block(
                grad_ptr + batch * grad_batch + head * grad_head, grad_position, grad_channel,
                queries, num_queries, value_size, VALUE_CHANNELS,
            )  # fmt: skip
            weights = _weights(
                q, k, mask_ptr + batch * mask_batch + head * mask_head, mask_query, mask_key,
                queries, num_queries, keys, num_keys, scale, PRECISION,
            )  # fmt: skip
            kept, grad_weights = weight_gradients(
                weights, v, grad, seed, row, queries, num_queries, keys, num_keys, p,
                HAS_DROPOUT, PRECISION,
            )  # fmt: skip
            dv += tl.dot(tl.trans(kept.to(grad.dtype)), grad, input_precision=PRECISION)
            mean = tl.sum(weights * grad_weights, axis=1)
            grad_scores = (weights * (grad_weights - mean[:, None]) * scale).to(k.dtype)
            dk += tl.dot(tl.trans(grad_scores), q, input_precision=PRECISION)
            dq = tl.dot(grad_scores, k, input_precision=PRECISION)
            store_block(
                dq_ptr + batch * dq_batch + head * dq_head, dq_position, dq_channel,
                queries, num_queries, key_size, dq, KEY_CHANNELS,
            )  # fmt: skip
    store_block(
        dk_ptr + batch * dk_batch + kv_head * dk_head, dk_position, dk_channel,
        keys, num_keys, key_size, dk, KEY_CHANNELS,
    )  # fmt: skip
    store_block(
        dv_ptr + batch * dv_batch + kv_head * dv_head, dv_position, dv_channel,
        keys, num_keys, value_size, dv, VALUE_CHANNELS,
    )  # fmt: skip


def triton_attention(
    queries: Float[Tensor, "B H T K"],
    keys: Float[Tensor, "B G S K"],
    values: Float[Tensor, "B G S V"],
    mask: Bool[Tensor, "#B #H #T S"],
    *,
    scale: float,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Return softmax(scale q . k) v; G divides H. The result is a view of (B, T, H, V)."""
    seed = None
    if dropout:
        seed = torch.randint(-(2**63), 2**63 - 1, (1,), device=queries.device)
    mask = mask.expand(*queries.shape[:3], keys.size(2))
    is_short = keys.size(2) <= tuning.MAX_TRITON_KEYS
    attention = _ShortAttention if is_short else LongAttention
    return attention.apply(queries, keys, values, mask, seed, scale, dropout)


class _ShortAttention(torch.autograd.Function):
    """softmax(scale q . k) v; saves its inputs."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        seed: Int[Tensor, "1"] | None,
        scale: float,
        dropout: float,
    ) -> Tensor:
        mask = mask.view(torch.uint8)
        batch_size, num_heads, num_queries, _ = queries.shape
        ctx.save_for_backward(queries, keys, values, mask, seed)
        ctx.scale, ctx.dropout = scale, dropout
        context = empty_heads(queries, values.size(-1))
        options = attention_options(queries, keys, values, dropout, _short_tile())
        num_tiles = -(-num_queries // options["QUERIES"])
        if context.numel():
            _forward_kernel[(batch_size * num_heads * num_tiles,)](
                *with_strides(queries, keys, values, mask, context), seed,
                num_heads, num_heads // keys.size(1), num_queries, keys.size(2),
                keys.size(3), values.size(3), scale, dropout, **options,
            )  # fmt: skip
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_context: Tensor) -> tuple[Tensor | None, ...]:
        """With weights w = softmax(scale q k), d = dropout factors and g = d (dy v):

        dv = (d w) dy,  ds = scale w (g - sum w g),  dq = ds k,  dk = ds q.
        """
        queries, keys, values, mask, seed = ctx.saved_tensors
        grads = [empty_heads(tensor, tensor.size(-1)) for tensor in (queries, keys, values)]
        batch_size, num_heads, num_queries, _ = queries.shape
        num_kv_heads = keys.size(1)
        if values.numel():
            _backward_kernel[(batch_size * num_kv_heads,)](
                *with_strides(queries, keys, values, mask, grad_context, *grads), seed,
                num_heads, num_heads // num_kv_heads, num_queries, keys.size(2),
                keys.size(3), values.size(3), ctx.scale, ctx.dropout,
                **attention_options(queries, keys, values, ctx.dropout, _short_tile()),
            )  # fmt: skip
        return *grads, None, None, None, None


def _short_tile() -> tuple[int, int]:
    return tuning.TRITON_ATTENTION_QUERIES, tuning.MAX_TRITON_KEYS
