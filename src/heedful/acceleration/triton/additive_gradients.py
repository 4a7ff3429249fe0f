"""Gradients of additive scores in Triton, from exponentials of single vectors as the scores.

Two passes compute the hidden layer again: one for the queries and the vector, one for the keys.
Threads are channels, the other side is a loop, and nothing is summed by atomics: the same inputs
give the same bits.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.acceleration import tuning
from heedful.acceleration.triton.additive_math import (
    cdiv,
    denominator,
    has_fast_reciprocal,
    load_factor,
    next_power,
    range_level,
    reciprocal,
    wide_dtype,
    with_strides,
    write_exponentials,
)
from heedful.shapes import Float, Int, Scores

COLUMN_STEP = tl.constexpr(4)  # vectors per iteration of the loop


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
def _add_gradients(
    row1, row2, slope1, slope2, value1, value2, grad_sum, columns, column_channel, grads,
    c1, c2, num_channels,
    IS_FACTORED: tl.constexpr, IS_APPROXIMATE: tl.constexpr, NEEDS_VECTOR: tl.constexpr,
):  # fmt: skip
    """Add g r (1 - r), g r and g of one column for two blocks of channels; r = 1 / (1 + E)."""
    dtype = row1.dtype
    column1 = load_factor(columns + c1 * column_channel, c1 < num_channels, dtype, IS_FACTORED)
    column2 = load_factor(columns + c2 * column_channel, c2 < num_channels, dtype, IS_FACTORED)
    grad = tl.load(grads).to(dtype)[:, None]
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
def _sum_gradients(
    rows, row_channel, mask1, mask2, columns, column_position, column_channel,
    grads, grad_position, num_columns, c1, c2, num_channels, DTYPE: tl.constexpr,
    IS_FACTORED: tl.constexpr, IS_APPROXIMATE: tl.constexpr, NEEDS_VECTOR: tl.constexpr,
):  # fmt: skip
    """Sum g r (1 - r), g r and g over columns."""
    row1 = load_factor(rows + c1[None, :] * row_channel, mask1, DTYPE, IS_FACTORED)
    row2 = load_factor(rows + c2[None, :] * row_channel, mask2, DTYPE, IS_FACTORED)
    slope1, slope2 = tl.zeros_like(row1), tl.zeros_like(row1)
    value1, value2 = tl.zeros_like(row1), tl.zeros_like(row1)
    grad_sum = tl.zeros([row1.shape[0], 1], row1.dtype)
    num_whole = num_columns // COLUMN_STEP * COLUMN_STEP
    for start in range(0, num_whole, COLUMN_STEP):
        for offset in tl.static_range(COLUMN_STEP):
            slope1, slope2, value1, value2, grad_sum = _add_gradients(
                row1, row2, slope1, slope2, value1, value2, grad_sum,
                columns + (start + offset) * column_position, column_channel,
                grads + (start + offset) * grad_position, c1, c2, num_channels,
                IS_FACTORED, IS_APPROXIMATE, NEEDS_VECTOR,
            )  # fmt: skip
    for position in range(num_whole, num_columns):
        slope1, slope2, value1, value2, grad_sum = _add_gradients(
            row1, row2, slope1, slope2, value1, value2, grad_sum,
            columns + position * column_position, column_channel,
            grads + position * grad_position, c1, c2, num_channels,
            IS_FACTORED, IS_APPROXIMATE, NEEDS_VECTOR,
        )  # fmt: skip
    return slope1, slope2, value1, value2, grad_sum


@triton.jit
def _gradient_kernel(
    rows, row_batch, row_position, row_channel, row_factors,
    columns, column_batch, column_position, column_channel, column_factors,
    grads, grad_batch, grad_row, grad_column, mask, mask_batch, mask_row, mask_column,
    vector, flags, num_flags, outputs, vector_outputs,
    num_rows, num_columns, num_channels, padded_channels,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, FLAG_BLOCK: tl.constexpr,
    IS_APPROXIMATE: tl.constexpr, NEEDS_VECTOR: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of one side and a part of that of the vector.

    The side is the rows of `grads`: queries, or keys if `grads` is transposed. Threads are channels
    and columns are a loop, so that nothing is summed across threads; it ends at the last column
    that is not masked.
    """
    num_slices = padded_channels // (2 * CHANNELS)
    row_tiles = tl.cdiv(num_rows, ROWS)
    batch = (tl.program_id(0) // (num_slices * row_tiles)).to(tl.int64)
    tile = tl.program_id(0) // num_slices % row_tiles
    row = tile * ROWS + tl.arange(0, ROWS)
    c1 = tl.program_id(0) % num_slices * 2 * CHANNELS + tl.arange(0, CHANNELS)
    c2 = c1 + CHANNELS
    dtype = vector_outputs.dtype.element_ty
    is_row = row < num_rows
    mask1, mask2 = is_row[:, None] & (c1 < num_channels), is_row[:, None] & (c2 < num_channels)
    safe_row = tl.minimum(row, num_rows - 1).to(tl.int64)  # others are not stored
    grads += batch * grad_batch + safe_row * grad_row
    num_seen = num_columns
    if HAS_MASK:
        num_seen = _num_seen_columns(
            mask + batch * mask_batch, mask_row, mask_column, row, is_row, num_columns, 64
        )
    if range_level(flags, batch, num_flags, FLAG_BLOCK) > 1:
        rows += batch * row_batch
        slope1, slope2, value1, value2, grad_sum = _sum_gradients(
            rows + safe_row[:, None] * row_position, row_channel, mask1, mask2,
            columns + batch * column_batch, column_position, column_channel,
            grads, grad_column, num_seen, c1, c2, num_channels,
            dtype, False, IS_APPROXIMATE, NEEDS_VECTOR,
        )  # fmt: skip
    else:
        row_factors += batch * num_rows * padded_channels
        slope1, slope2, value1, value2, grad_sum = _sum_gradients(
            row_factors + safe_row[:, None] * padded_channels, 1, mask1, mask2,
            column_factors + batch * num_columns * padded_channels, padded_channels, 1,
            grads, grad_column, num_seen, c1, c2, num_channels,
            dtype, True, IS_APPROXIMATE, NEEDS_VECTOR,
        )  # fmt: skip
    v1 = tl.load(vector + c1, mask=c1 < num_channels, other=0.0)
    v2 = tl.load(vector + c2, mask=c2 < num_channels, other=0.0)
    outputs += (batch * num_rows + row.to(tl.int64)[:, None]) * num_channels
    tl.store(outputs + c1[None, :], 4.0 * v1 * slope1, mask=mask1)
    tl.store(outputs + c2[None, :], 4.0 * v2 * slope2, mask=mask2)
    if NEEDS_VECTOR:
        vector_outputs += (batch * row_tiles + tile) * num_channels
        total1 = tl.sum(tl.where(mask1, grad_sum - 2.0 * value1, 0.0), axis=0)
        total2 = tl.sum(tl.where(mask2, grad_sum - 2.0 * value2, 0.0), axis=0)
        tl.store(vector_outputs + c1, total1, mask=c1 < num_channels)
        tl.store(vector_outputs + c2, total2, mask=c2 < num_channels)


def padded_exponentials(sides: Sequence[Float[Tensor, "B _ A"]]) -> list[Float[Tensor, "B _ C"]]:
    """Return exp(2x), with channels padded to whole slices of the gradient kernel."""
    num_channels = sides[0].size(2)
    slice_size = 2 * min(tuning.TRITON_GRADIENT_TILE[1], next_power(cdiv(num_channels, 2)))
    padded_channels = cdiv(num_channels, slice_size) * slice_size
    outputs = []
    for side in sides:
        outputs.append(side.new_empty(*side.shape[:2], padded_channels, dtype=wide_dtype(side)))
        write_exponentials(side, outputs[-1], 16)
    return outputs


def score_gradients(
    row_side: tuple[Float[Tensor, "B T A"], Float[Tensor, "B T C"]],
    column_side: tuple[Float[Tensor, "B S A"], Float[Tensor, "B S C"]],
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
    padded_channels = row_factors.size(2)
    num_tiles, num_slices = cdiv(num_rows, tile), padded_channels // (2 * pairs)
    # Wide, since threads would hold fewer rows of narrow outputs.
    outputs = torch.empty_like(rows, dtype=row_factors.dtype, memory_format=torch.contiguous_format)
    parts = row_factors.new_empty(batch_size * num_tiles, num_channels)
    if outputs.numel():
        _gradient_kernel[(batch_size * num_tiles * num_slices,)](
            rows, *rows.stride(), row_factors, columns, *columns.stride(), column_factors,
            grad_scores, *grad_scores.stride(), *with_strides(mask, flags),
            vector.to(parts.dtype).contiguous(), flags, flags.size(1), outputs, parts,
            num_rows, columns.size(1), num_channels, padded_channels, ROWS=tile, CHANNELS=pairs,
            FLAG_BLOCK=next_power(flags.size(1)), IS_APPROXIMATE=has_fast_reciprocal(parts),
            NEEDS_VECTOR=needs_vector, HAS_MASK=mask is not None,
            num_warps=num_warps, enable_fp_fusion=True,
        )  # fmt: skip
    grad_vector = parts.sum(dim=0).to(vector.dtype) if needs_vector else None
    return outputs.to(rows.dtype), grad_vector
