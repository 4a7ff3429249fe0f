"""Kernels of one decoding step of Transformer layers, in Triton.

`attend_to_cache` appends a key and a value and attends to the cache, `attend_to_memory` attends to
the source, `add_and_normalize` is a residual connection with its norm. Sums are in float32.
Imported only where there is Triton; `TRITON_INTERPRET=1` runs it on a CPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from heedful.acceleration import tuning
from heedful.acceleration.triton.blocks import finite
from heedful.shapes import Bool, Float, Int

RowVectors = Float[Tensor, "R D"]


@triton.jit
def _normalize_weights(weights, length, maximum, divisor, POSITIONS: tl.constexpr):
    """Turn the stored scores of a program into weights."""
    for start in range(0, length, POSITIONS):
        positions = start + tl.arange(0, POSITIONS)
        scores = tl.load(weights + positions, mask=positions < length, other=0.0)
        tl.store(weights + positions, tl.exp(scores - maximum) / divisor, mask=positions < length)


@triton.jit
def _update_softmax(scores, maximum, total):
    """Add a block of scores to a running softmax (Milakov and Gimelshein 2018).

    Return maximum and total with them, their exponentials, and the factor of all sums so far.
    """
    new_maximum = tl.maximum(maximum, tl.max(scores, axis=0))
    exponentials = tl.exp(scores - finite(new_maximum))
    decay = tl.exp(maximum - finite(new_maximum))
    return new_maximum, total * decay + tl.sum(exponentials, axis=0), exponentials, decay


# Few kernels for all lengths.
@triton.jit(do_not_specialize=["length", "rows_stride", "mask_stride"])
def _attention_kernel(
    queries, query_stride, keys, values, row_stride, head_stride, rows, rows_stride,
    mask, mask_stride, contexts, weights, length, scale,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, POSITIONS: tl.constexpr,
    IS_CACHE: tl.constexpr, HAS_ROWS: tl.constexpr, NEEDS_WEIGHTS: tl.constexpr,
):  # fmt: skip
    """Attend from one row with one head, block by block with a running softmax.

    With `IS_CACHE`, a row of `queries` also has a key and a value, which are appended; `rows` are
    then those of each position of the cache, otherwise that of the memory.
    """
    row = (tl.program_id(0) // NUM_HEADS).to(tl.int64)
    head = tl.program_id(0) % NUM_HEADS
    dims = tl.arange(0, DIMS)
    is_dim = dims < HEAD_DIM
    queries += row * query_stride + head * HEAD_DIM + dims
    query = tl.load(queries, mask=is_dim, other=0.0).to(tl.float32) * scale
    first_row = row
    if IS_CACHE:
        key = tl.load(queries + NUM_HEADS * HEAD_DIM, mask=is_dim, other=0.0)
        value = tl.load(queries + 2 * NUM_HEADS * HEAD_DIM, mask=is_dim, other=0.0)
        end = row * row_stride + head * head_stride + length * HEAD_DIM + dims
        tl.store(keys + end, key, mask=is_dim)
        tl.store(values + end, value, mask=is_dim)
        maximum = tl.sum(query * key.to(tl.float32), axis=0)
        total = tl.full([], 1.0, tl.float32)
        context = value.to(tl.float32)
    else:
        maximum = tl.full([], -float("inf"), tl.float32)
        total = tl.full([], 0.0, tl.float32)
        context = tl.zeros([DIMS], tl.float32)
        first_row = tl.load(rows + row * rows_stride).to(tl.int64)
    weights += tl.program_id(0).to(tl.int64) * length
    for start in range(0, length, POSITIONS):
        positions = start + tl.arange(0, POSITIONS)
        is_visible = positions < length
        key_rows = first_row + tl.zeros([POSITIONS], tl.int64)
        if IS_CACHE and HAS_ROWS:
            pointers = rows + row * rows_stride + positions
            key_rows = tl.load(pointers, mask=is_visible, other=0).to(tl.int64)
        if not IS_CACHE:
            pointers = mask + first_row * mask_stride + positions
            is_visible = tl.load(pointers, mask=is_visible, other=0) != 0
        offsets = key_rows * row_stride + head * head_stride + positions * HEAD_DIM
        offsets = offsets[:, None] + dims[None, :]
        tile = is_visible[:, None] & is_dim[None, :]
        block = tl.load(keys + offsets, mask=tile, other=0.0).to(tl.float32)
        scores = tl.where(is_visible, tl.sum(block * query[None, :], axis=1), -float("inf"))
        if NEEDS_WEIGHTS:
            tl.store(weights + positions, scores, mask=positions < length)
        maximum, total, exponentials, decay = _update_softmax(scores, maximum, total)
        block = tl.load(values + offsets, mask=tile, other=0.0).to(tl.float32)
        context = context * decay + tl.sum(block * exponentials[:, None], axis=0)
    divisor = tl.where(total == 0.0, 1.0, total)  # where nothing is visible, all is zero
    tl.store(contexts + tl.program_id(0) * HEAD_DIM + dims, context / divisor, mask=is_dim)
    if NEEDS_WEIGHTS:
        _normalize_weights(weights, length, finite(maximum), divisor, POSITIONS)


@triton.jit
def _norm_kernel(
    inputs, updates, sums, outputs, scale, bias, size, eps,
    SIZE: tl.constexpr, HAS_UPDATES: tl.constexpr, HAS_BIAS: tl.constexpr, IS_RMS: tl.constexpr,
):  # fmt: skip
    """Write the sum of two vectors, and its LayerNorm or RMSNorm."""
    dims = tl.arange(0, SIZE)
    is_dim = dims < size
    offsets = tl.program_id(0).to(tl.int64) * size + dims
    x = tl.load(inputs + offsets, mask=is_dim, other=0.0).to(tl.float32)
    if HAS_UPDATES:
        x += tl.load(updates + offsets, mask=is_dim, other=0.0).to(tl.float32)
        tl.store(sums + offsets, x, mask=is_dim)
    if not IS_RMS:
        x = tl.where(is_dim, x - tl.sum(x, axis=0) / size, 0.0)
    variance = tl.sum(x * x, axis=0) / size
    x = x * tl.rsqrt(variance + eps) * tl.load(scale + dims, mask=is_dim, other=0.0).to(tl.float32)
    if HAS_BIAS:
        x += tl.load(bias + dims, mask=is_dim, other=0.0).to(tl.float32)
    tl.store(outputs + offsets, x, mask=is_dim)


def attend_to_cache(
    projected: Float[Tensor, "R N"],
    keys: Float[Tensor, "N H C D"],
    values: Float[Tensor, "N H C D"],
    rows: Int[Tensor, "R P"] | None,
    num_cached: int,
    scale: float,
) -> Float[Tensor, "R M"]:
    """Append a key and a value to each row of a cache, and attend to it.

    `projected` are the queries, keys and values of the new position. `rows` are those in which the
    cached positions of each hypothesis are stored; its own without.
    """
    num_heads, head_dim = keys.size(1), keys.size(3)
    contexts = projected.new_empty(len(projected), num_heads * head_dim)
    positions, num_warps = tuning.TRITON_DECODING_TILE
    _attention_kernel[(len(projected) * num_heads,)](
        projected, projected.stride(0), keys, values, keys.stride(0), keys.stride(1),
        keys if rows is None else rows, 0 if rows is None else rows.stride(0), keys, 0,
        contexts, contexts, num_cached, scale,
        NUM_HEADS=num_heads, HEAD_DIM=head_dim, DIMS=triton.next_power_of_2(head_dim),
        POSITIONS=positions, IS_CACHE=True, HAS_ROWS=rows is not None, NEEDS_WEIGHTS=False,
        num_warps=num_warps,
    )  # fmt: skip
    return contexts


def attend_to_memory(
    queries: RowVectors,
    keys: Float[Tensor, "M H S D"],
    values: Float[Tensor, "M H S D"],
    mask: Bool[Tensor, "M S"],
    rows: Int[Tensor, "R"],
    scale: float,
    *,
    need_weights: bool = False,
) -> tuple[Float[Tensor, "R M"], Float[Tensor, "R H S"] | None]:
    """Attend from each row to the memory in this row; return contexts, and weights if needed."""
    num_heads, length, head_dim = keys.shape[1:]
    contexts = torch.empty_like(queries)
    weights = None
    if need_weights:
        weights = queries.new_empty(len(queries), num_heads, length, dtype=torch.float32)
    positions, num_warps = tuning.TRITON_DECODING_TILE
    _attention_kernel[(len(queries) * num_heads,)](
        queries, queries.stride(0), keys, values, keys.stride(0), keys.stride(1),
        rows, rows.stride(0), mask, mask.stride(0), contexts,
        contexts if weights is None else weights, length, scale,
        NUM_HEADS=num_heads, HEAD_DIM=head_dim, DIMS=triton.next_power_of_2(head_dim),
        POSITIONS=positions, IS_CACHE=False, HAS_ROWS=True, NEEDS_WEIGHTS=need_weights,
        num_warps=num_warps,
    )  # fmt: skip
    return contexts, weights


def add_and_normalize(
    inputs: RowVectors, updates: RowVectors | None, norm: nn.LayerNorm | nn.RMSNorm
) -> tuple[RowVectors, RowVectors]:
    """Return inputs + updates and its norm."""
    outputs = torch.empty_like(inputs)
    sums = inputs if updates is None else torch.empty_like(inputs)
    eps = torch.finfo(inputs.dtype).eps if norm.eps is None else norm.eps
    bias, size = getattr(norm, "bias", None), inputs.size(1)
    _norm_kernel[(len(inputs),)](
        inputs, inputs if updates is None else updates, sums, outputs, norm.weight,
        norm.weight if bias is None else bias, size, eps, SIZE=triton.next_power_of_2(size),
        HAS_UPDATES=updates is not None, HAS_BIAS=bias is not None,
        IS_RMS=isinstance(norm, nn.RMSNorm), num_warps=4,
    )  # fmt: skip
    return sums, outputs
