"""Novelty and copied fragments, by hand and by brute force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import SOURCE_METRICS
from heedful.evaluation.significance import bootstrap_interval
from heedful.evaluation.text_metrics import extractive_fragments

SOURCE = "the quick brown fox jumps over the lazy dog"
WORDS = st.lists(st.sampled_from("abcd"), max_size=9)
every_metric = pytest.mark.parametrize("name", SOURCE_METRICS)


def score(name, output, source=SOURCE):
    return compute_score(SOURCE_METRICS[name], [output], [source]).value


def scores(output, source=SOURCE):
    return [score(name, output, source) for name in SOURCE_METRICS]


def test_source_metrics_match_hand_calculation():
    # Fragments: "quick brown" (2), "dog" (1), "over the lazy dog" (4); "red" and "sleeps" are new.
    output = "Quick brown red dog sleeps over the lazy dog."
    novel = [2 / 9, 4 / 8, 5 / 7, 5 / 6]
    # 2-grams: "brown red", "red dog", "dog sleeps", "sleeps over"; 3-grams: 5 of 7 touch a new
    # word or "dog"; 4-grams: only "over the lazy dog" is in the source.
    expected = [100 * share for share in novel] + [100 * 7 / 9, (4 + 1 + 16) / 9, 4]
    assert scores(output) == pytest.approx(expected)


@given(source=WORDS, summary=WORDS)
def test_fragments_are_the_longest_common_runs_from_left_to_right(source, summary):
    """Greedy matching by substrings of a string, one letter per word."""
    text, rest, lengths = "".join(source), "".join(summary), []
    while rest:
        longest = max(n for n in range(len(rest) + 1) if rest[:n] in text)
        lengths += [longest] if longest else []
        rest = rest[longest or 1 :]
    assert extractive_fragments(source, summary) == lengths


@given(source=st.lists(st.sampled_from("abcd"), min_size=1, max_size=9), data=st.data())
def test_part_of_the_source_is_all_copied(source, data):
    start = data.draw(st.integers(0, len(source) - 1))
    part = source[start : data.draw(st.integers(start + 1, len(source)))]
    size = len(part)
    assert scores(" ".join(part), " ".join(source)) == [0, 0, 0, 0, 100, size, size]


def test_foreign_words_are_all_novel():
    assert scores("six seven eight nine") == [100, 100, 100, 100, 0, 0, 0]


@every_metric
def test_empty_output_counts_as_zero(name):
    assert score(name, "") == score(name, "...") == 0


@every_metric
def test_source_metrics_have_bootstrap_intervals(name):
    metric = SOURCE_METRICS[name]
    outputs = ["quick brown", "a new red dog sleeps", "over the lazy dog", "jumps over"]
    statistics = metric.sentence_statistics(outputs, [[SOURCE]] * 4)
    low, high, _ = bootstrap_interval(statistics, metric.compute)
    assert low <= metric.compute(statistics.sum(axis=0)) <= high


def test_novelty_weights_outputs_by_ngrams_and_coverage_does_not():
    outputs, sources = ["x", "the quick brown"], [SOURCE, SOURCE]
    values = {
        name: compute_score(SOURCE_METRICS[name], outputs, sources).value
        for name in ("novelty-1", "fragment-coverage")
    }
    assert values == {"novelty-1": 25, "fragment-coverage": 50}
