"""State dicts in safetensors files: written without copies, loaded with checks.

Invariant: a file equals, byte for byte, the one that the safetensors library writes. As a list of
buffers it can be written and hashed at the same time, and errors of the disk arrive as such.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from heedful.errors import CorruptRunError, HeedfulError, RunError, check
from heedful.storage.compression import decompress_weights
from heedful.storage.manifest import RESTORE_HINT, Buffer

# Tensors are ordered by this table, widest first, so that each is aligned; then by name.
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
_DTYPE_ORDER = {dtype: index for index, dtype in enumerate(_DTYPES)}
_ALIGNMENT = 8


def serialize_safetensors(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> list[Buffer]:
    """Return the buffers of a safetensors file, in order; tensors are not copied."""
    named = sorted(tensors.items(), key=lambda item: (_DTYPE_ORDER[item[1].dtype], item[0]))
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    buffers: list[Buffer] = []
    end = 0
    for name, tensor in named:
        flat = tensor.detach().cpu().contiguous().view(-1)
        buffers.append(flat.view(torch.uint8).numpy().data)
        start, end = end, end + len(buffers[-1])
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return [struct.pack("<Q", len(text)) + text, *buffers]


def save_weights(
    weights: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a state dict to a file, whose mode follows the umask."""
    with path.open("wb") as file:
        file.writelines(serialize_safetensors(weights, metadata))


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a file into a model; raise RunError if names or shapes differ."""
    load_into_model(model, read_weights(path), location=str(path))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a state dict from a file, compressed or not."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata()
            return decompress_weights(tensors, metadata) if metadata else tensors
    except SafetensorError as error:
        raise CorruptRunError(str(path), f"not a weights file ({error})", RESTORE_HINT) from None


def load_into_model(model: nn.Module, weights: Mapping[str, Tensor], *, location: str) -> None:
    """Load a state dict into a model; raise RunError if names or shapes differ, or for NaN."""
    expected = unique_weights(model)
    if difference := _first_difference(expected, weights):
        hint = "restore the weights and the config.yaml that were written together"
        raise RunError(location, f"the weights are those of another model: {difference}", hint)
    check_finite(weights, location=location, hint=RESTORE_HINT)
    shards = {name: shard_like(weight, expected[name]) for name, weight in weights.items()}
    model.load_state_dict(shards, strict=False)  # tied weights are stored once


def check_finite(
    tensors: Mapping[str, Tensor], *, location: str, hint: str, error: type[HeedfulError] = RunError
) -> None:
    """Raise an error that names the first tensor with NaN or infinity, whose model is useless."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            limits = torch.stack(tensor.aminmax())  # NaN if one value is
            message = f"the tensor {name} contains NaN or infinity"
            check(limits.isfinite().all(), location, message, hint, error)


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the state dict of a model, with tied weights under the first of their names."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor.detach()))
    return dict(named.values())


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is distributed over ranks."""
    return hasattr(tensor, "full_tensor")  # torch's DTensor, which takes a second to import


def gather_shards(tensor: Tensor) -> Tensor:
    """Return the full tensor; a collective operation if it is distributed over ranks."""
    full: Tensor = cast(Any, tensor).full_tensor() if is_sharded(tensor) else tensor
    return full


def shard_like(full_tensor: Tensor, reference: Tensor) -> Tensor:
    """Return the shard of this rank, if `reference` is sharded, else the full tensor."""
    if not is_sharded(reference):
        return full_tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(reference, DTensor)
    # No communication: every rank has the full tensor.
    full_tensor, mesh = full_tensor.to(reference.device), reference.device_mesh
    return distribute_tensor(full_tensor, mesh, reference.placements, src_data_rank=None)


def _first_difference(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor]) -> str:
    for name in sorted({*expected, *actual}):
        if name not in actual:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is not in the model"
        shape, needed = tuple(actual[name].shape), tuple(expected[name].shape)
        if shape != needed:
            return f"{name} has shape {shape}, the model needs {needed}"
    return ""
