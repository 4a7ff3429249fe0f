"""Distances and overlaps against their definitions by recursion."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.text_metrics import edit_distance, lcs_length, multiset_overlap, ngrams

ITEMS = st.lists(st.sampled_from("abc"), max_size=7).map(tuple)


@cache
def distance(one, other):
    if not one or not other:
        return len(one) + len(other)
    return min(
        distance(one[1:], other) + 1,
        distance(one, other[1:]) + 1,
        distance(one[1:], other[1:]) + (one[0] != other[0]),
    )


@cache
def shared(one, other):
    if not one or not other:
        return 0
    if one[0] == other[0]:
        return 1 + shared(one[1:], other[1:])
    return max(shared(one[1:], other), shared(one, other[1:]))


@given(ITEMS, ITEMS)
def test_edit_distance_and_lcs_match_their_definitions(one, other):
    assert edit_distance(one, other) == distance(one, other)
    assert lcs_length(one, other) == shared(one, other)


@given(ITEMS, ITEMS)
def test_multiset_overlap_same_as_its_definition(one, other):
    left, crossed = list(other), 0
    for item in one:
        if item in left:
            left.remove(item)
            crossed += 1
    assert multiset_overlap(one, other) == crossed


def test_ngrams():
    assert ngrams("abcd", 3) == [("a", "b", "c"), ("b", "c", "d")]
    assert ngrams("ab", 3) == []
