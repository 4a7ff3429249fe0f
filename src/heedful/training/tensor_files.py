"""Tensor files: which bytes are a safetensors file of these tensors, without copying the tensors?

The file is, byte for byte, the one that the safetensors library writes. Given as pieces of memory,
it can be written and hashed at the same time, and an error of the disk arrives as what it is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import torch
from torch import Tensor

from heedful.storage import Piece

# Tensors lie in the order of this table, widest first, so that each is aligned; then by name.
_DTYPES = {
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float32: "F32",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ORDER = {dtype: place for place, dtype in enumerate(_DTYPES)}
_ALIGNMENT = 8


def lay_out(tensors: Mapping[str, Tensor]) -> list[Piece]:
    """The contents of a safetensors file, in order; the pieces are the tensors' own memory."""
    named = sorted(tensors.items(), key=lambda item: (_ORDER[item[1].dtype], item[0]))
    header, pieces, end = dict[str, object](), list[Piece](), 0
    for name, tensor in named:
        pieces.append(_memory(tensor))
        begin, end = end, end + len(pieces[-1])
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return [struct.pack("<Q", len(text)) + text, *pieces]


def _memory(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data
