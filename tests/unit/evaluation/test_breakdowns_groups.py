import pytest

from heedful.evaluation.breakdowns import GroupScore, scores_by_group
from heedful.evaluation.registry import exact_match

NAMES = [["a"], ["b", "a"], [], ["c"]]
OUTPUTS, REFERENCES = ["1", "2", "3", "4"], ["1", "x", "3", "4"]


def test_an_output_is_measured_in_each_of_its_groups():
    found = scores_by_group(NAMES, OUTPUTS, REFERENCES, exact_match)
    assert [(each.name, each.size, each.score.value) for each in found] == [
        *(("a", 2, 50), ("b", 1, 0), ("c", 1, 100))
    ]


def test_groups_come_in_the_order_that_is_given_and_empty_ones_are_left_out():
    found = scores_by_group(NAMES, OUTPUTS, REFERENCES, exact_match, order=["c", "z", "b"])
    assert [each.name for each in found] == ["c", "b", "a"]


def test_a_group_of_few_outputs_is_counted_but_not_measured():
    found = scores_by_group(NAMES, OUTPUTS, REFERENCES, exact_match, min_group_size=2)
    assert found[1] == GroupScore("b", 1, None)
    assert found[0].score is not None


def test_each_output_keeps_its_references():
    found = scores_by_group([["a"]], ["2"], [["1", "2"]], exact_match)
    assert found[0].score.value == 100


def test_unequal_numbers_are_refused():
    with pytest.raises(ValueError, match=r"longer|shorter"):
        scores_by_group(NAMES, OUTPUTS, REFERENCES[:3], exact_match)
