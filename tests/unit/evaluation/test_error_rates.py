import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.base import compute_score
from heedful.evaluation.text_metrics import (
    CHARACTER_ERROR_RATE,
    POSITION_INDEPENDENT_ERROR_RATE,
    WORD_ERROR_RATE,
)

TEXTS_STRATEGY = st.lists(st.sampled_from("abcd"), min_size=1, max_size=6).map(" ".join)


def rate(metric, outputs, references):
    return compute_score(metric, outputs, references).value


def test_error_rate_is_over_the_corpus():
    # One substitution and one insertion by 3 words; one deletion by 2.
    assert rate(WORD_ERROR_RATE, ["a x c d", "b"], ["a b c", "a b"]) == 60
    assert rate(WORD_ERROR_RATE, ["x y z"], ["a"]) == 300


def test_position_independent_error_rate_ignores_order():
    assert rate(POSITION_INDEPENDENT_ERROR_RATE, ["c b a"], ["a b c"]) == 0
    assert rate(POSITION_INDEPENDENT_ERROR_RATE, ["a a b"], ["a b c d"]) == 50  # 4 - 2 in common
    assert rate(POSITION_INDEPENDENT_ERROR_RATE, ["a b c d"], ["a b"]) == 100  # two too many


def test_character_error_rate_counts_spaces():
    assert rate(CHARACTER_ERROR_RATE, ["the cat"], ["thecats"]) == pytest.approx(200 / 7)


def test_error_rate_takes_the_reference_with_fewest_errors():
    assert rate(WORD_ERROR_RATE, ["a b c"], [["x y z", "a b d", "a b"]]) == pytest.approx(100 / 3)


def test_error_rate_of_empty_references():
    assert rate(WORD_ERROR_RATE, ["a b"], [""]) == 100
    assert rate(WORD_ERROR_RATE, [""], [""]) == 0


@given(TEXTS_STRATEGY, TEXTS_STRATEGY)
def test_word_order_can_only_add_errors(output, reference):
    free, bound = (
        rate(each, [output], [reference])
        for each in (POSITION_INDEPENDENT_ERROR_RATE, WORD_ERROR_RATE)
    )
    assert free <= bound
