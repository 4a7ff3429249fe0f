"""Additive scores v . tanh(q + k) in Triton: neither pass holds the hidden layer (B, T, S, A).

With E = exp(2x), tanh(q + k) = 1 - 2 / (1 + E_q E_k): the exponentials belong to single vectors,
and only the reciprocal to a pair. Two channels share one reciprocal, since v1/x1 + v2/x2 =
(v1 x2 + v2 x1) / (x1 x2), or four, if no element is beyond `MAX_IN_FOURS`. Rows of the batch with
an element beyond `MAX_FACTORED` are computed from the sum q + k, so that nothing overflows. Sums
are in float32, or float64 for float64 inputs. There are no atomics: the same inputs give the same
bits.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from heedful.acceleration import tuning
from heedful.acceleration.triton.additive_gradients import padded_exponentials, score_gradients
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
from heedful.shapes import Float, Int, Mask, Scores

CHANNEL_STEP = tl.constexpr(8)  # channels per iteration of the loop of scores: four pairs


@triton.jit
def _fraction(queries, padded_queries, keys, padded_keys, vector, channel):
    """Return numerator and denominator of v1/x1 + v2/x2, where x = 1 + E_q E_k, of two channels."""
    q1 = tl.load(queries + channel * padded_queries)[:, None]
    q2 = tl.load(queries + (channel + 1) * padded_queries)[:, None]
    k1 = tl.load(keys + channel * padded_keys)[None, :]
    k2 = tl.load(keys + (channel + 1) * padded_keys)[None, :]
    x1, x2 = denominator(q1, k1, True), denominator(q2, k2, True)
    return tl.load(vector + channel) * x2 + tl.load(vector + channel + 1) * x1, x1 * x2


@triton.jit
def _sum_factored(
    queries, padded_queries, keys, padded_keys, vector, total, padded_channels,
    GROUP: tl.constexpr, IS_APPROXIMATE: tl.constexpr,
):  # fmt: skip
    """Add v / (1 + E_q E_k) of all channels; two or four of them share a reciprocal."""
    for start in range(0, padded_channels, CHANNEL_STEP):
        for offset in tl.static_range(0, CHANNEL_STEP, GROUP):
            c = start + offset
            n, d = _fraction(queries, padded_queries, keys, padded_keys, vector, c)
            if GROUP == 4:
                n2, d2 = _fraction(queries, padded_queries, keys, padded_keys, vector, c + 2)
                n = n * d2 + n2 * d
                d = d * d2
            total += n * reciprocal(d, IS_APPROXIMATE)
    return total


@triton.jit
def _sum_unfactored(
    queries, query_channel, is_query, keys, key_channel, is_key, vector, total, num_channels
):
    """Add v / (1 + exp(2 (q + k))) of all channels."""
    for channel in range(0, num_channels):
        q = load_factor(queries + channel * query_channel, is_query, total.dtype, False)
        k = load_factor(keys + channel * key_channel, is_key, total.dtype, False)
        total += tl.load(vector + channel) / denominator(q[:, None], k[None, :], False)
    return total


@triton.jit
def _score_kernel(
    queries, query_batch, query_position, query_channel,
    keys, key_batch, key_position, key_channel,
    mask, mask_batch, mask_query, mask_key,
    vector, query_factors, key_factors, flags, num_flags, scores,
    num_queries, num_keys, num_channels, padded_queries, padded_keys, padded_channels,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, CHANNEL_BLOCK: tl.constexpr,
    FLAG_BLOCK: tl.constexpr, GROUP: tl.constexpr,
    IS_APPROXIMATE: tl.constexpr, HAS_MASK: tl.constexpr,
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
    query_factors += batch * padded_channels * padded_queries + q
    key_factors += batch * padded_channels * padded_keys + k
    level = range_level(flags, batch, num_flags, FLAG_BLOCK)
    if level > 1:
        total = _sum_unfactored(
            queries + batch * query_batch + q.to(tl.int64) * query_position, query_channel,
            q < num_queries,
            keys + batch * key_batch + k.to(tl.int64) * key_position, key_channel, k < num_keys,
            vector, total, num_unfactored,
        )  # fmt: skip
    elif level > 0:
        total = _sum_factored(
            query_factors, padded_queries, key_factors, padded_keys, vector, total, num_factored,
            2, IS_APPROXIMATE,
        )  # fmt: skip
    else:
        total = _sum_factored(
            query_factors, padded_queries, key_factors, padded_keys, vector, total, num_factored,
            GROUP, IS_APPROXIMATE,
        )  # fmt: skip
    channels = tl.arange(0, CHANNEL_BLOCK)
    v = tl.load(vector + channels, mask=channels < num_channels, other=0.0)
    result = tl.sum(v, axis=0) - 2.0 * total
    rows = scores + (batch * num_queries + q.to(tl.int64)[:, None]) * num_keys
    tl.store(rows + k[None, :], result.to(scores.dtype.element_ty), mask=is_pair)


def triton_additive_score(
    queries: Float[Tensor, "*#B T A"],
    keys: Float[Tensor, "*#B S A"],
    vector: Float[Tensor, "A"],
    mask: Mask | None = None,
) -> Scores:
    """Compute v . tanh(q + k) for each pair; has a first derivative, also computed in Triton.

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
        query_factors = _transposed_exponentials(queries, query_tile, flags, 0)
        key_factors = _transposed_exponentials(keys, key_tile, flags, query_tiles)
        wide_vector = _padded_vector(vector, query_factors.dtype, query_factors.size(1))
        _score_kernel[(batch_size * query_tiles * key_tiles,)](
            queries, *queries.stride(), keys, *keys.stride(), *with_strides(mask, flags),
            wide_vector, query_factors, key_factors, flags, flags.size(1), scores,
            num_queries, num_keys, num_channels,
            query_factors.size(2), key_factors.size(2), key_factors.size(1),
            QUERIES=query_tile, KEYS=key_tile, CHANNEL_BLOCK=next_power(num_channels),
            FLAG_BLOCK=next_power(flags.size(1)), GROUP=tuning.TRITON_CHANNEL_GROUP,
            HAS_MASK=mask is not None, IS_APPROXIMATE=has_fast_reciprocal(query_factors),
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
        factors = padded_exponentials([queries, keys])
        query_side, key_side = (queries, factors[0]), (keys, factors[1])
        if needs_queries or needs_vector:
            grad_queries, grad_vector = score_gradients(
                query_side, key_side, grad_scores, mask, vector, flags, needs_vector=needs_vector
            )
        if needs_keys:
            transposed = None if mask is None else mask.mT
            grad_keys, _ = score_gradients(
                key_side, query_side, grad_scores.mT, transposed, vector, flags, needs_vector=False
            )
        return grad_queries, grad_keys, grad_vector, None


def _transposed_exponentials(
    inputs: Float[Tensor, "B T A"], tile: int, flags: Int[Tensor, "B tiles"], first_flag: int
) -> Float[Tensor, "B C L"]:
    """Return exp(2x) with positions last, padded with ones to whole tiles and channel steps."""
    batch_size, length, num_channels = inputs.shape
    padded_channels = cdiv(num_channels, CHANNEL_STEP.value) * CHANNEL_STEP.value
    shape = batch_size, padded_channels, cdiv(length, tile) * tile
    outputs = inputs.new_empty(shape, dtype=wide_dtype(inputs))
    write_exponentials(inputs, outputs.mT, tile, flags, first_flag)
    return outputs


def _padded_vector(vector: Tensor, dtype: torch.dtype, size: int) -> Tensor:
    return functional.pad(vector.to(dtype), (0, size - len(vector))).contiguous()
