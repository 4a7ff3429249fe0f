"""Consensus: the output that others agree with most, by a double loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.search.minimum_bayes_risk import (
    count_distinct,
    expected_utilities,
    pairwise_utilities,
    select_mbr,
)

outputs = st.lists(st.text("ab", max_size=4), min_size=1, max_size=9)


def shared_letters(output, truth):
    """A gain that is not symmetric: how much of the truth is said, letter by letter."""
    return sum(one == other for one, other in zip(output, truth, strict=False)) / (1 + len(truth))


@given(outputs=outputs)
def test_what_is_chosen_gains_most_over_all_that_was_drawn(outputs):
    best, most = 0, -1.0
    for number, output in enumerate(outputs):
        gained = sum(shared_letters(output, truth) for truth in outputs) / len(outputs)
        if gained > most + 1e-12:
            best, most = number, gained
    gains = pairwise_utilities(outputs, shared_letters)
    found = select_mbr(gains)
    assert expected_utilities(gains)[found] == pytest.approx(most)
    assert expected_utilities(gains)[found] == pytest.approx(expected_utilities(gains)[best])


@given(outputs=outputs)
def test_equal_outputs_count_by_how_often_they_were_drawn(outputs):
    places, counts = count_distinct(outputs)
    few = [outputs[place] for place in places]
    assert len(set(few)) == len(few)
    assert dict(zip(few, counts, strict=True)) == {each: outputs.count(each) for each in outputs}
    assert places == [outputs.index(each) for each in few]
    distinct = expected_utilities(pairwise_utilities(few, shared_letters), counts)
    everything = expected_utilities(pairwise_utilities(outputs, shared_letters))
    assert distinct.tolist() == pytest.approx(everything[places].tolist())


@given(gain=st.floats(-10, 10))
def test_of_one_output_that_one_is_chosen(gain):
    assert select_mbr(np.array([[gain]])) == 0


def test_what_was_drawn_more_often_wins():
    gains = np.eye(3)
    assert select_mbr(gains, [2, 3, 1]) == 1
    assert expected_utilities(gains, [2, 3, 1]).tolist() == pytest.approx([2 / 6, 3 / 6, 1 / 6])


def test_the_middle_wins_over_the_most_frequent_if_it_gains_from_all():
    """By hand: a gets 3/7, b between them gets (1 + 3 * 0.9 + 3 * 0.9) / 7."""
    gains = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.9], [0.0, 0.9, 1.0]])
    assert select_mbr(gains, [3, 1, 3]) == 1


@given(values=st.permutations([0.1, 0.2, 0.3, 0.7, 1e-9, 1e9]))
def test_of_equally_good_ones_the_first_is_chosen_in_whatever_order_gains_are_added(values):
    gains = np.zeros((6, 6))
    gains[2], gains[4] = values, sorted(values)
    assert select_mbr(gains) == 2


@pytest.mark.parametrize("gains", [np.zeros((2, 3)), np.array([[np.nan]])], ids=["shape", "nan"])
def test_what_is_no_table_of_gains_is_noticed(gains):
    with pytest.raises(AssertionError):
        select_mbr(gains)
