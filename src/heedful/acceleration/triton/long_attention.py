"""Softmax attention over long memories in Triton, block by block (Dao et al. 2022).

No tensor of all scores is held, nor a mask of all heads: a mask is read in whatever layout it has,
and a block in which nothing is visible is skipped, so that causal attention takes half the time.
Otherwise as with short memories: heads are not copied, a query without any visible key gets
zeros, and there are no atomics. Imported only where there is Triton; `TRITON_INTERPRET=1` runs it
on a CPU.
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
from heedful.shapes import Int


@triton.jit
def _any_visible(is_visible):
    """Return whether any key of a block is visible."""
    return tl.max(tl.max(is_visible.to(tl.int32), axis=1), axis=0) > 0


@triton.jit(do_not_specialize=LENGTHS)
def _forward_kernel(
    q_ptr, q_batch, q_head, q_position, q_channel,
    k_ptr, k_batch, k_head, k_position, k_channel,
    v_ptr, v_batch, v_head, v_position, v_channel,
    mask_ptr, mask_batch, mask_head, mask_query, mask_key,
    out_ptr, out_batch, out_head, out_position, out_channel,
    normalizers, seed, num_heads, num_repeats, num_queries, num_keys, key_size, value_size,
    scale, p,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, KEY_CHANNELS: tl.constexpr,
    VALUE_CHANNELS: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the context of one block of queries of one head, and log2 of its normalizers."""
    num_tiles = tl.cdiv(num_queries, QUERIES)
    row = tl.program_id(0) // num_tiles
    batch, head = (row // num_heads).to(tl.int64), row % num_heads
    queries = tl.program_id(0) % num_tiles * QUERIES + tl.arange(0, QUERIES)
    k_ptr += batch * k_batch + head // num_repeats * k_head
    v_ptr += batch * v_batch + head // num_repeats * v_head
    mask_ptr += batch * mask_batch + head * mask_head
    q = load_block(
        q_ptr + batch * q_batch + head * q_head, q_position, q_channel,
        queries, num_queries, key_size, KEY_CHANNELS,
    )  # fmt: skip
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    context = tl.zeros([QUERIES, VALUE_CHANNELS], tl.float32)
    for start in range(0, num_keys, KEYS):
        keys = start + tl.arange(0, KEYS)
        is_visible = load_mask(mask_ptr, mask_query, mask_key, queries, num_queries, keys, num_keys)
        if _any_visible(is_visible):
            k = load_block(k_ptr, k_position, k_channel, keys, num_keys, key_size, KEY_CHANNELS)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2_E)
            scores = tl.where(is_visible, scores, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, axis=1))
            shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
            weights = tl.exp2(scores - shift[:, None])
            decay = tl.exp2(largest - shift)
            total = total * decay + tl.sum(weights, axis=1)
            if HAS_DROPOUT:
                weights *= weight_dropout(seed, row, queries, num_queries, keys, num_keys, p)
            v = load_block(v_ptr, v_position, v_channel, keys, num_keys, value_size, VALUE_CHANNELS)
            context *= decay[:, None]
            context += tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
            largest = new_largest
    total = tl.where(total == 0.0, 1.0, total)
    context /= total[:, None]
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    is_query = queries < num_queries
    tl.store(normalizers + row * num_queries + queries, largest + tl.log2(total), mask=is_query)
    store_block(
        out_ptr + batch * out_batch + head * out_head, out_position, out_channel,
        queries, num_queries, value_size, context, VALUE_CHANNELS,
    )  # fmt: skip


