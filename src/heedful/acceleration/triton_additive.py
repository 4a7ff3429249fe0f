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
from heedful.shapes import Float, Int, Scores

# Up to this |q| and |k|, the product of two channels, each 1 + exp(2q) exp(2k), is below 2e38.
MAX_FACTORED = tl.constexpr(11.0)
# tanh differs from 1 by less than the rounding of float64 where exp(2x) is 2**63.
MAX_EXPONENT = tl.constexpr(63.0)
DOUBLED_LOG2_E = tl.constexpr(2.8853900817779268)
CHANNEL_STEP = tl.constexpr(8)  # channels per iteration of the loop of scores: four pairs
KEY_STEP = tl.constexpr(4)  # vectors per iteration of the loop of gradients


@triton.jit
def _reciprocal(x, IS_APPROXIMATE: tl.constexpr):
    if IS_APPROXIMATE:  # one instruction, exact up to one unit in the last place
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505  (Triton compiles what follows a constexpr branch)
        return 1.0 / x


@triton.jit
def _denominator(first, second, IS_FACTORED: tl.constexpr):
    """1 + exp(2 (q + k)), from exponentials or from exponents of 2."""
    if IS_FACTORED:
        return first * second + 1.0
    else:  # noqa: RET505
        exponent = first + second
        return tl.exp2(tl.where(exponent > MAX_EXPONENT, MAX_EXPONENT, exponent)) + 1.0  # keeps NaN


@triton.jit
def _load_factor(pointers, mask, dtype: tl.constexpr, IS_FACTORED: tl.constexpr):
    exponents = tl.load(pointers, mask=mask, other=0.0).to(dtype) * DOUBLED_LOG2_E
    return tl.exp2(exponents) if IS_FACTORED else exponents


@triton.jit
def _exceeds_range(flags, batch, num_flags, FLAG_BLOCK: tl.constexpr):
    offsets = tl.arange(0, FLAG_BLOCK)
    tile_flags = tl.load(flags + batch * num_flags + offsets, mask=offsets < num_flags, other=0)
    return tl.max(tile_flags, axis=0) > 0


