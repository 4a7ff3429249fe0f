import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.base import MetricScore, SentenceMetric, compute_score
from heedful.evaluation.breakdowns import GroupScore, LengthBreakdown
from heedful.evaluation.registry import METRICS

EXACT_MATCH, BLEU = METRICS["exact-match"], METRICS["bleu"]


class Joined(SentenceMetric):
    """Has its references in its signature, and a value of 100 if outputs belong to them."""

    name, direction = "joined", "higher"

    def sentence_counts(self, output, references, line):
        return output == references[0], 1

    def signature(self, references):
        return " ".join(choices[0] for choices in references)


def words(length):
    return " ".join("w" * length)


def scores_by_length(sources, outputs, references, metric, *, width=1, **options):
    breakdown = LengthBreakdown(sources, width)
    return breakdown, breakdown.score_groups(metric, outputs, references, **options)


def metric(lengths, **options):
    numbered = [str(number) for number in range(len(lengths))]
    return scores_by_length(list(map(words, lengths)), numbered, numbered, Joined(), **options)


def test_each_length_is_scored_separately():
    sources = ["a", "a b", "b", "a b", "b a"]
    outputs = ["A", "A B", "X", "X", "X"]
    references = ["A", "A B", "B", "A B", "B A"]
    _, (first, second) = scores_by_length(sources, outputs, references, EXACT_MATCH)
    assert (first.name, first.size) == ("1", 2)
    assert first.score.value == 50
    assert (second.name, second.size) == ("2", 3)
    assert second.score.value == pytest.approx(100 / 3)


def test_length_bins_have_equal_width():
    breakdown, result = metric([1, 5, 6, 10, 11, 25], width=5)
    assert [(each.name, each.size) for each in result] == [
        *(("1-5", 2), ("6-10", 2), ("11-15", 1), ("21-25", 1))
    ]
    assert [breakdown.middles[each.name] for each in result] == [3, 8, 13, 23]


def test_length_bins_keep_pairs_in_order():
    _, (short, long) = metric([9, 1, 8, 2, 9], width=5)
    assert short == GroupScore("1-5", 2, MetricScore("joined", 100, "1 3"))
    assert long == GroupScore("6-10", 3, MetricScore("joined", 100, "0 2 4"))


def test_small_length_bin_has_no_score():
    _, result = metric([1, 2, 2, 2, 3, 3], min_size=3)
    assert [(each.name, each.size) for each in result] == [("1", 1), ("2", 3), ("3", 2)]
    assert [each.score is None for each in result] == [True, False, True]


def test_empty_sources_have_their_own_bin():
    texts = ["1", "2", "3"]
    breakdown, result = scores_by_length(["", "  ", "a"], texts, texts, EXACT_MATCH, width=5)
    assert [(each.name, each.size) for each in result] == [("0", 2), ("1-5", 1)]
    assert breakdown.middles == {"0": 0, "1-5": 3}


def test_words_split_at_any_white_space():
    _, (result,) = scores_by_length([" a\t b  c "], ["x"], ["x"], EXACT_MATCH)
    assert result.name == "3"


def test_single_bin_has_the_score_of_the_test_set():
    sources = [words(length) for length in (3, 7, 12)]
    outputs = ["the dog sees the cat", "a small dog sleeps here", "no"]
    references = ["the dog saw the cat", "a small dog sleeps there", "yes"]
    _, (whole,) = scores_by_length(sources, outputs, references, BLEU, width=12)
    assert whole == GroupScore("1-12", 3, compute_score(BLEU, outputs, references))


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 12), st.integers(0, 5))
def test_every_output_is_in_exactly_one_bin(lengths, width, least):
    _, result = metric(lengths, width=width, min_size=least)
    ranges = [list(map(int, f"{each.name}-{each.name}".split("-"))) for each in result]
    assert ranges == sorted(ranges)
    assert sum(each.size for each in result) == len(lengths)
    for each, (low, *_, high) in zip(result, ranges, strict=True):
        inside = [n for n, length in enumerate(lengths) if low <= length <= high]
        assert each.size == len(inside)
        if each.size >= least:
            assert each.score.signature == " ".join(map(str, inside))


def test_no_outputs_return_no_bins():
    assert LengthBreakdown([]).score_groups(EXACT_MATCH, [], []) == []


def test_unequal_numbers_of_texts_are_an_error():
    with pytest.raises(ValueError, match="shorter"):
        scores_by_length(["a", "b"], ["a", "b"], ["a"], EXACT_MATCH)
