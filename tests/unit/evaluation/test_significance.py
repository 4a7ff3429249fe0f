"""Significance tests and bootstrap intervals, against exact ones and sacreBLEU."""

from itertools import product

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest

from heedful.evaluation.base import as_multi_reference, percentage
from heedful.evaluation.registry import METRICS
from heedful.evaluation.significance import (
    Interval,
    batch_sizes,
    bootstrap_interval,
    compare_systems,
    resample_sums,
)
from heedful.evaluation.text_metrics import BLEU, CHRF, TER
from tests.unit.evaluation.systems import REFERENCES, system

TESTS = ["bootstrap", "randomization"]
ADDING = ["exact-match", "bleu", "chrf", "ter", "rouge-1", "rouge-l", "token-accuracy", "wer"]
ADDING += ["bleu-2", "caption-rouge-l", "cider-d"]

both_tests = pytest.mark.parametrize("test", TESTS)


def share(sums):
    return percentage(sums[..., 0], sums[..., 1], if_zero=0.0)


def outcomes(right):
    return np.stack([right, np.ones_like(right)], axis=1).astype(np.float64)


def counted(outputs, metric=BLEU):
    return metric.sentence_statistics(outputs, as_multi_reference(REFERENCES))


@both_tests
@pytest.mark.parametrize("name", ADDING)
def test_system_against_itself_has_p_one(test, name):
    metric = METRICS[name]
    result = counted(system(0.3), metric)
    assert compare_systems(result, result, metric.compute, test=test, num_samples=50) == (0.0, 1.0)


@both_tests
@given(rows=st.lists(st.tuples(*[st.booleans()] * 2), min_size=2, max_size=12))
def test_p_value_is_symmetric(test, rows):
    one, other = (outcomes(np.array(right)) for right in zip(*rows, strict=True))
    pairs = ((one, other), (other, one))
    result, turned = (compare_systems(*pair, share, test=test, num_samples=100) for pair in pairs)
    assert result.value == pytest.approx(-turned.value)
    assert result.p_value == pytest.approx(turned.p_value)
    assert 0 < result.p_value <= 1


@both_tests
def test_clear_difference_is_significant(test):
    better, worse, like = (counted(system(*rest)) for rest in ((0.1,), (0.4,), (0.1,)))
    result = compare_systems(better, worse, BLEU.compute, test=test)
    assert result.is_significant
    assert result.value == pytest.approx(
        float(BLEU.compute(better.sum(axis=0)) - BLEU.compute(worse.sum(axis=0)))
    )
    assert compare_systems(worse, better, BLEU.compute, test=test).value < 0
    assert not compare_systems(better, like, BLEU.compute, test=test).is_significant


def test_randomization_approaches_the_exact_test():
    one, other = np.array([1, 1, 1, 1, 0, 1, 1, 1]), np.array([0, 0, 1, 0, 1, 0, 1, 0])
    real, as_large = abs(int((one - other).sum())), 0
    for signs in product((1, -1), repeat=8):
        as_large += abs(int((np.array(signs) * (one - other)).sum())) >= real
    result = compare_systems(outcomes(one), outcomes(other), share)
    assert result.p_value == pytest.approx(as_large / 2**8, abs=0.015)


@both_tests
def test_false_positive_rate_is_the_level(test):
    rng, called, trials = np.random.default_rng(5), 0, 300
    for _ in range(trials):
        one, other = (outcomes(rng.random(120) < 0.6) for _ in range(2))
        called += compare_systems(one, other, share, test=test, num_samples=200).is_significant
    # 5 % of 300 is 15, give or take three times 3.8.
    assert 4 <= called <= 27


def sacre(outputs, baseline, kind, samples, metric=BLEU):
    named = [("baseline", baseline), ("system", outputs)]
    _, table = PairedTest(named, {metric.name: metric.factory()}, [REFERENCES], kind, samples)()
    *_, (_, result) = table.values()  # its names, then its only metric
    return result.p_value