@triton.jit
def _score_gradients(
    q, k, v, grad, is_visible, normalizers, deltas, seed, row, queries, num_queries, keys, num_keys,
    scale, p, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return weights after dropout, and the gradient of the dot products, of one block."""
    is_query = queries < num_queries
    normalizer = tl.load(normalizers + row * num_queries + queries, mask=is_query, other=0.0)
    delta = tl.load(deltas + row * num_queries + queries, mask=is_query, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2_E)
    weights = tl.where(is_visible, tl.exp2(scores - normalizer[:, None]), 0.0)
    kept, grad_weights = weight_gradients(
        weights, v, grad, seed, row, queries, num_queries, keys, num_keys, p,
        HAS_DROPOUT, PRECISION,
    )  # fmt: skip
    return kept.to(v.dtype), (weights * (grad_weights - delta[:, None]) * scale).to(k.dtype)


@triton.jit(do_not_specialize=LENGTHS)
def _query_gradient_kernel(
    q_ptr, q_batch, q_head, q_position, q_channel,
    k_ptr, k_batch, k_head, k_position, k_channel,
    v_ptr, v_batch, v_head, v_position, v_channel,
    mask_ptr, mask_batch, mask_head, mask_query, mask_key,
    grad_ptr, grad_batch, grad_head, grad_position, grad_channel,
    dq_ptr, dq_batch, dq_head, dq_position, dq_channel,
    normalizers, deltas, seed, num_heads, num_repeats, num_queries, num_keys, key_size, value_size,
    scale, p,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, KEY_CHANNELS: tl.constexpr,
    VALUE_CHANNELS: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    num_tiles = tl.cdiv(num_queries, QUERIES)
    row = tl.program_id(0) // num_tiles
    batch, head = (row // num_heads).to(tl.int64), row % num_heads
    queries = tl.program_id(0) % num_tiles * QUERIES + tl.arange(0, QUERIES)
    k_ptr += batch * k_batch + head // num_repeats * k_head
    v_ptr += batch * v_batch + head // num_repeats * v_head
    mask_ptr += batch * mask_batch + head * mask_head
    q = load_block(
        q_ptr + batch * q_batch + head * q_head, q_position, q_channel,
        queries, num_queries, key_size, KEY_CHANNELS,
    )  # fmt: skip
    grad = load_block(
        grad_ptr + batch * grad_batch + head * grad_head, grad_position, grad_channel,
        queries, num_queries, value_size, VALUE_CHANNELS,
    )  # fmt: skip
    dq = tl.zeros([QUERIES, KEY_CHANNELS], tl.float32)
    for start in range(0, num_keys, KEYS):
        keys = start + tl.arange(0, KEYS)
        is_visible = load_mask(mask_ptr, mask_query, mask_key, queries, num_queries, keys, num_keys)
        if _any_visible(is_visible):
            k = load_block(k_ptr, k_position, k_channel, keys, num_keys, key_size, KEY_CHANNELS)
            v = load_block(v_ptr, v_position, v_channel, keys, num_keys, value_size, VALUE_CHANNELS)
            _, grad_scores = _score_gradients(
                q, k, v, grad, is_visible, normalizers, deltas, seed, row,
                queries, num_queries, keys, num_keys, scale, p, HAS_DROPOUT, PRECISION,
            )  # fmt: skip
            dq += tl.dot(grad_scores, k, input_precision=PRECISION)
    store_block(
        dq_ptr + batch * dq_batch + head * dq_head, dq_position, dq_channel,
        queries, num_queries, key_size, dq, KEY_CHANNELS,
    )  # fmt: skip


@triton.jit(do_not_specialize=LENGTHS)
def _memory_gradient_kernel(
    q_ptr, q_batch, q_head, q_position, q_channel,
    k_ptr, k_batch, k_head, k_position, k_channel,
    v_ptr, v_batch, v_head, v_position, v_channel,
    mask_ptr, mask_batch, mask_head, mask_query, mask_key,
    grad_ptr, grad_batch, grad_head, grad_position, grad_channel,
    dk_ptr, dk_batch, dk_head, dk_position, dk_channel,
    dv_ptr, dv_batch, dv_head, dv_position, dv_channel,
    normalizers, deltas, seed, num_heads, num_repeats, num_queries, num_keys, key_size, value_size,
    scale, p,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, KEY_CHANNELS: tl.constexpr,
    VALUE_CHANNELS: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    num_tiles, num_kv_heads = tl.cdiv(num_keys, KEYS), num_heads // num_repeats
    kv_row = tl.program_id(0) // num_tiles
    batch, kv_head = (kv_row // num_kv_heads).to(tl.int64), kv_row % num_kv_heads
    keys = tl.program_id(0) % num_tiles * KEYS + tl.arange(0, KEYS)
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
        row = (kv_row // num_kv_heads) * num_heads + head
        masks = mask_ptr + batch * mask_batch + head * mask_head
        for start in range(0, num_queries, QUERIES):
            queries = start + tl.arange(0, QUERIES)
            is_visible = load_mask(
                masks, mask_query, mask_key, queries, num_queries, keys, num_keys
            )
            if _any_visible(is_visible):
                q = load_block(
                    q_ptr + batch * q_batch + head * q_head, q_position, q_channel,
                    queries, num_queries, key_size, KEY_CHANNELS,
                )  # fmt: skip
                grad = load_block(
                    grad_ptr + batch * grad_batch + head * grad_head, grad_position, grad_channel,
                    queries, num_queries, value_size, VALUE_CHANNELS,
                )  # fmt: skip
                kept, grad_scores = _score_gradients(
                    q, k, v, grad, is_visible, normalizers, deltas, seed, row,
                    queries, num_queries, keys, num_keys, scale, p, HAS_DROPOUT, PRECISION,
                )  # fmt: skip
                dv += tl.dot(tl.trans(kept), grad, input_precision=PRECISION)
                dk += tl.dot(tl.trans(grad_scores), q, input_precision=PRECISION)
    store_block(
        dk_ptr + batch * dk_batch + kv_head * dk_head, dk_position, dk_channel,
        keys, num_keys, key_size, dk, KEY_CHANNELS,
    )  # fmt: skip
    store_block(
        dv_ptr + batch * dv_batch + kv_head * dv_head, dv_position, dv_channel,
        keys, num_keys, value_size, dv, VALUE_CHANNELS,
    )  # fmt: skip


class LongAttention(torch.autograd.Function):
    """softmax(scale q . k) v; saves inputs, outputs and the normalizers of the queries."""

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
        """Return the context; keys are read tile by tile, with running maximum and sum."""
        mask = mask.view(torch.uint8)
        context = empty_heads(queries, values.size(-1))
        normalizers = queries.new_empty(queries.shape[:3], dtype=torch.float32)
        ctx.save_for_backward(queries, keys, values, mask, seed, context, normalizers)
        ctx.scale, ctx.dropout = scale, dropout
        options = attention_options(queries, keys, values, dropout, tuning.TRITON_LONG_TILE)
        num_tiles = -(-queries.size(2) // options["QUERIES"])
        _forward_kernel[(queries.size(0) * queries.size(1) * num_tiles,)](
            *with_strides(queries, keys, values, mask, context), normalizers, seed,
            *_sizes(queries, keys, values), scale, dropout, **options,
        )  # fmt: skip
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_context: Tensor) -> tuple[Tensor | None, ...]:
        """As with short memories; sum w g of a query is dy . y."""
        queries, keys, values, mask, seed, context, normalizers = ctx.saved_tensors
        grads = [empty_heads(tensor, tensor.size(-1)) for tensor in (queries, keys, values)]
        deltas = (grad_context.float() * context).sum(dim=-1).contiguous()
        options = attention_options(queries, keys, values, ctx.dropout, tuning.TRITON_LONG_TILE)
        inputs = with_strides(queries, keys, values, mask, grad_context)
        sizes = _sizes(queries, keys, values)
        num_tiles = -(-queries.size(2) // options["QUERIES"])
        _query_gradient_kernel[(queries.size(0) * queries.size(1) * num_tiles,)](
            *inputs, *with_strides(grads[0]), normalizers, deltas, seed, *sizes,
            ctx.scale, ctx.dropout, **options,
        )  # fmt: skip
        num_tiles = -(-keys.size(2) // options["KEYS"])
        _memory_gradient_kernel[(keys.size(0) * keys.size(1) * num_tiles,)](
            *inputs, *with_strides(*grads[1:]), normalizers, deltas, seed, *sizes,
            ctx.scale, ctx.dropout, **options,
        )  # fmt: skip
        return *grads, None, None, None, None


def _sizes(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[int, ...]:
    num_heads, num_kv_heads = queries.size(1), keys.size(1)
    num_repeats = num_heads // num_kv_heads
    lengths = queries.size(2), keys.size(2)
    return num_heads, num_repeats, *lengths, keys.size(3), values.size(3)
