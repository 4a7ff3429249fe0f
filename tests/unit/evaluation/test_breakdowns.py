"""Scores of parts of a test set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.base import SentenceMetric, compute_score
from heedful.evaluation.breakdowns import (
    FREQUENCY_BIN_EDGES,
    Breakdown,
    GroupScore,
    LabelBreakdown,
    LengthBreakdown,
    SentenceTypeBreakdown,
    WordFrequencyBreakdown,
    count_words,
    sentence_types,
    tokenize_words,
    word_recall,
)
from heedful.evaluation.registry import METRICS

EXACT_MATCH, BLEU = METRICS["exact-match"], METRICS["bleu"]
SOURCES = ["Who sleeps?", "a b c d e f", "a b"]
OUTPUTS, REFERENCES = ["x y", "y", "z"], ["x y", "y", "w"]


@pytest.mark.parametrize(
    ("breakdown", "parts"),
    [
        (LengthBreakdown(SOURCES), {"1-5": 50, "6-10": 100}),
        (LengthBreakdown(SOURCES, bin_width=6), {"1-6": pytest.approx(200 / 3)}),
        (WordFrequencyBreakdown({"x": 1, "y": 3}, REFERENCES), {"0": 0, "1": 100, "2-4": 100}),
        (SentenceTypeBreakdown(SOURCES), {"question": 100, "plain": 50}),
        (LabelBreakdown(["b", "a", "a"]), {"a": 50, "b": 100}),
    ],
)
def test_breakdown_scores_each_group_separately(breakdown, parts):
    result = breakdown.score_groups(EXACT_MATCH, OUTPUTS, REFERENCES)
    assert {each.name: each.score.value for each in result} == parts
    assert sum(each.size for each in result) == 3
    assert all(each.score.name == "exact match" for each in result)
    assert breakdown.title


def test_word_frequency_uses_texts_for_alignment_metrics():
    breakdown = WordFrequencyBreakdown({"x": 1, "y": 3}, REFERENCES)
    result = breakdown.score_groups(METRICS["aer"], ["0-0", "0-0", "0-1"], ["0-0", "0-0", "0-0"])
    assert [(each.name, each.score.value) for each in result] == [("0", 100), ("1", 0), ("2-4", 0)]


GROUPS = [["a"], ["b", "a"], [], ["c"]]
GROUPED, EXPECTED = ["1", "2", "3", "4"], ["1", "x", "3", "4"]


def score_groups_of(names, outputs, references, *, order=(), **options):
    breakdown = Breakdown("", names, order)
    return breakdown.score_groups(EXACT_MATCH, outputs, references, **options)


def test_output_counts_in_each_of_its_groups():
    result = score_groups_of(GROUPS, GROUPED, EXPECTED)
    assert [(each.name, each.size, each.score.value) for each in result] == [
        *(("a", 2, 50), ("b", 1, 0), ("c", 1, 100))
    ]


def test_groups_ordered_and_empty_ones_skipped():
    result = score_groups_of(GROUPS, GROUPED, EXPECTED, order=["c", "z", "b"])
    assert [each.name for each in result] == ["c", "b", "a"]


def test_small_group_has_no_score():
    result = score_groups_of(GROUPS, GROUPED, EXPECTED, min_size=2)
    assert result[1] == GroupScore("b", 1, None)
    assert result[0].score is not None


def test_grouped_output_keeps_references():
    result = score_groups_of([["a"]], ["2"], [["1", "2"]])
    assert result[0].score.value == 100


def test_unequal_numbers_are_an_error():
    with pytest.raises(ValueError, match=r"longer|shorter"):
        score_groups_of(GROUPS, GROUPED, EXPECTED[:3])


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


def test_length_bins_have_equal_width():
    breakdown, result = metric([1, 5, 6, 10, 11, 25], width=5)
    assert [(each.name, each.size) for each in result] == [
        *(("1-5", 2), ("6-10", 2), ("11-15", 1), ("21-25", 1))
    ]
    assert [breakdown.middles[each.name] for each in result] == [3, 8, 13, 23]


def test_empty_sources_have_own_bin():
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


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("Quis est?", ["question"]),
        ('"Quis est?" ', ["question"]),
        ("\u8ab0\uff1f", ["question"]),
        ("Quis? nemo.", ["plain"]),
        ("He saw 3 dogs.", ["digits"]),
        ("The dog sees Marcus.", ["name"]),
        ("Marcus sleeps.", ["plain"]),
        ("Is Marcus 7 years old?", ["question", "digits", "name"]),
        ("", ["plain"]),
    ],
)
def test_sentence_types(source, kinds):
    assert sentence_types(source) == kinds


def test_empty_label_is_skipped():
    breakdown = LabelBreakdown(["law ", "news", "", "law"])
    result = breakdown.score_groups(EXACT_MATCH, "abcd", "axcx")
    assert [(each.name, each.size, each.score.value) for each in result] == [
        *(("law", 2, 50), ("news", 1, 0))
    ]


SEEN = count_words(["the dog, the cat", "the dog sees."] + ["a"] * 20)
SEEN_TEXTS = st.lists(st.sampled_from(["the", "dog", "cat", "a", "bird", "."]), max_size=6).map(
    " ".join
)


def scores_by_word_frequency(outputs, references, edges=FREQUENCY_BIN_EDGES):
    breakdown = WordFrequencyBreakdown(SEEN, references, edges)
    return breakdown.score_groups(EXACT_MATCH, outputs, references)


def recall_by_word_frequency(outputs, references, edges=FREQUENCY_BIN_EDGES):
    return WordFrequencyBreakdown(SEEN, references, edges).recall_by_count(outputs, references)


def test_tokenization_of_words_and_punctuation():
    assert tokenize_words("The dog's 2 (old) cats.") == [
        *("The", "dog", "'", "s", "2", "(", "old", ")", "cats", ".")
    ]
    assert SEEN == {"the": 3, "dog": 2, ",": 1, "cat": 1, "sees": 1, ".": 1, "a": 20}


def test_outputs_grouped_by_the_rarest_reference_word():
    references = ["the dog", "the cat", "the bird", "a a", "a the", "", "the the"]
    result = scores_by_word_frequency(references, references, edges=(0, 1, 2, 4, 10))
    assert [(each.name, each.size) for each in result] == [
        *(("0", 1), ("1", 1), ("2-3", 3), ("10+", 1), ("no word", 1))
    ]


def test_recall_counts_repeated_words():
    outputs, references = ["the the cat", "bird a"], ["the dog the the", "a bird bird"]
    result = recall_by_word_frequency(outputs, references, edges=(0, 1, 3, 10))
    # bird: 1 of 2; dog: 0 of 1; the: 2 of 3; a: 1 of 1.
    assert [(each.name, each.size, each.score.value) for each in result] == [
        *(("0", 2, 50), ("1-2", 1, 0), ("3-9", 3, pytest.approx(200 / 3)), ("10+", 1, 100))
    ]
    assert word_recall(outputs, references).value == pytest.approx(400 / 7)


def test_word_frequency_uses_the_first_reference():
    (result,) = scores_by_word_frequency(["x"], [["a", "bird"]])
    assert result.name == "10-99"
    assert word_recall(["bird"], [["a", "bird"]]).value == 0


def test_recall_without_reference_words_is_100():
    assert word_recall(["a"], [""]).value == 100
    assert recall_by_word_frequency(["a"], [""]) == []


@given(st.lists(SEEN_TEXTS, min_size=1, max_size=5), st.data())
def test_frequency_bins_partition_the_test_set(references, data):
    outputs = [data.draw(SEEN_TEXTS) for _ in references]
    parts = scores_by_word_frequency(outputs, references)
    assert sum(each.size for each in parts) == len(outputs)
    bins = recall_by_word_frequency(outputs, references)
    assert sum(each.size for each in bins) == sum(len(tokenize_words(line)) for line in references)
    right = sum(each.size * each.score.value for each in bins)
    if bins:
        whole = sum(each.size for each in bins)
        assert word_recall(outputs, references).value == pytest.approx(right / whole)
