"""Functions on each tensor of nested tuples, such as states and batches, and on trees of modules.

None stays None.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from heedful.shapes import Losses, Scalar

Nested = TypeVar("Nested")
Module = TypeVar("Module", bound=nn.Module)
ModuleChange = Callable[[Any], None]
"""Changes a copy of a module in place."""


def map_tensors(transform: Callable[[Tensor], Tensor], value: Nested) -> Nested:
    """Apply a function to each tensor."""
    return _map(transform, value, map_tensors)


def map_rows(transform: Callable[[Tensor], Tensor], value: Nested) -> Nested:
    """Apply a function to tensors with a row per batch row, or by the `map_rows` of a part."""
    if hasattr(value, "map_rows"):
        mapped: Nested = value.map_rows(transform)
        return mapped
    return _map(transform, value, map_rows)


def select_rows(value: Nested, rows: Tensor) -> Nested:
    """Select batch rows, in this order: beam search reorders its states so."""
    return map_rows(lambda tensor: tensor.index_select(0, rows), value)


def map_pairs(merge: Callable[[Tensor, Tensor], Tensor], first: Nested, second: Nested) -> Nested:
    """Merge each tensor of a nested value with its counterpart in another."""
    others = iter(list(tensors_of(second)))
    return map_tensors(lambda tensor: merge(tensor, next(others)), first)


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield each tensor."""
    if isinstance(value, Tensor):
        yield value
    elif value is not None:
        for part in value:
            yield from tensors_of(part)


def _map(transform: Callable[[Tensor], Tensor], value: Any, map_part: Callable[..., Any]) -> Any:
    if value is None:
        return None
    if isinstance(value, Tensor):
        return transform(value)
    assert isinstance(value, tuple), f"not a nested tuple: {type(value).__name__}"
    parts = [map_part(transform, part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def sum_losses(*parts: Losses) -> dict[str, Scalar]:
    """Sum losses of the same name."""
    total: dict[str, Tensor] = {}
    for part in parts:
        for name, loss in part.items():
            total[name] = total[name] + loss if name in total else loss
    return total


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64; float32 for MPS, which has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def to_float64(tensor: Tensor) -> Tensor:
    """Convert to float64, on the CPU if the device of the tensor has no float64."""
    has_float64 = widest_float(tensor.device) == torch.float64
    return (tensor if has_float64 else tensor.cpu()).double()


def rebuild_modules(
    module: Module,
    find_change: Callable[[str, nn.Module, nn.Module | None], ModuleChange | None],
    *,
    path: str = "",
    parent: nn.Module | None = None,
) -> Module:
    """Return a module in which copies of some parts are changed; `module` itself is not.

    `find_change` gets path, module and parent, and returns the change or None. Copies share
    parameters, buffers and hooks; parts that neither change nor contain a change are not copied.
    """
    children = {
        name: child
        and rebuild_modules(
            child, find_change, path=f"{path}.{name}" if path else name, parent=module
        )
        for name, child in module._modules.items()
    }
    change = find_change(path, module, parent)
    if change is None and all(child is module._modules[name] for name, child in children.items()):
        return module
    rebuilt = copy.copy(module)
    rebuilt._modules = children
    if change is not None:
        change(rebuilt)
    return rebuilt
