"""Nested values: tensors inside tuples inside tuples, handled as one.

Memories and states are such values. What is done to a nested value is done to each tensor in
it; the nesting itself does not change, and `None` stays `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

Nested = TypeVar("Nested")


class Shared(NamedTuple):
    """A nested value that rows of a batch have in common, some this row of it and some that."""

    of: Any
    rows: Tensor
    """For each row of the batch the row that it has."""


def map_tensors(change: Callable[[Tensor], Tensor], value: Nested) -> Nested:
    """Change every tensor of a nested value."""
    return _map(change, value)


def map_rows(change: Callable[[Tensor], Tensor], value: Nested) -> Nested:
    """Change every tensor that has a row for each of the batch; what is shared stays."""
    return _map(change, value, spares_shared=True)


def combine(join: Callable[[Tensor, Tensor], Tensor], first: Nested, second: Nested) -> Nested:
    """Join every tensor of a nested value with the one in its place in another."""
    others = iter(leaves(second))
    return map_tensors(lambda tensor: join(tensor, next(others)), first)


def select(value: Nested, rows: Tensor) -> Nested:
    """Keep these batch rows, in this order: how a beam is pruned."""
    return map_rows(lambda tensor: tensor[rows], value)


def leaves(value: Any) -> Iterator[Tensor]:
    """Give every tensor of a nested value."""
    if isinstance(value, Tensor):
        yield value
    elif value is not None:
        for part in value:
            yield from leaves(part)


def _map(change: Callable[[Tensor], Tensor], value: Any, *, spares_shared: bool = False) -> Any:
    if value is None:
        return None
    if isinstance(value, Tensor):
        return change(value)
    assert isinstance(value, tuple), f"not a nested value: {type(value).__name__}"
    if spares_shared and isinstance(value, Shared):
        return value._replace(rows=change(value.rows))
    parts = [_map(change, part, spares_shared=spares_shared) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
