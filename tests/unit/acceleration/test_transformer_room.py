"""Room: what is added stands behind what was held, and nobody who held it is disturbed."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.acceleration.transformer import append_with_capacity


def places(count, start):
    return torch.arange(start, start + 2 * 3 * count * 2.0).view(2, 3, count, 2)


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=30), data=st.data())
def test_what_comes_of_it_is_what_joining_gives(counts, data):
    """Those who hold something add to it, and to what came before it, in any order."""
    held, wanted = [places(1, 0)], [places(1, 0)]
    for number, count in enumerate(counts):
        at = data.draw(st.integers(max(0, len(held) - 2), len(held) - 1))
        added = places(count, 1000 * (number + 1))
        held.append(append_with_capacity(held[at], added))
        wanted.append(torch.cat([wanted[at], added], dim=-2))
    for found, each in zip(held, wanted, strict=True):
        assert torch.equal(found, each)


def test_places_that_come_back_as_they_were_given_are_not_copied():
    held = append_with_capacity(places(1, 0), places(1, 100))
    moved = set()
    for number in range(8):
        held = append_with_capacity(held, places(1, 200 + number))
        moved.add(held.data_ptr())
    assert len(moved) == 1


def test_rows_that_have_moved_are_copied():
    held = append_with_capacity(places(1, 0), places(1, 100))
    moved = held[torch.tensor([1, 1])]
    grown = append_with_capacity(moved, places(1, 200))
    assert torch.equal(grown, torch.cat([moved, places(1, 200)], dim=-2))
    assert torch.equal(held, torch.cat([places(1, 0), places(1, 100)], dim=-2))
