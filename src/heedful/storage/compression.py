"""Compressed weights: half precision, or small integers with a scale for each row.

A weight of two or more dimensions becomes integers and `NAME.scale`: row r is scale[r] times its
integers. Two 4-bit integers share a byte, the first in its low half. Vectors, which are few, and
scales are in half precision; what would overflow it, and integers, stay as they are.
"""

import json
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.shapes import Float, Int, Shaped

Precision = Literal["fp32", "fp16", "int8", "int4"]
METADATA_KEY = "heedful.quantized"
_BITS = {"int8": 8, "int4": 4}
_SCALE = ".scale"
_CLIPPING = torch.linspace(0.6, 1.0, 21)  # of the largest value; 1 loses no range
_MAX_HALF = torch.finfo(torch.float16).max


class CompressedWeights(NamedTuple):
    """Tensors of a safetensors file, and its metadata."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str] | None


def compress_weights(weights: Mapping[str, Tensor], precision: Precision) -> CompressedWeights:
    """Compress a state dict; `decompress_weights` returns it, rounded."""
    if precision == "fp32":
        return CompressedWeights(dict(weights), None)
    tensors: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    for name, weight in weights.items():
        if precision == "fp16" or not weight.is_floating_point() or weight.dim() < 2:
            tensors[name] = _to_half(weight)
            continue
        bits = _BITS[precision]
        rows = weight.detach().float().flatten(1)
        scales = _choose_scales(rows, bits)
        integers = _quantize(rows, scales.float(), bits)
        tensors[name] = _pack(integers) if bits == 4 else integers
        tensors[name + _SCALE] = scales
        shapes[name] = list(weight.shape)
    return CompressedWeights(tensors, {METADATA_KEY: json.dumps(shapes)} if shapes else None)


def num_compressed_bytes(weight: Tensor, precision: Precision) -> int:
    """Return the bytes that `compress_weights` stores for a weight."""
    if precision == "fp32":
        return 4 * weight.numel()
    if precision == "fp16" or weight.dim() < 2:
        return 2 * weight.numel()
    columns = weight[0].numel()
    row = columns if _BITS[precision] == 8 else (columns + 1) // 2
    return len(weight) * (row + 2)


def decompress_weights(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> dict[str, Tensor]:
    """Return the state dict of a file; integers of rows become single precision."""
    shapes: dict[str, list[int]] = json.loads(metadata.get(METADATA_KEY, "{}"))
    weights = {}
    for name, tensor in tensors.items():
        if name in shapes:
            is_packed = tensor.dtype == torch.uint8
            columns = torch.Size(shapes[name][1:]).numel()
            integers = _unpack(tensor, columns) if is_packed else tensor.flatten(1)
            rows = integers * tensors[name + _SCALE].float().unsqueeze(-1)
            weights[name] = rows.view(shapes[name])
        elif name.removesuffix(_SCALE) not in shapes:
            weights[name] = tensor
    return weights


def _to_half(weight: Tensor) -> Tensor:
    fits = weight.is_floating_point() and bool(weight.abs().le(_MAX_HALF).all())
    return weight.to(torch.float16) if fits else weight


def _choose_scales(rows: Float[Tensor, "R C"], bits: int) -> Float[Tensor, "R"]:
    """Return the scale of each row that rounds it with the least squared error.

    With few bits it is better to clip the largest values than to round all others coarsely.
    """
    largest = rows.abs().amax(dim=1) / _max_integer(bits)
    best, errors = largest.half(), torch.full_like(largest, torch.inf)
    for factor in _CLIPPING if bits < 8 else _CLIPPING[-1:]:
        scales = (factor * largest).half()
        rounded = _quantize(rows, scales.float(), bits) * scales.float().unsqueeze(-1)
        new_errors = (rounded - rows).square().sum(dim=1)
        best = torch.where(new_errors < errors, scales, best)
        errors = torch.minimum(new_errors, errors)
    return best


def _quantize(
    rows: Float[Tensor, "R C"], scales: Float[Tensor, "R"], bits: int
) -> Int[Tensor, "R C"]:
    limit = _max_integer(bits)
    divisors = scales.masked_fill(scales == 0, 1.0).unsqueeze(-1)
    return (rows / divisors).round().clamp(-limit, limit).to(torch.int8)


def _max_integer(bits: int) -> int:
    return 2 ** (bits - 1) - 1


def _pack(integers: Int[Tensor, "R C"]) -> Shaped[Tensor, "R P"]:
    padded = torch.nn.functional.pad(integers, (0, integers.size(1) % 2))
    halves = (padded & 0xF).to(torch.uint8)
    return halves[:, ::2] | (halves[:, 1::2] << 4)


def _unpack(packed: Shaped[Tensor, "R P"], num_columns: int) -> Int[Tensor, "R C"]:
    halves = torch.stack([packed & 0xF, packed >> 4], dim=-1).flatten(1)[:, :num_columns]
    return ((halves ^ 8).to(torch.int8)) - 8  # the sign of four bits
