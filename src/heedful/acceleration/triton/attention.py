"""Softmax attention in Triton: short memories in one block, long ones block by block.

All keys of a short memory fit into one block, so that a program computes whole rows of weights and
one kernel all gradients, without outputs or normalizers of the forward pass (`IS_WHOLE`). Of a long
memory no tensor of all scores is held (Dao et al. 2022), and a block in which nothing is visible is
skipped, so that causal attention takes half the time. Heads and masks are read in whatever layout
they have, and outputs are written as (B, T, H, V), so splitting and merging heads copies nothing. A
query without any visible key gets zeros. There are no atomics: the same inputs give the same bits.
Imported only where there is Triton; `TRITON_INTERPRET=1` runs it on a CPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.acceleration.triton.blocks import (
    LENGTHS,
    LOG2_E,
    attention_options,
    empty_heads,
    finite,
    load_block,
    load_mask,
    store_block,
    weight_dropout,
    weight_gradients,
    with_strides,
)
from heedful.shapes import Bool, Float, Int


@triton.jit
def _masked_scores(q, k, is_visible, scale, PRECISION: tl.constexpr):
    """Return scale q k log2(e), -inf for hidden keys."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2_E)
    return tl.where(is_visible, scores, float("-inf"))


@triton.jit
def _softmax(scores):
    """Return weights from the scores of all keys, zero for hidden ones."""
    exponentials = tl.exp2(scores - finite(tl.max(scores, axis=1))[:, None])
    total = tl.sum(exponentials, axis=1)
    return exponentials / tl.where(total == 0.0, 1.0, total)[:, None]


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
    IS_WHOLE: tl.constexpr,
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
    if IS_WHOLE:
        keys = tl.arange(0, KEYS)
        is_visible = load_mask(mask_ptr, mask_query, mask_key, queries, num_queries, keys, num_keys)
        k = load_block(k_ptr, k_position, k_channel, keys, num_keys, key_size, KEY_CHANNELS)
        weights = _softmax(_masked_scores(q, k, is_visible, scale, PRECISION))
        if HAS_DROPOUT:
            weights *= weight_dropout(seed, row, queries, num_queries, keys, num_keys, p)
        v = load_block(v_ptr, v_position, v_channel, keys, num_keys, value_size, VALUE_CHANNELS)
        context = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    else:
        largest = tl.full([QUERIES], float("-inf"), tl.float32)
        total = tl.zeros([QUERIES], tl.float32)
        context = tl.zeros([QUERIES, VALUE_CHANNELS], tl.float32)
        for start in range(0, num_keys, KEYS):
            keys = start + tl.arange(0, KEYS)
            is_visible = load_mask(
                mask_ptr, mask_query, mask_key, queries, num_queries, keys, num_keys
            )
            if _any_visible(is_visible):
                k = load_block(k_ptr, k_position, k_channel, keys, num_keys, key_size, KEY_CHANNELS)
                scores = _masked_scores(q, k, is_visible, scale, PRECISION)
                new_largest = tl.maximum(largest, tl.max(scores, axis=1))
                weights = tl.exp2(scores - finite(new_largest)[:, None])
                decay = tl.exp2(largest - finite(new_largest))
                total = total * decay + tl.sum(weights, axis=1)
                if HAS_DROPOUT:
                    weights *= weight_dropout(seed, row, queries, num_queries, keys, num_keys, p)
                v = load_block(
                    v_ptr, v_position, v_channel, keys, num_keys, value_size, VALUE_CHANNELS
                )
                context *= decay[:, None]
                context += tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
                largest = new_largest
        total = tl.where(total == 0.0, 1.0, total)
        context /= total[:, None]
        normalizer = finite(largest) + tl.log2(total)
        offsets = row * num_queries + queries
        tl.store(normalizers + offsets, normalizer, mask=queries < num_queries)
    store_block(
        out_ptr + batch * out_batch + head * out_head, out_position, out_channel,
        queries, num_queries, value_size, context, VALUE_CHANNELS,
    )  # fmt: skip