@triton.jit
def _exponential_kernel(
    inputs, stride_batch, stride_position, stride_channel, length, num_channels,
    outputs, padded_length, padded_channels, flags, num_flags, first_flag,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Write exp(2x) of one tile of positions as (B, A, T), padded; flag elements out of range."""
    num_tiles = padded_length // POSITIONS
    batch = (tl.program_id(0) // num_tiles).to(tl.int64)
    tile = tl.program_id(0) % num_tiles
    positions = tile * POSITIONS + tl.arange(0, POSITIONS)[:, None]
    is_beyond = tl.zeros([POSITIONS, CHANNELS], tl.int32)
    rows = inputs + batch * stride_batch + positions.to(tl.int64) * stride_position
    for start in range(0, padded_channels, CHANNELS):
        channels = start + tl.arange(0, CHANNELS)[None, :]
        mask = (positions < length) & (channels < num_channels)
        x = tl.load(rows + channels * stride_channel, mask=mask, other=0.0)
        x = x.to(outputs.dtype.element_ty)
        is_beyond = tl.maximum(is_beyond, (tl.abs(x) > MAX_FACTORED).to(tl.int32))
        columns = outputs + (batch * padded_channels + channels) * padded_length
        tl.store(columns + positions, tl.exp2(x * DOUBLED_LOG2_E), mask=channels < padded_channels)
    flag = tl.max(tl.max(is_beyond, axis=1), axis=0)
    tl.store(flags + batch * num_flags + first_flag + tile, flag)


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
            x1 = _denominator(q1, k1, True)
            x2 = _denominator(q2, k2, True)
            numerator = v1.to(total.dtype) * x2 + v2.to(total.dtype) * x1
            total += numerator * _reciprocal(x1 * x2, IS_APPROXIMATE)
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
        total += v / _denominator(q[:, None], k[None, :], False)
    return total


@triton.jit
def _score_kernel(
    queries, query_batch, query_position, query_channel,
    keys, key_batch, key_position, key_channel,
    vector, vector_stride, query_factors, key_factors, flags, num_flags, scores,
    num_queries, num_keys, num_channels, padded_queries, padded_keys, padded_channels,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, CHANNEL_BLOCK: tl.constexpr,
    FLAG_BLOCK: tl.constexpr, IS_APPROXIMATE: tl.constexpr,
):  # fmt: skip
    """Write one tile of scores; channels are a loop, so that nothing is summed across threads."""
    key_tiles = padded_keys // KEYS
    num_tiles = padded_queries // QUERIES * key_tiles
    batch = (tl.program_id(0) // num_tiles).to(tl.int64)
    tile = tl.program_id(0) % num_tiles
    q = tile // key_tiles * QUERIES + tl.arange(0, QUERIES)
    k = tile % key_tiles * KEYS + tl.arange(0, KEYS)
    dtype = query_factors.dtype.element_ty
    total = tl.zeros([QUERIES, KEYS], dtype)
    if _exceeds_range(flags, batch, num_flags, FLAG_BLOCK):
        total = _sum_unfactored(
            queries + batch * query_batch + q.to(tl.int64) * query_position, query_channel,
            q < num_queries,
            keys + batch * key_batch + k.to(tl.int64) * key_position, key_channel, k < num_keys,
            vector, vector_stride, total, num_channels,
        )  # fmt: skip
    else:
        total = _sum_factored(
            query_factors + batch * padded_channels * padded_queries + q, padded_queries,
            key_factors + batch * padded_channels * padded_keys + k, padded_keys,
            vector, vector_stride, total, num_channels, padded_channels, IS_APPROXIMATE,
        )  # fmt: skip
    channels = tl.arange(0, CHANNEL_BLOCK)
    v = tl.load(vector + channels * vector_stride, mask=channels < num_channels, other=0.0)
    result = tl.sum(v.to(dtype), axis=0) - 2.0 * total
    rows = scores + (batch * num_queries + q.to(tl.int64)[:, None]) * num_keys
    mask = (q[:, None] < num_queries) & (k[None, :] < num_keys)
    tl.store(rows + k[None, :], result.to(scores.dtype.element_ty), mask=mask)


@triton.jit
def _sum_gradients(
    row1, row2, columns, column_position, column_channel, grads, grad_position, is_row,
    num_columns, num_channels, c1, c2,
    IS_FACTORED: tl.constexpr, IS_APPROXIMATE: tl.constexpr, NEEDS_VECTOR: tl.constexpr,
):  # fmt: skip
    """Sum g r (1 - r) and g (1 - 2r) over columns for two blocks of channels; r = 1 / (1 + E)."""
    dtype = row1.dtype
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
            x1 = _denominator(row1, column1[None, :], IS_FACTORED)
            x2 = _denominator(row2, column2[None, :], IS_FACTORED)
            reciprocal = _reciprocal(x1 * x2, IS_APPROXIMATE)
            r1, r2 = x2 * reciprocal, x1 * reciprocal
            slope1 += grad * (r1 - r1 * r1)
            slope2 += grad * (r2 - r2 * r2)
            if NEEDS_VECTOR:
                value1 += grad * (1.0 - 2.0 * r1)
                value2 += grad * (1.0 - 2.0 * r2)
    return slope1, slope2, value1, value2


@triton.jit
def _gradient_kernel(
    rows, row_batch, row_position, row_channel,
    columns, column_batch, column_position, column_channel,
    grads, grad_batch, grad_row, grad_column,
    vector, vector_stride, flags, num_flags, outputs, vector_outputs,
    num_rows, num_columns, num_channels,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, FLAG_BLOCK: tl.constexpr,
    IS_APPROXIMATE: tl.constexpr, NEEDS_VECTOR: tl.constexpr,
):  # fmt: skip
    """Write the gradient of one side and a part of that of the vector.

    The side is the rows of `grads`: queries, or keys if `grads` is transposed. Threads are channels
    and columns are a loop, so that nothing is summed across threads.
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
    row_pointers = rows + batch * row_batch + row.to(tl.int64)[:, None] * row_position
    columns += batch * column_batch
    grads += batch * grad_batch + row.to(tl.int64) * grad_row
    if _exceeds_range(flags, batch, num_flags, FLAG_BLOCK):
        row1 = _load_factor(row_pointers + c1[None, :] * row_channel, mask1, dtype, False)
        row2 = _load_factor(row_pointers + c2[None, :] * row_channel, mask2, dtype, False)
        slope1, slope2, value1, value2 = _sum_gradients(
            row1, row2, columns, column_position, column_channel, grads, grad_column, is_row,
            num_columns, num_channels, c1, c2, False, IS_APPROXIMATE, NEEDS_VECTOR,
        )  # fmt: skip
    else:
        row1 = _load_factor(row_pointers + c1[None, :] * row_channel, mask1, dtype, True)
        row2 = _load_factor(row_pointers + c2[None, :] * row_channel, mask2, dtype, True)
        slope1, slope2, value1, value2 = _sum_gradients(
            row1, row2, columns, column_position, column_channel, grads, grad_column, is_row,
            num_columns, num_channels, c1, c2, True, IS_APPROXIMATE, NEEDS_VECTOR,
        )  # fmt: skip
    v1 = tl.load(vector + c1 * vector_stride, mask=c1 < num_channels, other=0.0).to(dtype)
    v2 = tl.load(vector + c2 * vector_stride, mask=c2 < num_channels, other=0.0).to(dtype)
    outputs += (batch * num_rows + row.to(tl.int64)[:, None]) * num_channels
    tl.store(outputs + c1[None, :], 4.0 * v1 * slope1, mask=mask1)
    tl.store(outputs + c2[None, :], 4.0 * v2 * slope2, mask=mask2)
    if NEEDS_VECTOR:
        vector_outputs += (batch * row_tiles + tile) * num_channels
        tl.store(vector_outputs + c1, tl.sum(value1, axis=0), mask=c1 < num_channels)
        tl.store(vector_outputs + c2, tl.sum(value2, axis=0), mask=c2 < num_channels)


def triton_additive_score(
    queries: Float[Tensor, "*#B T A"], keys: Float[Tensor, "*#B S A"], vector: Float[Tensor, "A"]
) -> Scores:
    """Compute v . tanh(q + k) for each pair; has a first derivative, computed in Triton too."""
    leading = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    # No leading dimension counts as one row.
    rows = [part.expand(*leading, -1, -1).unsqueeze(0).flatten(0, -3) for part in (queries, keys)]
    scores: Tensor = _TritonAdditiveScore.apply(*rows, vector)
    return scores.view(*leading, queries.size(-2), keys.size(-2))


class _TritonAdditiveScore(torch.autograd.Function):
    """v . tanh(q + k); saves its inputs and a few flags for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Float[Tensor, "B T A"],
        keys: Float[Tensor, "B S A"],
        vector: Float[Tensor, "A"],
    ) -> Scores:
        query_tile, key_tile, num_warps = tuning.TRITON_SCORE_TILE
        batch_size, num_queries, num_channels = queries.shape
        num_keys = keys.size(1)
        dtype = torch.promote_types(queries.dtype, keys.dtype)
        scores = queries.new_empty(batch_size, num_queries, num_keys, dtype=dtype)
        query_tiles, key_tiles = _cdiv(num_queries, query_tile), _cdiv(num_keys, key_tile)
        flags = queries.new_empty(batch_size, query_tiles + key_tiles, dtype=torch.int32)
        ctx.save_for_backward(queries, keys, vector, flags)
        if scores.numel() == 0:
            return scores
        query_factors = _exponentials(queries, flags, 0, query_tile)
        key_factors = _exponentials(keys, flags, query_tiles, key_tile)
        _score_kernel[(batch_size * query_tiles * key_tiles,)](
            queries, *queries.stride(), keys, *keys.stride(), vector, vector.stride(0),
            query_factors, key_factors, flags, flags.size(1), scores,
            num_queries, num_keys, num_channels,
            query_factors.size(2), key_factors.size(2), key_factors.size(1),
            QUERIES=query_tile, KEYS=key_tile, CHANNEL_BLOCK=_next_power(num_channels),
            FLAG_BLOCK=_next_power(flags.size(1)),
            IS_APPROXIMATE=_has_fast_reciprocal(query_factors),
            num_warps=num_warps, enable_fp_fusion=True,
        )  # fmt: skip
        return scores

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_scores: Scores
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """With h_ts = tanh(q_t + k_s) and g the gradient of the scores.

        dq_t = v sum_s g_ts (1 - h_ts^2),  dk_s = v sum_t g_ts (1 - h_ts^2),  dv = sum_ts g_ts h_ts
        """
        queries, keys, vector, flags = ctx.saved_tensors
        needs_queries, needs_keys, needs_vector = ctx.needs_input_grad
        grad_queries = grad_keys = grad_vector = None
        if needs_queries or needs_vector:
            grad_queries, grad_vector = _gradients(
                queries, keys, grad_scores, vector, flags, needs_vector=needs_vector
            )
        if needs_keys:
            grad_keys, _ = _gradients(
                keys, queries, grad_scores.mT, vector, flags, needs_vector=False
            )
        return grad_queries, grad_keys, grad_vector


def _exponentials(
    inputs: Float[Tensor, "B T A"], flags: Int[Tensor, "B tiles"], first_flag: int, tile: int
) -> Float[Tensor, "B C L"]:
    """Return exp(2x) with positions last, padded with ones to whole tiles and channel steps."""
    batch_size, length, num_channels = inputs.shape
    num_tiles = _cdiv(length, tile)
    padded_channels = _cdiv(num_channels, CHANNEL_STEP.value) * CHANNEL_STEP.value
    shape = batch_size, padded_channels, num_tiles * tile
    outputs = inputs.new_empty(shape, dtype=_wide(inputs))
    _exponential_kernel[(batch_size * num_tiles,)](
        inputs, *inputs.stride(), length, num_channels, outputs, shape[2], padded_channels,
        flags, flags.size(1), first_flag, POSITIONS=tile, CHANNELS=64, enable_fp_fusion=True,
    )  # fmt: skip
    return outputs


def _gradients(
    rows: Float[Tensor, "B T A"],
    columns: Float[Tensor, "B S A"],
    grad_scores: Scores,
    vector: Float[Tensor, "A"],
    flags: Int[Tensor, "B tiles"],
    *,
    needs_vector: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of one side and, if needed, of the vector."""
    tile, max_pairs, num_warps = tuning.TRITON_GRADIENT_TILE
    batch_size, num_rows, num_channels = rows.shape
    pairs = min(max_pairs, _next_power(_cdiv(num_channels, 2)))
    num_tiles, num_slices = _cdiv(num_rows, tile), _cdiv(num_channels, 2 * pairs)
    outputs = torch.empty_like(rows, memory_format=torch.contiguous_format)
    parts = rows.new_empty(batch_size * num_tiles, num_channels, dtype=_wide(rows))
    if outputs.numel():
        _gradient_kernel[(batch_size * num_tiles * num_slices,)](
            rows, *rows.stride(), columns, *columns.stride(), grad_scores, *grad_scores.stride(),
            vector, vector.stride(0), flags, flags.size(1), outputs, parts,
            num_rows, columns.size(1), num_channels, ROWS=tile, CHANNELS=pairs,
            FLAG_BLOCK=_next_power(flags.size(1)), IS_APPROXIMATE=_has_fast_reciprocal(parts),
            NEEDS_VECTOR=needs_vector, num_warps=num_warps, enable_fp_fusion=True,
        )  # fmt: skip
    return outputs, parts.sum(dim=0).to(vector.dtype) if needs_vector else None


def _has_fast_reciprocal(sums: Tensor) -> bool:
    return sums.is_cuda and torch.version.cuda is not None and sums.dtype == torch.float32


def _wide(inputs: Tensor) -> torch.dtype:
    return torch.promote_types(inputs.dtype, torch.float32)


def _cdiv(count: int, size: int) -> int:
    return -(-count // size)


def _next_power(count: int) -> int:
    """Return the smallest power of 2 that is no less; Triton's blocks have such sizes."""
    return 1 << max(0, count - 1).bit_length()
