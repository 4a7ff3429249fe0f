"""Gains: those of sacreBLEU, for all pairs at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from heedful.search.minimum_bayes_risk import UTILITIES

WORDS = st.sampled_from(["the", "dog", "a", "cat,", "is.", "in", "(it)", "don't", "\u00e9t\u00e9"])
TEXTS = st.lists(st.lists(WORDS, max_size=7).map(" ".join), min_size=1, max_size=5)
DEMO_SENTENCES = {"bleu": BLEU(effective_order=True), "chrf": CHRF()}


@pytest.mark.parametrize("name", UTILITIES)
@given(texts=TEXTS)
def test_a_gain_is_the_sentence_score_of_sacrebleu(name, texts):
    expected = [
        [DEMO_SENTENCES[name].sentence_score(output, [truth]).score for truth in texts]
        for output in texts
    ]
    np.testing.assert_allclose(UTILITIES[name](texts), expected, atol=1e-9)


@pytest.mark.parametrize("name", UTILITIES)
def test_an_output_gains_all_from_itself(name):
    np.testing.assert_allclose(np.diag(UTILITIES[name](["a dog", "the cat is in"])), 100)
