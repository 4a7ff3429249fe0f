"""Weights: a model's parameters in a file, and back into the model they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from heedful.errors import DamagedRunError, RunError
from heedful.storage import RESTORE


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write weights to a file."""
    path.write_bytes(save(dict(weights)))


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the weights of a file into a model, if they are that model's."""
    put_weights(model, read_weights(path), at=str(path))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights of a file."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise DamagedRunError(str(path), f"not a weights file ({error})", RESTORE) from None


def put_weights(model: nn.Module, weights: Mapping[str, Tensor], *, at: str) -> None:
    """Put weights into a model, if they are that model's; `at` says where they come from."""
    if difference := _first_difference(distinct_weights(model), weights):
        raise RunError(
            at,
            f"these are the weights of another model: {difference}",
            "put back the weights and the config.yaml that were written together",
        )
    wanted = distinct_weights(model)
    parts = {name: part_like(weight, wanted[name]) for name, weight in weights.items()}
    model.load_state_dict(parts, strict=False)  # weights with two names are stored once


def distinct_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model, each weight by the first of its names."""
    named = dict[int, tuple[str, Tensor]]()
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor.detach()))
    return dict(named.values())


def is_parted(tensor: Tensor) -> bool:
    """Whether each of several ranks holds a part of a tensor."""
    return hasattr(tensor, "full_tensor")  # torch's DTensor, which takes a second to import


def part_like(whole: Tensor, like: Tensor) -> Tensor:
    """Keep what this rank has of a whole tensor, if it is parted as another is."""
    if not is_parted(like):
        return whole
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    # No rank asks another: all have the whole.
    return distribute_tensor(
        whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None
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
