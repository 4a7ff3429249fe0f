"""Tensor files: which bytes are a safetensors file of these tensors, without copying the tensors?

The file is, byte for byte, the one that the safetensors library writes. Given as pieces of memory,
it can be written and hashed at the same time, and an error of the disk arrives as what it is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from heedful.errors import CorruptRunError, RunError
from heedful.storage.manifest import RESTORE_HINT, Buffer

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
_DTYPE_ORDER = {dtype: place for place, dtype in enumerate(_DTYPES)}
_ALIGNMENT = 8


def serialize_safetensors(tensors: Mapping[str, Tensor]) -> list[Buffer]:
    """The contents of a safetensors file, in order; the pieces are the tensors' own memory."""
    named = sorted(tensors.items(), key=lambda item: (_DTYPE_ORDER[item[1].dtype], item[0]))
    header, pieces, end = dict[str, object](), list[Buffer](), 0
    for name, tensor in named:
        pieces.append(_as_memoryview(tensor))
        begin, end = end, end + len(pieces[-1])
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return [struct.pack("<Q", len(text)) + text, *pieces]


def _as_memoryview(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data


# Weights: a model's parameters in a file, and back into the model they belong to.


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write weights to a file."""
    path.write_bytes(save(dict(weights)))


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the weights of a file into a model, if they are that model's."""
    load_into_model(model, read_weights(path), location=str(path))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights of a file."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise CorruptRunError(str(path), f"not a weights file ({error})", RESTORE_HINT) from None


def load_into_model(model: nn.Module, weights: Mapping[str, Tensor], *, location: str) -> None:
    """Put weights into a model, if they are that model's; `at` says where they come from."""
    if difference := _first_difference(unique_weights(model), weights):
        raise RunError(
            location,
            f"these are the weights of another model: {difference}",
            "put back the weights and the config.yaml that were written together",
        )
    wanted = unique_weights(model)
    parts = {name: shard_like(weight, wanted[name]) for name, weight in weights.items()}
    model.load_state_dict(parts, strict=False)  # weights with two names are stored once


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model, each weight by the first of its names."""
    named = dict[int, tuple[str, Tensor]]()
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor.detach()))
    return dict(named.values())


def is_sharded(tensor: Tensor) -> bool:
    """Whether each of several ranks holds a part of a tensor."""
    return hasattr(tensor, "full_tensor")  # torch's DTensor, which takes a second to import


def shard_like(full_tensor: Tensor, reference: Tensor) -> Tensor:
    """Keep what this rank has of a whole tensor, if it is parted as another is."""
    if not is_sharded(reference):
        return full_tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(reference, DTensor)
    # No rank asks another: all have the whole.
    return distribute_tensor(
        full_tensor.to(reference.device),
        reference.device_mesh,
        reference.placements,
        src_data_rank=None,
    )


def _first_difference(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    for name in sorted({*wanted, *found}):
        if name not in found:
            return f"{name} is missing"
        if name not in wanted:
            return f"{name} has no place in the model"
        sizes = tuple(found[name].shape), tuple(wanted[name].shape)
        if sizes[0] != sizes[1]:
            return f"{name} has shape {sizes[0]}, the model needs {sizes[1]}"
    return ""
