"""Built-in series: their predictive distributions equal what theory says, splits differ."""

import numpy as np
import pytest

from heedful.data.synthetic.series import (
    REAL_SERIES,
    SERIES_PROCESSES,
    BuiltInSeriesConfig,
    SeriesParameters,
)
from heedful.errors import DataError

NUM_PATHS = 40_000


def paths_of(name, parameters, history, steps):
    rng = np.random.default_rng(0)
    return SERIES_PROCESSES[name].sample_paths(parameters, history, (NUM_PATHS, steps), rng)


def test_seasonal_process_is_gaussian_around_level_trend_and_wave():
    parameters = SeriesParameters(100, 0.5, 0.1, 0.1)
    paths = paths_of("seasonal", parameters, np.zeros(30), 2)
    times = np.array([30, 31])
    means = 100 * (1 + 0.0005 * times + 0.5 * np.sin(2 * np.pi * times / 24 + 0.1))
    np.testing.assert_allclose(paths.mean(axis=0), means, atol=0.3)
    quantiles = np.quantile(paths, [0.1, 0.9], axis=0)
    np.testing.assert_allclose(quantiles, [means - 12.816, means + 12.816], atol=0.5)


def test_counts_have_negative_binomial_moments_and_fewer_at_weekends():
    parameters = SeriesParameters(50, 0.4, 0.0, 0.1)
    paths = paths_of("counts", parameters, np.zeros(0), 7)  # from a Wednesday
    means = np.array([50, 50, 50, 20, 20, 50, 50])
    np.testing.assert_allclose(paths.mean(axis=0), means, rtol=0.02)
    np.testing.assert_allclose(paths.var(axis=0), means + 0.1 * means**2, rtol=0.05)


def test_heavy_tailed_process_has_the_moments_of_an_autoregression():
    parameters = SeriesParameters(20, 0.7, 0.0, 2.0)
    paths = paths_of("heavy-tailed", parameters, np.array([5.0, 30.0]), 3)
    np.testing.assert_allclose(paths.mean(axis=0), 20 + 10 * 0.7 ** np.arange(1, 4), atol=0.1)
    shock = 2.0**2 * 4 / (4 - 2)  # variance of a scaled Student-t with 4 degrees of freedom
    variances = shock * np.cumsum(0.49 ** np.arange(3))
    np.testing.assert_allclose(paths.var(axis=0), variances, rtol=0.15)


@pytest.mark.parametrize("name", SERIES_PROCESSES)
def test_splits_and_seeds_return_different_series_and_repeat_exactly(name):
    def values(**settings):
        config = BuiltInSeriesConfig(name=name, num_examples=2, length=30, **settings)
        return [series.values.tolist() for series in config.read()]

    assert values() == values()
    others = [values(), values(split="test"), values(seed=1)]
    assert all(others[i][0] != others[j][0] for i in range(3) for j in range(i))
    assert others[0][0] != others[0][1]


@pytest.mark.parametrize("name", REAL_SERIES)
def test_real_series_is_trained_on_without_the_end(name):
    (whole,) = BuiltInSeriesConfig(name=name, split="test").read()
    (train,) = BuiltInSeriesConfig(name=name).read()
    held_out = REAL_SERIES[name].held_out
    np.testing.assert_array_equal(train.values, whole.values[:-held_out])
    assert whole.format_times(0, 1) == ["1950-01"]
    assert len(whole.values) == 732


def test_unknown_name_raises():
    with pytest.raises(DataError, match=r"no built-in series is called 'seasonl'; did you mean"):
        BuiltInSeriesConfig(name="seasonl").read()