@triton.jit
def _score_gradients(
    q, k, v, grad, is_visible, normalizers, deltas, seed, row, queries, num_queries, keys, num_keys,
    scale, p, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr, IS_WHOLE: tl.constexpr,
):  # fmt: skip
    """Return weights after dropout, and the gradient of the dot products, of one block."""
    scores = _masked_scores(q, k, is_visible, scale, PRECISION)
    if IS_WHOLE:
        weights = _softmax(scores)
    else:
        is_query = queries < num_queries
        offsets = row * num_queries + queries
        weights = tl.exp2(
            scores - tl.load(normalizers + offsets, mask=is_query, other=0.0)[:, None]
        )
    dropped, grad_weights = weight_gradients(
        weights, v, grad, seed, row, queries, num_queries, keys, num_keys, p,
        HAS_DROPOUT, PRECISION,
    )  # fmt: skip
    if IS_WHOLE:
        delta = tl.sum(weights * grad_weights, axis=1)
    else:
        delta = tl.load(deltas + offsets, mask=is_query, other=0.0)
    return dropped.to(v.dtype), (weights * (grad_weights - delta[:, None]) * scale).to(k.dtype)


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
    IS_WHOLE: tl.constexpr,
):  # fmt: skip
    """Write the gradient of one block of queries of one head, over a long memory."""
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
                queries, num_queries, keys, num_keys, scale, p, HAS_DROPOUT, PRECISION, IS_WHOLE,
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
    dq_ptr, dq_batch, dq_head, dq_position, dq_channel,
    dk_ptr, dk_batch, dk_head, dk_position, dk_channel,
    dv_ptr, dv_batch, dv_head, dv_position, dv_channel,
    normalizers, deltas, seed, num_heads, num_repeats, num_queries, num_keys, key_size, value_size,
    scale, p,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, KEY_CHANNELS: tl.constexpr,
    VALUE_CHANNELS: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one block of keys and values of one key-value head.

    If the block is the whole memory, also write the gradients of the queries of all its heads.
    """
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
            is_needed = True
            if not IS_WHOLE:
                is_needed = _any_visible(is_visible)
            if is_needed:
                q = load_block(
                    q_ptr + batch * q_batch + head * q_head, q_position, q_channel,
                    queries, num_queries, key_size, KEY_CHANNELS,
                )  # fmt: skip
                grad = load_block(
                    grad_ptr + batch * grad_batch + head * grad_head, grad_position, grad_channel,
                    queries, num_queries, value_size, VALUE_CHANNELS,
                )  # fmt: skip
                dropped, grad_scores = _score_gradients(
                    q, k, v, grad, is_visible, normalizers, deltas, seed, row,
                    queries, num_queries, keys, num_keys, scale, p,
                    HAS_DROPOUT, PRECISION, IS_WHOLE,
                )  # fmt: skip
                dv += tl.dot(tl.trans(dropped), grad, input_precision=PRECISION)
                dk += tl.dot(tl.trans(grad_scores), q, input_precision=PRECISION)
                if IS_WHOLE:
                    store_block(
                        dq_ptr + batch * dq_batch + head * dq_head, dq_position, dq_channel,
                        queries, num_queries, key_size,
                        tl.dot(grad_scores, k, input_precision=PRECISION), KEY_CHANNELS,
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
    context: Tensor = _Attention.apply(queries, keys, values, mask, seed, scale, dropout)
    return context


class _Attention(torch.autograd.Function):
    """softmax(scale q . k) v; of a long memory, saves outputs and normalizers with its inputs."""

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
        mask, normalizers = mask.view(torch.uint8), None
        context = empty_heads(queries, values.size(-1))
        ctx.scale, ctx.dropout = scale, dropout
        ctx.options = options = attention_options(queries, keys, values, dropout)
        if not options["IS_WHOLE"]:
            normalizers = queries.new_empty(queries.shape[:3], dtype=torch.float32)
        outputs = None if normalizers is None else context
        ctx.save_for_backward(queries, keys, values, mask, seed, outputs, normalizers)
        if context.numel():
            _forward_kernel[_grid(queries, options["QUERIES"])](
                *with_strides(queries, keys, values, mask, context), normalizers, seed,
                *_sizes(queries, keys, values), scale, dropout, **options,
            )  # fmt: skip
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_context: Tensor) -> tuple[Tensor | None, ...]:
        """With weights w = softmax(scale q k), d = dropout factors and g = d (dy v):

        dv = (d w) dy,  ds = scale w (g - sum w g),  dq = ds k,  dk = ds q;  sum w g = dy . y.
        """
        queries, keys, values, mask, seed, context, normalizers = ctx.saved_tensors
        grads = [empty_heads(tensor, tensor.size(-1)) for tensor in (queries, keys, values)]
        inputs = with_strides(queries, keys, values, mask, grad_context)
        sizes = *_sizes(queries, keys, values), ctx.scale, ctx.dropout
        deltas = None
        if context is not None:
            deltas = (grad_context.float() * context).sum(dim=-1).contiguous()
            _query_gradient_kernel[_grid(queries, ctx.options["QUERIES"])](
                *inputs, *with_strides(grads[0]), normalizers, deltas, seed, *sizes, **ctx.options
            )
        if values.numel():
            _memory_gradient_kernel[_grid(keys, ctx.options["KEYS"])](
                *inputs, *with_strides(*grads), normalizers, deltas, seed, *sizes, **ctx.options
            )
        return *grads, None, None, None, None


def _grid(heads: Float[Tensor, "B H T K"], tile: int) -> tuple[int]:
    """Return the number of programs: one for each tile of positions of each head."""
    return (heads.size(0) * heads.size(1) * -(-heads.size(2) // tile),)


def _sizes(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[int, ...]:
    num_heads, num_kv_heads = queries.size(1), keys.size(1)
    num_repeats = num_heads // num_kv_heads
    lengths = queries.size(2), keys.size(2)
    return num_heads, num_repeats, *lengths, keys.size(3), values.size(3)
