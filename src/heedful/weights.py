"""Weights: a model's parameters in a file, and back into the model they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from heedful.errors import DamagedRunError, RunError
from heedful.storage import RESTORE


def write_weights(model: nn.Module, path: Path) -> None:
    """Write the weights of a model."""
    path.write_bytes(save(_distinct(model)))


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the weights of a file into a model, if they are that model's."""
    try:
        found = load_file(path)
    except SafetensorError as error:
        raise DamagedRunError(str(path), f"not a weights file ({error})", RESTORE) from None
    wanted = _distinct(model)
    difference = _first_difference(wanted, found)
    if difference:
        raise RunError(
            str(path),
            f"these are the weights of another model: {difference}",
            "put back the weights and the config.yaml that were written together",
        )
    model.load_state_dict(found, strict=False)  # weights with two names are stored once


def _distinct(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model, each weight by the first of its names."""
    named = dict[int, tuple[str, Tensor]]()
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor.detach()))
    return dict(named.values())


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
