import pytest

from heedful.evaluation.base import compute_score
from heedful.evaluation.text_metrics import ExactMatch, TokenAccuracy


def value(measure, outputs, references):
    return compute_score(measure, outputs, references).value


def test_any_of_several_references_will_do():
    assert value(ExactMatch(), ["a", "b", "c"], [["x", "a"], ["b", "y"], ["z", "C"]]) == (
        pytest.approx(200 / 3)
    )


def test_words_are_right_at_their_places_only():
    # 2 of 3 places; 0 of 2; 1 of 4, for words too many are places, too.
    outputs, references = ["a b c", "b a", "a b c d"], ["a x c", "a b", "a"]
    assert value(TokenAccuracy(), outputs, references) == pytest.approx(100 * 3 / 9)


def test_of_several_references_the_one_with_the_largest_share_counts():
    # 1 of 2 is less than 3 of 4, though both have one wrong.
    assert value(TokenAccuracy(), ["a b c d"], [["a x", "a b c x"]]) == 75


def test_saying_nothing_where_nothing_is_wanted_is_right():
    assert value(TokenAccuracy(), [""], [" "]) == 100
    assert value(TokenAccuracy(), ["a"], [""]) == 0
