import numpy as np
import pytest
import sacrebleu

from heedful.evaluation.base import as_multi_reference, percentage
from heedful.evaluation.significance import Interval, batch_sizes, bootstrap_interval, resample_sums
from heedful.evaluation.text_metrics import BLEU
from tests.unit.evaluation.systems import REFERENCES, system


def share(sums):
    return percentage(sums[..., 0], sums[..., 1], if_zero=0.0)


def outcomes(right):
    return np.stack([right, np.ones_like(right)], axis=1).astype(np.float64)


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
