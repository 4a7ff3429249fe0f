"""Appending with capacity equals concatenation and changes no tensor that is in use."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.acceleration.cpu.transformer_step import append_with_capacity


def cache(num_positions, start):
    return torch.arange(start, start + 2 * 3 * num_positions * 2.0).view(2, 3, num_positions, 2)


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=30), data=st.data())
def test_append_equals_concatenation_whichever_cache_is_continued(sizes, data):
    caches, expected = [cache(1, 0)], [cache(1, 0)]
    for index, size in enumerate(sizes):
        parent = data.draw(st.integers(max(0, len(caches) - 2), len(caches) - 1))
        new = cache(size, 1000 * (index + 1))
        caches.append(append_with_capacity(caches[parent], new))
        expected.append(torch.cat([expected[parent], new], dim=-2))
    for actual, concatenated in zip(caches, expected, strict=True):
        assert torch.equal(actual, concatenated)


def test_cache_that_is_continued_is_not_copied():
    grown = append_with_capacity(cache(1, 0), cache(1, 100))
    addresses = set()
    for index in range(8):
        grown = append_with_capacity(grown, cache(1, 200 + index))
        addresses.add(grown.data_ptr())
    assert len(addresses) == 1


def test_selected_rows_copied():
    grown = append_with_capacity(cache(1, 0), cache(1, 100))
    selected = grown[torch.tensor([1, 1])]
    longer = append_with_capacity(selected, cache(1, 200))
    assert torch.equal(longer, torch.cat([selected, cache(1, 200)], dim=-2))
    assert torch.equal(grown, torch.cat([cache(1, 0), cache(1, 100)], dim=-2))