@pytest.mark.parametrize("metric", [BLEU, CHRF, TER], ids=lambda metric: metric.name)
def test_randomization_agrees_with_sacrebleu(metric):
    unclear = system(0.3, seed=1), system(0.32, seed=4)
    theirs = sacre(*unclear, "ar", 4000, metric)
    result = compare_systems(*(counted(outputs, metric) for outputs in unclear), metric.compute)
    assert 0.005 < theirs < 0.5
    # Shares of 4,000 and of 10,000 trials: three times their deviation at p = 1/4 is 0.025.
    assert result.p_value == pytest.approx(theirs, abs=0.025)


def test_bootstrap_is_two_sided_and_sacrebleu_one_sided():
    clear = system(0.3, seed=1), system(0.33, seed=4)
    theirs = sacre(*clear, "bs", 4000)
    result = compare_systems(*map(counted, clear), BLEU.compute, test="bootstrap", num_samples=4000)
    assert 0.015 < theirs < 0.035
    assert result.p_value == pytest.approx(2 * theirs, abs=0.02)


def test_both_tests_agree_approximately():
    unclear = [counted(system(0.3, seed=1)), counted(system(0.32, seed=4))]
    one, other = (compare_systems(*unclear, BLEU.compute, test=test) for test in TESTS)
    assert one.value == other.value
    assert one.p_value == pytest.approx(other.p_value, abs=0.04)


def test_systems_of_different_test_sets_are_an_error():
    with pytest.raises(AssertionError, match="paired"):
        compare_systems(np.ones((2, 2)), np.ones((3, 2)), share)


def test_interval_coverage_is_the_level():
    rng, truth, held = np.random.default_rng(1), 0.7, 0
    for _ in range(300):
        result = bootstrap_interval(
            outcomes(rng.random(150) < truth), share, num_samples=300, level=0.9
        )
        held += result.low <= 100 * truth <= result.high
    # 90 % of 300 is 270, give or take three times 5.2; 150 sentences make it a little narrow.
    assert 250 <= held <= 287


def test_interval_width_same_as_the_standard_error():
    right = np.arange(400) % 4 > 0
    result = bootstrap_interval(outcomes(right), share, num_samples=4000)
    by_hand = 1.96 * 100 * np.sqrt(0.75 * 0.25 / 400)
    assert (result.high - result.low) / 2 == pytest.approx(by_hand, rel=0.06)
    assert result.low < 75 < result.high


def test_same_seed_returns_the_same_interval():
    counted = BLEU.sentence_statistics(system(0.3), as_multi_reference(REFERENCES))
    one, again, other = (bootstrap_interval(counted, BLEU.compute, seed=seed) for seed in (1, 1, 2))
    assert one == again != other


def test_equal_sentences_have_an_interval_of_width_zero():
    assert bootstrap_interval(outcomes(np.ones(9)), share) == Interval(100, 100, 0.95)


def test_bootstrap_samples_have_the_size_of_the_test_set(monkeypatch):
    drawn = np.concatenate(list(resample_sums(np.eye(5), 4000, 3)))
    assert (drawn.sum(axis=1) == 5).all()
    assert drawn.mean(axis=0) == pytest.approx(np.ones(5), abs=0.06)
    assert drawn.var(axis=0) == pytest.approx(np.full(5, 4 / 5), abs=0.1)  # binomial


def test_large_samples_drawn_in_batches():
    assert list(batch_sizes(10, 1_500_000)) == [2, 2, 2, 2, 2]
    assert list(batch_sizes(3, 10**9)) == [1, 1, 1]
    assert list(batch_sizes(1000, 10)) == [1000]


def test_interval_is_close_to_sacrebleu():
    outputs = system(0.3)
    theirs = sacrebleu.metrics.BLEU().corpus_score(outputs, [REFERENCES], n_bootstrap=1000)
    result = bootstrap_interval(
        BLEU.sentence_statistics(outputs, as_multi_reference(REFERENCES)), BLEU.compute
    )
    assert (result.high - result.low) / 2 == pytest.approx(theirs._ci, rel=0.1)
    assert (result.low + result.high) / 2 == pytest.approx(theirs._mean, abs=theirs._ci / 5)
