import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.base import MetricScore
from heedful.evaluation.breakdowns import LengthBin, scores_by_length
from heedful.evaluation.registry import bleu, exact_match


def joined(outputs, references):
    """A metric that tells what it was asked."""
    assert len(outputs) == len(references)
    return MetricScore(" ".join(outputs), len(outputs), " ".join(references))


def words(length):
    return " ".join("w" * length)


def metric(lengths, **options):
    numbered = [str(number) for number in range(len(lengths))]
    return scores_by_length(list(map(words, lengths)), numbered, numbered, joined, **options)


def test_each_length_is_scored_separately():
    sources = ["a", "a b", "b", "a b", "b a"]
    outputs = ["A", "A B", "X", "X", "X"]
    references = ["A", "A B", "B", "A B", "B A"]
    first, second = scores_by_length(sources, outputs, references, exact_match)
    assert (first.min_length, first.max_length, first.size) == (1, 1, 2)
    assert first.score.value == 50
    assert (second.min_length, second.max_length, second.size) == (2, 2, 3)
    assert second.score.value == pytest.approx(100 / 3)


def test_length_bins_have_equal_width():
    result = metric([1, 5, 6, 10, 11, 25], width=5)
    assert [(each.name, each.size) for each in result] == [
        *(("1-5", 2), ("6-10", 2), ("11-15", 1), ("21-25", 1))
    ]
    assert [each.middle for each in result] == [3, 8, 13, 23]


def test_length_bins_keep_pairs_in_order():
    short, long = metric([9, 1, 8, 2, 9], width=5)
    assert short.score == MetricScore("1 3", 2, "1 3")
    assert long.score == MetricScore("0 2 4", 3, "0 2 4")


def test_small_length_bin_has_no_score():
    result = metric([1, 2, 2, 2, 3, 3], min_group_size=3)
    assert [(each.name, each.size) for each in result] == [("1", 1), ("2", 3), ("3", 2)]
    assert [each.score is None for each in result] == [True, False, True]


def test_empty_sources_have_their_own_bin():
    result = scores_by_length(["", "  ", "a"], ["1", "2", "3"], ["1", "2", "3"], joined, width=5)
    assert [(each.name, each.middle, each.size) for each in result] == [("0", 0, 2), ("1-5", 3, 1)]


def test_words_are_split_at_any_white_space():
    assert scores_by_length([" a\t b  c "], ["x"], ["x"], joined)[0].name == "3"


def test_single_bin_has_the_score_of_the_test_set():
    sources = [words(length) for length in (3, 7, 12)]
    outputs = ["the dog sees the cat", "a small dog sleeps here", "no"]
    references = ["the dog saw the cat", "a small dog sleeps there", "yes"]
    (whole,) = scores_by_length(sources, outputs, references, bleu, width=12)
    assert whole == LengthBin(1, 12, 3, bleu(outputs, references))


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 12), st.integers(0, 5))
def test_every_output_is_in_exactly_one_bin(lengths, width, least):
    result = metric(lengths, width=width, min_group_size=least)
    assert result == sorted(result, key=lambda each: each.min_length)
    assert sum(each.size for each in result) == len(lengths)
    for each in result:
        inside = [
            n for n, length in enumerate(lengths) if each.min_length <= length <= each.max_length
        ]
        assert each.size == len(inside)
        if each.size >= least:
            assert each.score.name == " ".join(map(str, inside))


def test_no_outputs_give_no_bins():
    assert scores_by_length([], [], [], exact_match) == []


def test_unequal_numbers_of_texts_are_an_error():
    with pytest.raises(ValueError, match="shorter"):
        scores_by_length(["a", "b"], ["a", "b"], ["a"], exact_match)
