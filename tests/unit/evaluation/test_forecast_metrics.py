"""Metrics of forecasts, by hand; the quantile loss is smallest at the true quantile."""

import numpy as np
import pytest

from heedful.evaluation import forecast_metrics as metrics


def test_quantile_loss_same_as_hand_calculation():
    targets, quantiles = np.array([[10.0, 10.0]]), np.array([[[8.0, 13.0], [10.0, 10.0]]])
    losses = metrics.quantile_loss(targets, quantiles, [0.9, 0.5])
    # 2 * 0.9 * 2 for a quantile 2 too low; 2 * 0.5 * 3 for one 3 too high.
    np.testing.assert_allclose(losses, [[[3.6, 3.0], [0.0, 0.0]]])
    weighted = metrics.weighted_quantile_loss(targets, quantiles, [0.9, 0.5])
    assert weighted == pytest.approx((3.6 + 3.0) / 2 / 20)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.8])
def test_quantile_loss_is_smallest_at_the_quantile(level):
    targets = np.random.default_rng(0).exponential(size=(1, 5001))
    guesses = np.linspace(0, 4, 401)
    losses = [
        metrics.quantile_loss(targets, np.full((1, 5001, 1), guess), [level]).sum()
        for guess in guesses
    ]
    best = guesses[int(np.argmin(losses))]
    assert best == pytest.approx(np.quantile(targets, level), abs=0.02)


def test_missing_targets_do_not_count():
    targets, forecasts = np.array([[1.0, np.nan, 3.0]]), np.array([[2.0, 50.0, 3.0]])
    assert metrics.mase(targets, forecasts, np.array([2.0])) == pytest.approx(0.25)
    assert metrics.smape(targets, forecasts) == pytest.approx(100 / 3)
    quantiles = np.stack([forecasts, forecasts - 1.5], axis=-1)
    np.testing.assert_allclose(metrics.coverage(targets, quantiles), [1.0, 0.0])
    assert metrics.weighted_quantile_loss(targets, forecasts[..., None], [0.5]) == 0.25


def test_seasonal_naive_repeats_the_last_season_with_gaps_from_an_earlier_one():
    values = np.array([1.0, 2.0, 3.0, 4.0, np.nan, 6.0])
    assert metrics.seasonal_naive(values, 3, 5).tolist() == [4, 2, 6, 4, 2]
    assert metrics.seasonal_naive(values[:2], 3, 2).tolist() == [2, 2]
    assert metrics.seasonal_error(values, 3) == 3.0
    assert np.isnan(metrics.seasonal_error(values[:1], 3))
