"""Minimum Bayes risk: expected utilities by a double loop, and utilities of sacreBLEU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from heedful.search.minimum_bayes_risk import (
    UTILITIES,
    count_distinct,
    expected_utilities,
    pairwise_utilities,
    select_mbr,
)

some_outputs = st.lists(st.text("ab", max_size=4), min_size=1, max_size=9)
WORDS = st.sampled_from(["the", "dog", "a", "cat,", "is.", "in", "(it)", "don't", "\u00e9t\u00e9"])
TEXTS = st.lists(st.lists(WORDS, max_size=7).map(" ".join), min_size=1, max_size=5)
SACREBLEU = {"bleu": BLEU(effective_order=True), "chrf": CHRF()}


def matching_letters(output, reference):
    """An asymmetric utility: the fraction of reference letters in the same position."""
    pairs = zip(output, reference, strict=False)
    return sum(letter == other for letter, other in pairs) / (1 + len(reference))


@given(outputs=some_outputs)
def test_selected_output_has_highest_expected_utility(outputs):
    best, highest = 0, -1.0
    for index, output in enumerate(outputs):
        total = sum(matching_letters(output, reference) for reference in outputs)
        if total / len(outputs) > highest + 1e-12:
            best, highest = index, total / len(outputs)
    utilities = pairwise_utilities(outputs, matching_letters)
    expected = expected_utilities(utilities)
    assert expected[select_mbr(utilities)] == pytest.approx(highest)
    assert expected[select_mbr(utilities)] == pytest.approx(expected[best])


@given(outputs=some_outputs)
def test_equal_outputs_weighted_by_count(outputs):
    indices, counts = count_distinct(outputs)
    distinct = [outputs[index] for index in indices]
    assert len(set(distinct)) == len(distinct)
    expected = {output: outputs.count(output) for output in outputs}
    assert dict(zip(distinct, counts, strict=True)) == expected
    assert indices == [outputs.index(output) for output in distinct]
    by_counts = expected_utilities(pairwise_utilities(distinct, matching_letters), counts)
    by_samples = expected_utilities(pairwise_utilities(outputs, matching_letters))
    assert by_counts.tolist() == pytest.approx(by_samples[indices].tolist())


@given(values=st.permutations([0.1, 0.2, 0.3, 0.7, 1e-9, 1e9]))
def test_first_of_equal_outputs_is_selected_for_any_order_of_summation(values):
    utilities = np.zeros((6, 6))
    utilities[2], utilities[4] = values, sorted(values)
    assert select_mbr(utilities) == 2


@pytest.mark.parametrize(
    "utilities", [np.zeros((2, 3)), np.array([[np.nan]])], ids=["shape", "nan"]
)
def test_invalid_utilities_fail(utilities):
    with pytest.raises(AssertionError):
        select_mbr(utilities)


@pytest.mark.parametrize("name", UTILITIES)
@given(texts=TEXTS)
def test_utilities_equal_sentence_scores_of_sacrebleu(name, texts):
    metric = SACREBLEU[name]
    expected = [
        [metric.sentence_score(output, [reference]).score for reference in texts]
        for output in texts
    ]
    np.testing.assert_allclose(UTILITIES[name](texts), expected, atol=1e-9)
