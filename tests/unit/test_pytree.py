"""Nested values: what is done to one is done to each of its tensors."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from heedful.pytree import map_tensors, select_rows


class State(NamedTuple):
    hidden: Tensor
    cache: tuple[Tensor, ...] | None


ROWS = 4

tensors = st.lists(st.integers(0, 9), min_size=ROWS, max_size=ROWS).map(torch.tensor)
nested = st.recursive(
    tensors | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.builds(State, hidden=inner, cache=inner)
    ),
    max_leaves=6,
)


def leaves(value):
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def shape(value):
    """The nesting alone, with every tensor replaced by one sign."""
    if isinstance(value, tuple):
        return type(value), [shape(part) for part in value]
    return "tensor" if isinstance(value, Tensor) else value


@given(nested)
def test_map_tensors_keeps_the_nesting(value):
    assert shape(map_tensors(lambda tensor: tensor + 1, value)) == shape(value)


@given(nested)
def test_map_tensors_changes_only_tensors(value):
    changed = map_tensors(lambda tensor: tensor + 1, value)
    for before, after in zip(leaves(value), leaves(changed), strict=True):
        assert after is None if before is None else torch.equal(after, before + 1)


@given(nested, st.lists(st.integers(0, ROWS - 1), min_size=1), st.data())
def test_selecting_rows_twice_is_selecting_once(value, first, data):
    second = data.draw(st.lists(st.integers(0, len(first) - 1)))
    one, two = torch.tensor(first), torch.tensor(second, dtype=torch.long)
    for left, right in zip(
        leaves(select_rows(select_rows(value, one), two)),
        leaves(select_rows(value, one[two])),
        strict=True,
    ):
        assert (left is None and right is None) or torch.equal(left, right)


def test_select_rows_keeps_the_given_order():
    state = State(torch.tensor([10, 20, 30]), (torch.tensor([[1], [2], [3]]),))
    kept = select_rows(state, torch.tensor([2, 0, 2]))
    assert kept.hidden.tolist() == [30, 10, 30]
    assert kept.cache[0].tolist() == [[3], [1], [3]]


def test_lists_not_nested_tuples():
    with pytest.raises(AssertionError, match="not a nested tuple: list"):
        map_tensors(lambda tensor: tensor, [torch.zeros(1)])
