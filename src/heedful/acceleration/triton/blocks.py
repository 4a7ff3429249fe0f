"""Blocks of queries and keys: what kernels of attention read, write and compute.

Imported only where there is Triton; `TRITON_INTERPRET=1` runs it on a CPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.acceleration import tuning
from heedful.acceleration.triton.layer_norm import dropout_scale
from heedful.shapes import Float

LOG2_E = tl.constexpr(1.4426950408889634)
# Arguments that differ between batches: a kernel is compiled once for all their values.
LENGTHS = ("num_queries", "num_keys", "mask_batch", "mask_head", "mask_query")


@triton.jit
def load_block(
    pointer, stride_position, stride_channel, positions, length, size, CHANNELS: tl.constexpr
):
    """Return the vectors at some positions, zeros behind the end."""
    channels = tl.arange(0, CHANNELS)
    mask = (positions < length)[:, None] & (channels < size)[None, :]
    offsets = positions[:, None] * stride_position + channels[None, :] * stride_channel
    return tl.load(pointer + offsets, mask=mask, other=0.0)


@triton.jit
def store_block(
    pointer, stride_position, stride_channel, positions, length, size, values,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    """Write vectors at some positions."""
    channels = tl.arange(0, CHANNELS)
    mask = (positions < length)[:, None] & (channels < size)[None, :]
    offsets = positions[:, None] * stride_position + channels[None, :] * stride_channel
    tl.store(pointer + offsets, values.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def load_mask(mask, mask_query, mask_key, queries, num_queries, keys, num_keys):
    """Return which keys each query sees."""
    offsets = queries[:, None].to(tl.int64) * mask_query + keys[None, :] * mask_key
    is_inside = (queries < num_queries)[:, None] & (keys < num_keys)[None, :]
    return tl.load(mask + offsets, mask=is_inside, other=0) != 0


@triton.jit
def finite(maximum):
    """Return the shift of exponents: 0 where nothing is visible."""
    return tl.where(maximum == -float("inf"), 0.0, maximum)


@triton.jit
def weight_dropout(seed, row, queries, num_queries, keys, num_keys, p):
    """Return the dropout factors of the weights of a row, the same in both directions."""
    indices = (row * num_queries + queries)[:, None] * num_keys + keys[None, :]
    return dropout_scale(seed, indices, p)


@triton.jit
def weight_gradients(
    weights, v, grad, seed, row, queries, num_queries, keys, num_keys, p,
    HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return d w and the gradient g = d (dy v) of the weights w, with dropout factors d."""
    grad_weights = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
    dropped = weights
    if HAS_DROPOUT:
        factors = weight_dropout(seed, row, queries, num_queries, keys, num_keys, p)
        dropped = weights * factors
        grad_weights *= factors
    return dropped, grad_weights


def attention_options(
    queries: Tensor, keys: Tensor, values: Tensor, dropout: float
) -> dict[str, Any]:
    """Return the constants of the kernels of attention."""
    is_whole = keys.size(2) <= tuning.MAX_TRITON_KEYS
    short_tile = tuning.TRITON_ATTENTION_QUERIES, tuning.MAX_TRITON_KEYS
    max_tile = short_tile if is_whole else tuning.TRITON_LONG_TILE
    # Few sizes, as each is compiled.
    smallest = 16 if queries.size(2) == 1 else tuning.MIN_ATTENTION_BLOCK
    num_queries = min(max_tile[0], _block_size(queries.size(2), smallest))
    num_keys = min(max_tile[1], _block_size(keys.size(2), tuning.MIN_ATTENTION_BLOCK))
    num_scores = tuning.TRITON_ATTENTION_SCORES
    is_exact = queries.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    return {
        "QUERIES": num_queries,
        "KEYS": num_keys,
        "KEY_CHANNELS": _block_size(keys.size(3)),
        "VALUE_CHANNELS": _block_size(values.size(3)),
        "HAS_DROPOUT": dropout > 0,
        "PRECISION": "ieee" if is_exact else "tf32",
        "IS_WHOLE": is_whole,
        "num_warps": max(1, min(tuning.MAX_ATTENTION_WARPS, num_queries * num_keys // num_scores)),
    }


def _block_size(size: int, minimum: int = 16) -> int:
    """Return the smallest power of 2 that is no less; tensor cores need 16."""
    return max(minimum, 1 << (size - 1).bit_length())


def empty_heads(like: Float[Tensor, "B H T K"], size: int) -> Float[Tensor, "B H T V"]:
    """Return an uninitialized view of (B, T, H, V)."""
    batch_size, num_heads, length, _ = like.shape
    return like.new_empty(batch_size, length, num_heads, size).transpose(1, 2)


def with_strides(*tensors: Tensor) -> list[Any]:
    """Return each tensor with its strides behind it."""
    return [part for tensor in tensors for part in (tensor, *tensor.stride())]
