import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.breakdowns import (
    FREQUENCY_BIN_EDGES,
    WordFrequencyBreakdown,
    count_words,
    tokenize_words,
    word_recall,
)
from heedful.evaluation.registry import METRICS

SEEN = count_words(["the dog, the cat", "the dog sees."] + ["a"] * 20)
TEXTS_STRATEGY = st.lists(st.sampled_from(["the", "dog", "cat", "a", "bird", "."]), max_size=6).map(
    " ".join
)


def scores_by_word_frequency(outputs, references, edges=FREQUENCY_BIN_EDGES):
    breakdown = WordFrequencyBreakdown(SEEN, references, edges)
    return breakdown.score_groups(METRICS["exact-match"], outputs, references)


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


@given(st.lists(TEXTS_STRATEGY, min_size=1, max_size=5), st.data())
def test_frequency_bins_partition_the_test_set(references, data):
    outputs = [data.draw(TEXTS_STRATEGY) for _ in references]
    parts = scores_by_word_frequency(outputs, references)
    assert sum(each.size for each in parts) == len(outputs)
    bins = recall_by_word_frequency(outputs, references)
    assert sum(each.size for each in bins) == sum(len(tokenize_words(line)) for line in references)
    right = sum(each.size * each.score.value for each in bins)
    if bins:
        whole = sum(each.size for each in bins)
        assert word_recall(outputs, references).value == pytest.approx(right / whole)
