"""Additive scores v . tanh(q + k) in Triton: neither pass holds the hidden layer (B, T, S, A).

With E = exp(2x), tanh(q + k) = 1 - 2 / (1 + E_q E_k): the exponentials belong to single vectors,
and only the reciprocal to a pair. Two channels share one reciprocal, since v1/x1 + v2/x2 =
(v1 x2 + v2 x1) / (x1 x2). Rows with an element beyond `MAX_FACTORED` are computed from the sum
q + k, so that nothing overflows. Sums are in float32, or float64 for float64 inputs. There are no
atomics: the same inputs give the same bits. Imported only where there is Triton;
`TRITON_INTERPRET=1` runs it on a CPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.acceleration import tuning
from heedful.acceleration.triton_math import (
    DOUBLED_LOG2_E,
    cdiv,
    denominator,
    has_fast_reciprocal,
    next_power,
    reciprocal,
    wide_dtype,
    write_exponentials,
)
from heedful.shapes import Float, Int, Mask, Scores

CHANNEL_STEP = tl.constexpr(8)  # channels per iteration of the loop of scores: four pairs
KEY_STEP = tl.constexpr(4)  # vectors per iteration of the loop of gradients


@triton.jit
def _load_factor(pointers, mask, dtype: tl.constexpr, IS_FACTORED: tl.constexpr):
    """Load exponentials, or exponents of 2."""
    factors = tl.load(pointers, mask=mask, other=0.0).to(dtype)
    return factors if IS_FACTORED else factors * DOUBLED_LOG2_E


@triton.jit
def _exceeds_range(flags, batch, num_flags, FLAG_BLOCK: tl.constexpr):
    offsets = tl.arange(0, FLAG_BLOCK)
    tile_flags = tl.load(flags + batch * num_flags + offsets, mask=offsets < num_flags, other=0)
    return tl.max(tile_flags, axis=0) > 0


@triton.jit
def _num_seen_columns(
    mask, mask_row, mask_column, row, is_row, num_columns, COLUMN_BLOCK: tl.constexpr
):
    """Return the number of columns up to the last that a row of the tile may attend to."""
    last = tl.zeros([COLUMN_BLOCK], tl.int32)
    for start in range(0, num_columns, COLUMN_BLOCK):
        column = start + tl.arange(0, COLUMN_BLOCK)
        pairs = mask + row.to(tl.int64)[:, None] * mask_row + column[None, :] * mask_column
        inside = is_row[:, None] & (column < num_columns)[None, :]
        is_seen = tl.max(tl.load(pairs, mask=inside, other=0).to(tl.int32), axis=0) > 0
        last = tl.maximum(last, tl.where(is_seen, column + 1, 0))
    return tl.max(last, axis=0)


@triton.jit
def _sum_factored(
    queries, padded_queries, keys, padded_keys, vector, vector_stride, total,
    num_channels, padded_channels, IS_APPROXIMATE: tl.constexpr,
):  # fmt: skip
    """Add v / (1 + E_q E_k) of all channels, two at a time."""
    for start in range(0, padded_channels, CHANNEL_STEP):
        for offset in tl.static_range(0, CHANNEL_STEP, 2):
            c1 = start + offset
            c2 = c1 + 1
            q1 = tl.load(queries + c1 * padded_queries)[:, None]
            q2 = tl.load(queries + c2 * padded_queries)[:, None]
            k1 = tl.load(keys + c1 * padded_keys)[None, :]
            k2 = tl.load(keys + c2 * padded_keys)[None, :]
            v1 = tl.load(vector + c1 * vector_stride, mask=c1 < num_channels, other=0.0)
            v2 = tl.load(vector + c2 * vector_stride, mask=c2 < num_channels, other=0.0)
            x1 = denominator(q1, k1, True)
            x2 = denominator(q2, k2, True)
            numerator = v1.to(total.dtype) * x2 + v2.to(total.dtype) * x1
            total += numerator * reciprocal(x1 * x2, IS_APPROXIMATE)
    return total


@triton.jit
def _sum_unfactored(
    queries, query_channel, is_query, keys, key_channel, is_key, vector, vector_stride, total,
    num_channels,
):  # fmt: skip
    """Add v / (1 + exp(2 (q + k))) of all channels."""
    for channel in range(0, num_channels):
        q = _load_factor(queries + channel * query_channel, is_query, total.dtype, False)
        k = _load_factor(keys + channel * key_channel, is_key, total.dtype, False)
        v = tl.load(vector + channel * vector_stride).to(total.dtype)
        total += v / denominator(q[:, None], k[None, :], False)
    return total


@triton.jit
def _score_kernel(
    queries, query_batch, query_position, query_channel,
    keys, key_batch, key_position, key_channel,
    mask, mask_batch, mask_query, mask_key,
    vector, vector_stride, query_factors, key_factors, flags, num_flags, scores,
    num_queries, num_keys, num_channels, padded_queries, padded_keys, padded_channels,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, CHANNEL_BLOCK: tl.constexpr,
    FLAG_BLOCK: tl.constexpr, IS_APPROXIMATE: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    """Write one tile of scores; channels are a loop, so that nothing is summed across threads.

    The loop is empty if all of the tile is masked.
    """
    key_tiles = padded_keys // KEYS
    num_tiles = padded_queries // QUERIES * key_tiles
    batch = (tl.program_id(0) // num_tiles).to(tl.int64)
    tile = tl.program_id(0) % num_tiles
    q = tile // key_tiles * QUERIES + tl.arange(0, QUERIES)
    k = tile % key_tiles * KEYS + tl.arange(0, KEYS)
    dtype = query_factors.dtype.element_ty
    total = tl.zeros([QUERIES, KEYS], dtype)
    is_pair = (q[:, None] < num_queries) & (k[None, :] < num_keys)
    num_factored, num_unfactored = padded_channels, num_channels
    if HAS_MASK:
        pairs = q.to(tl.int64)[:, None] * mask_query + k.to(tl.int64)[None, :] * mask_key
        is_seen = tl.load(mask + batch * mask_batch + pairs, mask=is_pair, other=0).to(tl.int32)
        sees_any = tl.max(tl.max(is_seen, axis=1), axis=0)
        num_factored, num_unfactored = padded_channels * sees_any, num_channels * sees_any
    if _exceeds_range(flags, batch, num_flags, FLAG_BLOCK):
        total = _sum_unfactored(
            queries + batch * query_batch + q.to(tl.int64) * query_position, query_channel,
            q < num_queries,
            keys + batch * key_batch + k.to(tl.int64) * key_position, key_channel, k < num_keys,
            vector, vector_stride, total, num_unfactored,
        )  # fmt: skip
    else:
        total = _sum_factored(
            query_factors + batch * padded_channels * padded_queries + q, padded_queries,
            key_factors + batch * padded_channels * padded_keys + k, padded_keys,
            vector, vector_stride, total, num_channels, num_factored, IS_APPROXIMATE,
        )  # fmt: skip
    channels = tl.arange(0, CHANNEL_BLOCK)
    v = tl.load(vector + channels * vector_stride, mask=channels < num_channels, other=0.0)
    result = tl.sum(v.to(dtype), axis=0) - 2.0 * total
    rows = scores + (batch * num_queries + q.to(tl.int64)[:, None]) * num_keys
    tl.store(rows + k[None, :], result.to(scores.dtype.element_ty), mask=is_pair)


@triton.jit
def _sum_gradients(
    row1, row2, columns, column_position, column_channel, grads, grad_position, is_row,
    num_columns, num_channels, c1, c2,
    IS_FACTORED: tl.constexpr, IS_APPROXIMATE: tl.constexpr, NEEDS_VECTOR: tl.constexpr,
):  # fmt: skip
    """Sum g, g r (1 - r) and g r over columns for two blocks of channels; r = 1 / (1 + E)."""
    dtype = row1.dtype
    grad_sum = tl.zeros([row1.shape[0], 1], dtype)
    slope1, slope2 = tl.zeros_like(row1), tl.zeros_like(row1)
    value1, value2 = tl.zeros_like(row1), tl.zeros_like(row1)
    for start in range(0, num_columns, KEY_STEP):
        for offset in tl.static_range(KEY_STEP):
            position = start + offset
            is_column = tl.full([1], position, tl.int32) < num_columns
            column_pointers = columns + position * column_position
            column1 = _load_factor(
                column_pointers + c1 * column_channel,
                (c1 < num_channels) & is_column,
                dtype,
                IS_FACTORED,
            )
            column2 = _load_factor(
                column_pointers + c2 * column_channel,
                (c2 < num_channels) & is_column,
                dtype,
                IS_FACTORED,
            )
            grad = tl.load(grads + position * grad_position, mask=is_row & is_column, other=0.0)
            grad = grad.to(dtype)[:, None]
            x1 = denominator(row1, column1[None, :], IS_FACTORED)
            x2 = denominator(row2, column2[None, :], IS_FACTORED)
            inverse = reciprocal(x1 * x2, IS_APPROXIMATE)
            r1, r2 = x2 * inverse, x1 * inverse
            slope1 += grad * (r1 - r1 * r1)
            slope2 += grad * (r2 - r2 * r2)
            if NEEDS_VECTOR:
                grad_sum += grad
                value1 += grad * r1
                value2 += grad * r2
    return slope1, slope2, value1, value2, grad_sum


@triton.jit
def _gradient_kernel(
    rows, row_batch, row_position, row_channel, row_factors,
    columns, column_batch, column_position, column_channel, column_factors,
    grads, grad_batch, grad_row, grad_column, mask, mask_batch, mask_row, mask_column,
    vector, vector_stride, flags, num_flags, outputs, vector_outputs,
    num_rows, num_columns, num_channels,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, FLAG_BLOCK: tl.constexpr,
    IS_APPROXIMATE: tl.constexpr, NEEDS_VECTOR: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of one side and a part of that of the vector.

    The side is the rows of `grads`: queries, or keys if `grads` is transposed. Threads are channels
    and columns are a loop, so that nothing is summed across threads; it ends at the last column
    that is not masked.
    """
    num_slices = tl.cdiv(num_channels, 2 * CHANNELS)
    row_tiles = tl.cdiv(num_rows, ROWS)
    batch = (tl.program_id(0) // (num_slices * row_tiles)).to(tl.int64)
    tile = tl.program_id(0) // num_slices % row_tiles
    row = tile * ROWS + tl.arange(0, ROWS)
    c1 = tl.program_id(0) % num_slices * 2 * CHANNELS + tl.arange(0, CHANNELS)
    c2 = c1 + CHANNELS
    dtype = vector_outputs.dtype.element_ty
    is_row = row < num_rows
    mask1, mask2 = is_row[:, None] & (c1 < num_channels), is_row[:, None] & (c2 < num_channels)
    grads += batch * grad_batch + row.to(tl.int64) * grad_row
    num_seen = num_columns
    if HAS_MASK:
        num_seen = _num_seen_columns(
            mask + batch * mask_batch, mask_row, mask_column, row, is_row, num_columns, 64
        )
    offsets = (batch * num_rows + row.to(tl.int64)[:, None]) * num_channels
    if _exceeds_range(flags, batch, num_flags, FLAG_BLOCK):
        row_pointers = rows + batch * row_batch + row.to(tl.int64)[:, None] * row_position
        row1 = _load_factor(row_pointers + c1[None, :] * row_channel, mask1, dtype, False)
        row2 = _load_factor(row_pointers + c2[None, :] * row_channel, mask2, dtype, False)
        slope1, slope2, value1, value2, grad_sum = _sum_gradients(
            row1, row2, columns + batch * column_batch, column_position, column_channel,
            grads, grad_column, is_row,
            num_seen, num_channels, c1, c2, False, IS_APPROXIMATE, NEEDS_VECTOR,
        )  # fmt: skip
    else:
        row1 = _load_factor(row_factors + offsets + c1[None, :], mask1, dtype, True)
        row2 = _load_factor(row_factors + offsets + c2[None, :], mask2, dtype, True)
        slope1, slope2, value1, value2, grad_sum = _sum_gradients(
            row1, row2, column_factors + batch * num_columns * num_channels, num_channels, 1,
            grads, grad_column, is_row,
            num_seen, num_channels, c1, c2, True, IS_APPROXIMATE, NEEDS_VECTOR,
        )  # fmt: skip
    v1 = tl.load(vector + c1 * vector_stride, mask=c1 < num_channels, other=0.0).to(dtype)
    v2 = tl.load(vector + c2 * vector_stride, mask=c2 < num_channels, other=0.0).to(dtype)
    tl.store(outputs + offsets + c1[None, :], 4.0 * v1 * slope1, mask=mask1)
    tl.store(outputs + offsets + c2[None, :], 4.0 * v2 * slope2, mask=mask2)
    if NEEDS_VECTOR:
        vector_outputs += (batch * row_tiles + tile) * num_channels
        total1 = tl.sum(grad_sum - 2.0 * value1, axis=0)
        total2 = tl.sum(grad_sum - 2.0 * value2, axis=0)
        tl.store(vector_outputs + c1, total1, mask=c1 < num_channels)
        tl.store(vector_outputs + c2, total2, mask=c2 < num_channels)


def triton_additive_score(
    queries: Float[Tensor, "*#B T A"],
    keys: Float[Tensor, "*#B S A"],
    vector: Float[Tensor, "A"],
    mask: Mask | None = None,
) -> Scores:
    """Compute v . tanh(q + k) for each pair; has a first derivative, computed in Triton too.

    A masked pair gets any finite score, and must not get a gradient: tiles and columns that are
    masked as a whole are skipped.
    """
    leading = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    # No leading dimension counts as one row.
    rows = [part.expand(*leading, -1, -1).unsqueeze(0).flatten(0, -3) for part in (queries, keys)]
    if mask is not None:
        shape = *leading, queries.size(-2), keys.size(-2)
        mask = mask.view(torch.uint8).expand(shape).unsqueeze(0).flatten(0, -3)
    scores: Tensor = _TritonAdditiveScore.apply(*rows, vector, mask)
    return scores.view(*leading, queries.size(-2), keys.size(-2))


class _TritonAdditiveScore(torch.autograd.Function):
    """v . tanh(q + k); saves its inputs and a few flags for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Float[Tensor, "B T A"],
        keys: Float[Tensor, "B S A"],
        vector: Float[Tensor, "A"],
        mask: Tensor | None,
    ) -> Scores:
        query_tile, key_tile, num_warps = tuning.TRITON_SCORE_TILE
        batch_size, num_queries, num_channels = queries.shape
        num_keys = keys.size(1)
        dtype = torch.promote_types(queries.dtype, keys.dtype)
        scores = queries.new_empty(batch_size, num_queries, num_keys, dtype=dtype)
        query_tiles, key_tiles = cdiv(num_queries, query_tile), cdiv(num_keys, key_tile)
        flags = queries.new_empty(batch_size, query_tiles + key_tiles, dtype=torch.int32)
        ctx.save_for_backward(queries, keys, vector, mask, flags)
        if scores.numel() == 0:
            return scores
        query_factors = _padded_exponentials(queries, query_tile, flags, 0)
        key_factors = _padded_exponentials(keys, key_tile, flags, query_tiles)
        _score_kernel[(batch_size * query_tiles * key_tiles,)](
            queries, *queries.stride(), keys, *keys.stride(), *_with_strides(mask, flags),
            vector, vector.stride(0), query_factors, key_factors, flags, flags.size(1), scores,
            num_queries, num_keys, num_channels,
            query_factors.size(2), key_factors.size(2), key_factors.size(1),
            QUERIES=query_tile, KEYS=key_tile, CHANNEL_BLOCK=next_power(num_channels),
            FLAG_BLOCK=next_power(flags.size(1)), HAS_MASK=mask is not None,
            IS_APPROXIMATE=has_fast_reciprocal(query_factors),
            num_warps=num_warps, enable_fp_fusion=True,
        )  # fmt: skip
        return scores

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_scores: Scores
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        """With h_ts = tanh(q_t + k_s) and g the gradient of the scores.

        dq_t = v sum_s g_ts (1 - h_ts^2),  dk_s = v sum_t g_ts (1 - h_ts^2),  dv = sum_ts g_ts h_ts
        """
        queries, keys, vector, mask, flags = ctx.saved_tensors
        needs_queries, needs_keys, needs_vector, _ = ctx.needs_input_grad
        grad_queries = grad_keys = grad_vector = None
        query_side, key_side = ((side, _exponentials(side)) for side in (queries, keys))
        if needs_queries or needs_vector:
            grad_queries, grad_vector = _gradients(
                query_side, key_side, grad_scores, mask, vector, flags, needs_vector=needs_vector
            )
        if needs_keys:
            transposed = None if mask is None else mask.mT
            grad_keys, _ = _gradients(
                key_side, query_side, grad_scores.mT, transposed, vector, flags, needs_vector=False
            )
        return grad_queries, grad_keys, grad_vector, None


def _padded_exponentials(
    inputs: Float[Tensor, "B T A"], tile: int, flags: Int[Tensor, "B tiles"], first_flag: int
) -> Float[Tensor, "B C L"]:
    """Return exp(2x) with positions last, padded with ones to whole tiles and channel steps."""
    batch_size, length, num_channels = inputs.shape
    padded_channels = cdiv(num_channels, CHANNEL_STEP.value) * CHANNEL_STEP.value
    shape = batch_size, padded_channels, cdiv(length, tile) * tile
    outputs = inputs.new_empty(shape, dtype=wide_dtype(inputs))
    write_exponentials(inputs, outputs.mT, tile, flags, first_flag)
    return outputs


def _exponentials(inputs: Float[Tensor, "B T A"]) -> Float[Tensor, "B T A"]:
    outputs = inputs.new_empty(inputs.shape, dtype=wide_dtype(inputs))
    write_exponentials(inputs, outputs, 16)
    return outputs


def _gradients(
    row_side: tuple[Float[Tensor, "B T A"], Float[Tensor, "B T A"]],
    column_side: tuple[Float[Tensor, "B S A"], Float[Tensor, "B S A"]],
    grad_scores: Scores,
    mask: Tensor | None,
    vector: Float[Tensor, "A"],
    flags: Int[Tensor, "B tiles"],
    *,
    needs_vector: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of one side and, if needed, of the vector; a side has exponentials."""
    (rows, row_factors), (columns, column_factors) = row_side, column_side
    tile, max_pairs, num_warps = tuning.TRITON_GRADIENT_TILE
    batch_size, num_rows, num_channels = rows.shape
    pairs = min(max_pairs, next_power(cdiv(num_channels, 2)))
    num_tiles, num_slices = cdiv(num_rows, tile), cdiv(num_channels, 2 * pairs)
    outputs = torch.empty_like(rows, memory_format=torch.contiguous_format)
    parts = row_factors.new_empty(batch_size * num_tiles, num_channels)
    if outputs.numel():
        _gradient_kernel[(batch_size * num_tiles * num_slices,)](
            rows, *rows.stride(), row_factors, columns, *columns.stride(), column_factors,
            grad_scores, *grad_scores.stride(), *_with_strides(mask, flags),
            vector, vector.stride(0), flags, flags.size(1), outputs, parts,
            num_rows, columns.size(1), num_channels, ROWS=tile, CHANNELS=pairs,
            FLAG_BLOCK=next_power(flags.size(1)), IS_APPROXIMATE=has_fast_reciprocal(parts),
            NEEDS_VECTOR=needs_vector, HAS_MASK=mask is not None,
            num_warps=num_warps, enable_fp_fusion=True,
        )  # fmt: skip
    return outputs, parts.sum(dim=0).to(vector.dtype) if needs_vector else None


def _with_strides(mask: Tensor | None, unused: Tensor) -> tuple[Any, ...]:
    return (unused, 0, 0, 0) if mask is None else (mask, *mask.stride())
