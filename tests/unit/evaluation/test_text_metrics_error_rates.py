import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.base import compute_score
from heedful.evaluation.text_metrics import (
    CHARACTER_ERROR_RATE,
    POSITION_INDEPENDENT_ERROR_RATE,
    WORD_ERROR_RATE,
)

TOKENIZER_FOLDER = st.lists(st.sampled_from("abcd"), min_size=1, max_size=6).map(" ".join)


def rate(measure, outputs, references):
    return compute_score(measure, outputs, references).value


def test_errors_are_counted_over_all_sentences_together():
    # One substitution and one insertion by 3 words; one deletion by 2.
    assert rate(WORD_ERROR_RATE, ["a x c d", "b"], ["a b c", "a b"]) == 60
    assert rate(WORD_ERROR_RATE, ["x y z"], ["a"]) == 300


def test_without_positions_only_words_count():
    assert rate(POSITION_INDEPENDENT_ERROR_RATE, ["c b a"], ["a b c"]) == 0
    assert rate(POSITION_INDEPENDENT_ERROR_RATE, ["a a b"], ["a b c d"]) == 50  # 4 - 2 in common
    assert rate(POSITION_INDEPENDENT_ERROR_RATE, ["a b c d"], ["a b"]) == 100  # two too many


def test_characters_and_spaces_can_be_mended_one_by_one():
    assert rate(CHARACTER_ERROR_RATE, ["the cat"], ["thecats"]) == pytest.approx(200 / 7)


def test_of_several_references_the_nearest_counts_and_of_equals_the_longest():
    assert rate(WORD_ERROR_RATE, ["a b c"], [["x y z", "a b d", "a b"]]) == pytest.approx(100 / 3)


def test_all_that_is_said_where_nothing_is_wanted_is_wrong():
    assert rate(WORD_ERROR_RATE, ["a b"], [""]) == 100
    assert rate(WORD_ERROR_RATE, [""], [""]) == 0


@given(TOKENIZER_FOLDER, TOKENIZER_FOLDER)
def test_order_can_only_add_errors(output, reference):
    free, bound = (
        rate(each, [output], [reference])
        for each in (POSITION_INDEPENDENT_ERROR_RATE, WORD_ERROR_RATE)
    )
    assert free <= bound
