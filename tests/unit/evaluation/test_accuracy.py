import pytest

from heedful.evaluation.base import compute_score
from heedful.evaluation.text_metrics import ExactMatch, TokenAccuracy


def value(metric, outputs, references):
    return compute_score(metric, outputs, references).value


def test_exact_match_with_any_reference():
    assert value(ExactMatch(), ["a", "b", "c"], [["x", "a"], ["b", "y"], ["z", "C"]]) == (
        pytest.approx(200 / 3)
    )


def test_token_accuracy_compares_positions():
    # 2 of 3 places; 0 of 2; 1 of 4, for words too many are places, too.
    outputs, references = ["a b c", "b a", "a b c d"], ["a x c", "a b", "a"]
    assert value(TokenAccuracy(), outputs, references) == pytest.approx(100 * 3 / 9)


def test_token_accuracy_takes_the_best_reference():
    # 1 of 2 is less than 3 of 4, though both have one wrong.
    assert value(TokenAccuracy(), ["a b c d"], [["a x", "a b c x"]]) == 75


def test_token_accuracy_of_empty_texts():
    assert value(TokenAccuracy(), [""], [" "]) == 100
    assert value(TokenAccuracy(), ["a"], [""]) == 0
