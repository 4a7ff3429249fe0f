"""Shared functions of Triton kernels of additive attention: tanh by exponentials, block sizes.

tanh(x) = 1 - 2 / (1 + exp(2x)), and two channels share one reciprocal: v1/x1 + v2/x2 =
(v1 x2 + v2 x1) / (x1 x2). Imported only where there is Triton; `TRITON_INTERPRET=1`, set before
that, runs all kernels on a CPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.shapes import Float, Int

# Up to this |q| and |k|, the product of two channels, each 1 + exp(2q) exp(2k), is below 2e38.
MAX_FACTORED = tl.constexpr(11.0)
MAX_IN_FOURS = tl.constexpr(5.5)  # the same for the product of four channels
# tanh differs from 1 by less than the rounding of float64 where exp(2x) is 2**63.
MAX_EXPONENT = tl.constexpr(63.0)
DOUBLED_LOG2_E = tl.constexpr(2.8853900817779268)


@triton.jit
def reciprocal(x, IS_APPROXIMATE: tl.constexpr):
    """1 / x, which is never 0 here."""
    if IS_APPROXIMATE:  # one instruction, exact up to one unit in the last place
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505  (Triton compiles what follows a constexpr branch)
        return 1.0 / x


@triton.jit
def denominator(first, second, IS_FACTORED: tl.constexpr):
    """1 + exp(2 (q + k)), from exponentials or from exponents of 2."""
    if IS_FACTORED:
        return first * second + 1.0
    else:  # noqa: RET505
        exponent = first + second
        return tl.exp2(tl.where(exponent > MAX_EXPONENT, MAX_EXPONENT, exponent)) + 1.0  # keeps NaN


@triton.jit
def load_factor(pointers, mask, dtype: tl.constexpr, IS_FACTORED: tl.constexpr):
    """Load exponentials, which are padded, or exponents of 2."""
    if IS_FACTORED:
        return tl.load(pointers)
    else:  # noqa: RET505
        return tl.load(pointers, mask=mask, other=0.0).to(dtype) * DOUBLED_LOG2_E


@triton.jit
def range_level(flags, batch, num_flags, FLAG_BLOCK: tl.constexpr):
    """Return the largest flag of a row of the batch: 0, 1 or 2."""
    offsets = tl.arange(0, FLAG_BLOCK)
    tile_flags = tl.load(flags + batch * num_flags + offsets, mask=offsets < num_flags, other=0)
    return tl.max(tile_flags, axis=0)


@triton.jit
def _exponential_kernel(
    inputs, stride_batch, stride_position, stride_channel, length, num_channels,
    outputs, output_batch, output_position, output_channel, padded_length, padded_channels,
    flags, num_flags, first_flag,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, HAS_FLAGS: tl.constexpr,
):  # fmt: skip
    """Write exp(2x) of one tile of positions, 1 in padding; flag elements out of two ranges."""
    num_tiles = tl.cdiv(padded_length, POSITIONS)
    batch = (tl.program_id(0) // num_tiles).to(tl.int64)
    tile = tl.program_id(0) % num_tiles
    positions = tile * POSITIONS + tl.arange(0, POSITIONS)[:, None]
    max_level = tl.zeros([POSITIONS, CHANNELS], tl.int32)
    rows = inputs + batch * stride_batch + positions.to(tl.int64) * stride_position
    output_rows = outputs + batch * output_batch + positions.to(tl.int64) * output_position
    for start in range(0, padded_channels, CHANNELS):
        channels = start + tl.arange(0, CHANNELS)[None, :]
        mask = (positions < length) & (channels < num_channels)
        x = tl.load(rows + channels.to(tl.int64) * stride_channel, mask=mask, other=0.0)
        x = x.to(outputs.dtype.element_ty)
        level = (tl.abs(x) > MAX_IN_FOURS).to(tl.int32) + (tl.abs(x) > MAX_FACTORED).to(tl.int32)
        max_level = tl.maximum(max_level, level)
        padded_mask = (positions < padded_length) & (channels < padded_channels)
        columns = output_rows + channels.to(tl.int64) * output_channel
        tl.store(columns, tl.exp2(x * DOUBLED_LOG2_E), mask=padded_mask)
    if HAS_FLAGS:
        flag = tl.max(tl.max(max_level, axis=1), axis=0)
        tl.store(flags + batch * num_flags + first_flag + tile, flag)


def write_exponentials(
    inputs: Float[Tensor, "B T A"],
    outputs: Float[Tensor, "B L C"],
    tile: int,
    flags: Int[Tensor, "B tiles"] | None = None,
    first_flag: int = 0,
) -> None:
    """Write exp(2x), 1 in padding, and for each tile how many of both limits are exceeded."""
    if outputs.numel():
        _exponential_kernel[(len(inputs) * cdiv(outputs.size(1), tile),)](
            inputs, *inputs.stride(), *inputs.shape[1:],
            outputs, *outputs.stride(), *outputs.shape[1:],
            outputs if flags is None else flags, 0 if flags is None else flags.size(1), first_flag,
            POSITIONS=tile, CHANNELS=64, HAS_FLAGS=flags is not None, enable_fp_fusion=True,
        )  # fmt: skip


def has_fast_reciprocal(sums: Tensor) -> bool:
    """Whether the instruction of `reciprocal` exists for these sums."""
    return sums.is_cuda and torch.version.cuda is not None and sums.dtype == torch.float32


def wide_dtype(inputs: Tensor) -> torch.dtype:
    """Return the dtype of sums: float32, or float64 for float64 inputs."""
    return torch.promote_types(inputs.dtype, torch.float32)


def cdiv(count: int, size: int) -> int:
    """Divide and round up."""
    return -(-count // size)


def next_power(count: int) -> int:
    """Return the smallest power of 2 that is no less; Triton's blocks have such sizes."""
    return 1 << max(0, count - 1).bit_length()


def with_strides(mask: Tensor | None, unused: Tensor) -> tuple[Any, ...]:
    """Return the arguments of a mask, which may be missing."""
    return (unused, 0, 0, 0) if mask is None else (mask, *mask.stride())
