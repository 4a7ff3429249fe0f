import math

import numpy as np
import pytest

from heedful.evaluation.resampling import bootstrap
from heedful.evaluation.surprises import (
    entropy_statistics,
    entropy_total,
    log_prob_statistics,
    perplexity_total,
)


def test_perplexity_is_the_number_of_equally_likely_tokens():
    log_probs = [[math.log(1 / 8)] * 3, [], [math.log(1 / 2)] * 3]
    sums = log_prob_statistics(log_probs).sum(axis=0)
    assert perplexity_total(sums) == pytest.approx(4)  # the geometric mean of 8 and 2


def test_a_surprise_beyond_all_numbers_is_infinite_and_none_is_one():
    assert perplexity_total(np.array([[1e6, 1.0], [0.0, 0.0]])).tolist() == [math.inf, 1.0]


def test_perplexity_has_an_interval_as_other_scores_have():
    chance = np.random.default_rng(0)
    counted = log_prob_statistics([-chance.random(5) for _ in range(50)])
    low, high, _ = bootstrap(counted, perplexity_total)
    assert low < perplexity_total(counted.sum(axis=0)) < high


def test_entropy_is_the_mean_over_rows_that_looked_anywhere():
    even, sharp, nowhere = [0.25] * 4, [0, 1, 0, 0], [0] * 4
    counted = entropy_statistics([np.array([even, nowhere]), np.array([sharp])])
    assert counted.tolist() == [pytest.approx([math.log(4), 1]), [0, 1]]
    assert entropy_total(counted.sum(axis=0)) == pytest.approx(math.log(4) / 2)


def test_rows_that_leak_are_made_whole_first():
    leaking = np.array([[0.1, 0.1, 0.0]], dtype=np.float32)
    assert entropy_statistics([leaking])[0, 0] == pytest.approx(math.log(2))


def test_outputs_without_a_token_looked_nowhere():
    assert entropy_total(entropy_statistics([np.zeros((0, 3))]).sum(axis=0)) == 0
