"""Rewards against other people's code, and against slow loops from the papers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from heedful.training.rollouts import PAIR_REWARDS, gleu, sentence_bleu

TEXTS = st.lists(st.integers(4, 8), max_size=12)


def runs(tokens):
    return [
        tokens[i:j] for i in range(len(tokens)) for j in range(i + 1, len(tokens) + 1) if j - i <= 4
    ]


def gleu_by_crossing_out(output, reference):
    left, matching = runs(reference), 0
    for run in runs(output):
        if run in left:
            left.remove(run)
            matching += 1
    precision, recall = (matching / len(runs(each)) for each in (output, reference))
    return min(precision, recall)


@given(output=TEXTS.filter(bool), reference=TEXTS.filter(bool))
def test_gleu_is_the_minimum_of_precision_and_recall(output, reference):
    assert gleu(output, reference) == pytest.approx(gleu_by_crossing_out(output, reference))
    assert gleu(output, reference) == gleu(reference, output)


@given(output=TEXTS.filter(bool), reference=TEXTS.filter(bool))
def test_sentence_bleu_same_as_sacrebleu_with_add_one_smoothing(output, reference):
    theirs = BLEU(smooth_method="add-k", smooth_value=1, tokenize="none", effective_order=True)
    said, wanted = (" ".join(map(str, each)) for each in (output, reference))
    assert 100 * sentence_bleu(output, reference) == pytest.approx(
        theirs.sentence_score(said, [wanted]).score
    )


def test_rewards_match_hand_calculation():
    # Of 1 to 4 tokens in a row: 10 runs in a text of 4 tokens, 6 in one of 3; "4", "5", "6", "4 5",
    # "5 6" and "4 5 6" match.
    assert gleu([4, 5, 6], [4, 5, 6, 7]) == 6 / 10
    assert sentence_bleu([4, 5, 6], [4, 5, 6, 7]) == pytest.approx(math.exp(1 - 4 / 3))
    assert sentence_bleu([4, 4, 4], [4, 5, 6]) == pytest.approx((1 / 3 * 1 / 3 * 1 / 2 * 1) ** 0.25)


@pytest.mark.parametrize("reward", PAIR_REWARDS.values())
@given(output=TEXTS, reference=TEXTS)
def test_reward_is_between_zero_and_one_and_one_for_equals(reward, output, reference):
    assert 0 <= reward(output, reference) <= 1
    assert reward(reference, reference) == 1
    if not set(output) & set(reference) and output != reference:
        assert reward(output, reference) == 0


@pytest.mark.parametrize("reward", PAIR_REWARDS.values())
def test_empty_output_is_right_only_for_an_empty_reference(reward):
    assert reward([], []) == 1
    assert reward([], [4]) == 0
    assert reward([4], []) == 0
