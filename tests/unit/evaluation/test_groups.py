import pytest

from heedful.evaluation.breakdowns import Breakdown, GroupScore
from heedful.evaluation.registry import METRICS

NAMES = [["a"], ["b", "a"], [], ["c"]]
OUTPUTS, REFERENCES = ["1", "2", "3", "4"], ["1", "x", "3", "4"]


def score(names, outputs, references, *, order=(), **options):
    breakdown = Breakdown("", names, order)
    return breakdown.score_groups(METRICS["exact-match"], outputs, references, **options)


def test_output_counts_in_each_of_its_groups():
    result = score(NAMES, OUTPUTS, REFERENCES)
    assert [(each.name, each.size, each.score.value) for each in result] == [
        *(("a", 2, 50), ("b", 1, 0), ("c", 1, 100))
    ]


def test_groups_ordered_and_empty_ones_skipped():
    result = score(NAMES, OUTPUTS, REFERENCES, order=["c", "z", "b"])
    assert [each.name for each in result] == ["c", "b", "a"]


def test_small_group_has_no_score():
    result = score(NAMES, OUTPUTS, REFERENCES, min_size=2)
    assert result[1] == GroupScore("b", 1, None)
    assert result[0].score is not None


def test_grouped_output_keeps_its_references():
    result = score([["a"]], ["2"], [["1", "2"]])
    assert result[0].score.value == 100


def test_unequal_numbers_are_an_error():
    with pytest.raises(ValueError, match=r"longer|shorter"):
        score(NAMES, OUTPUTS, REFERENCES[:3])
