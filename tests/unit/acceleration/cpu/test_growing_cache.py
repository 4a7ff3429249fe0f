"""Appending to a growing cache equals concatenation and changes no cache that is in use."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.acceleration.cpu.decoding_state import GrowingCache
from heedful.layers.self_attention import KVCache
from heedful.pytree import map_pairs, select_rows


def cache(num_positions, start):
    values = torch.arange(start, start + 2 * 3 * num_positions * 2.0).view(2, 3, num_positions, 2)
    return KVCache(values, -values[..., :1])


def concatenate(*caches):
    return map_pairs(lambda *parts: torch.cat(parts, dim=-2), *caches)


def are_equal(actual, expected):
    return all(map(torch.equal, actual, expected))


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=30), data=st.data())
def test_append_equals_concatenation_whichever_cache_is_continued(sizes, data):
    caches, expected = [GrowingCache(*cache(1, 0))], [cache(1, 0)]
    for index, size in enumerate(sizes):
        parent = data.draw(st.integers(max(0, len(caches) - 2), len(caches) - 1))
        new = cache(size, 1000 * (index + 1))
        caches.append(caches[parent].append(new))
        expected.append(concatenate(expected[parent], new))
    for actual, concatenated in zip(caches, expected, strict=True):
        assert are_equal(actual, concatenated)


def test_cache_that_is_continued_is_not_copied():
    grown = GrowingCache(*cache(1, 0)).append(cache(1, 100))
    addresses = set()
    for index in range(8):
        grown = grown.append(cache(1, 200 + index))
        addresses.add(tuple(part.data_ptr() for part in grown))
    assert len(addresses) == 1


def test_selected_rows_copied():
    grown = GrowingCache(*cache(1, 0)).append(cache(1, 100))
    selected = select_rows(grown, torch.tensor([1, 1]))
    longer = selected.append(cache(1, 200))
    assert are_equal(longer, concatenate(KVCache(*selected), cache(1, 200)))
    assert are_equal(grown, concatenate(cache(1, 0), cache(1, 100)))
