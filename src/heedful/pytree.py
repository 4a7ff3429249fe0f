"""Nested values: tensors inside tuples inside tuples, handled as one.

Memories and states are such values. What is done to a nested value is done to each tensor in
it; the nesting itself does not change, and `None` stays `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

Nested = TypeVar("Nested")


class SharedRows(NamedTuple):
    """A nested value that rows of a batch have in common, some this row of it and some that."""

    value: Any
    row_index: Tensor
    """For each row of the batch the row that it has."""


def map_tensors(transform: Callable[[Tensor], Tensor], value: Nested) -> Nested:
    """Change every tensor of a nested value."""
    return _map(transform, value)


def map_rows(transform: Callable[[Tensor], Tensor], value: Nested) -> Nested:
    """Change every tensor that has a row for each of the batch; what is shared stays."""
    return _map(transform, value, keeps_shared=True)


def map_pairs(merge: Callable[[Tensor, Tensor], Tensor], first: Nested, second: Nested) -> Nested:
    """Join every tensor of a nested value with the one in its place in another."""
    others = iter(tensors_of(second))
    return map_tensors(lambda tensor: merge(tensor, next(others)), first)


def select_rows(value: Nested, rows: Tensor) -> Nested:
    """Keep these batch rows, in this order: how a beam is pruned."""
    return map_rows(lambda tensor: tensor[rows], value)


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Give every tensor of a nested value."""
    if isinstance(value, Tensor):
        yield value
    elif value is not None:
        for part in value:
            yield from tensors_of(part)


def _map(transform: Callable[[Tensor], Tensor], value: Any, *, keeps_shared: bool = False) -> Any:
    if value is None:
        return None
    if isinstance(value, Tensor):
        return transform(value)
    assert isinstance(value, tuple), f"not a nested value: {type(value).__name__}"
    if keeps_shared and isinstance(value, SharedRows):
        return value._replace(row_index=transform(value.row_index))
    parts = [_map(transform, part, keeps_shared=keeps_shared) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
