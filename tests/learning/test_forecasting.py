"""Forecasters beat the seasonal naive forecast, with calibrated quantiles of known processes."""

import numpy as np
import pytest

import heedful
from heedful.data.synthetic.series import SERIES_PROCESSES, BuiltInSeriesConfig
from heedful.evaluation.forecast_metrics import QUANTILE_LEVELS

pytestmark = pytest.mark.learning

TRANSFORMER = "transformer-forecaster-small"
SYSTEMS = {
    "seasonal": {"model.covariates.calendar": ["hour-of-day"]},
    "counts": {
        "model.head": "negative-binomial",
        "model.covariates.calendar": ["day-of-week"],
        "model.context_length": 42,
        "model.prediction_length": 14,
        "model.season_length": 7,
    },
    "heavy-tailed": {
        "model.head": "student-t",
        "model.covariates": {"calendar": [], "age": False},
        "model.prediction_length": 10,
        "model.season_length": 1,
    },
}


def scores_of(recipe, settings, folder, name):
    test = BuiltInSeriesConfig(name=name, split="test", num_examples=40, length=240)
    heedful.train(recipe, folder, settings=settings, device="cpu")
    forecaster = heedful.load(folder, device="cpu")
    examples = test.read()
    return {score.name: score.value for score in forecaster.evaluate(examples)}, forecaster


def check_beats_seasonal_naive(scores):
    for name in ("weighted quantile loss", "MASE"):
        assert scores[name] < scores[f"{name}, seasonal naive"], scores


@pytest.mark.parametrize(
    ("recipe", "name"),
    [*(("deepar-2020-small", name) for name in SYSTEMS), (TRANSFORMER, "heavy-tailed")],
)
def test_quantiles_calibrated_on_known_processes(recipe, name, tmp_path):
    data = {"type": "built-in-series", "name": name, "length": 400}
    settings = {"data.train": data, "data.test": None, **SYSTEMS[name]}
    settings["training.validate_every"] = 400  # validations take longer than the steps
    scores, forecaster = scores_of(recipe, settings, tmp_path / "run", name)
    check_beats_seasonal_naive(scores)
    assert 70 < scores["coverage of the 80 % interval"] < 90
    check_near_true_quantiles(forecaster, name)


def check_near_true_quantiles(forecaster, name, count=20):
    """The loss is near that of the true predictive distribution, which nothing can beat by much."""
    config = BuiltInSeriesConfig(name=name, split="test", num_examples=count, length=240)
    process, horizon = SERIES_PROCESSES[name], forecaster.config.prediction_length
    forecasts = list(forecaster.backtest(config.read()))
    levels = np.array(QUANTILE_LEVELS)
    losses = np.zeros(2)
    for index, forecast in enumerate(forecasts):
        rng = config.generator(index)
        parameters, values = process.generate(rng, config.length)
        np.testing.assert_array_equal(values, forecast.series.values)
        paths = process.sample_paths(parameters, values[:-horizon], (2000, horizon), rng)
        for which, samples in enumerate((forecast.samples, paths)):
            errors = forecast.targets[:, None] - np.quantile(samples, levels, axis=0).T
            losses[which] += (np.maximum(levels * errors, (levels - 1) * errors)).sum()
    assert losses[0] < 1.35 * losses[1], losses / losses[1]


def test_real_series_is_forecast_better_than_by_the_last_year(tmp_path):
    settings = {
        "data.train": {"type": "built-in-series", "name": "el-nino"},
        "data.test": None,
        "data.series_batching.num_validation_windows": 10,
        "model.covariates": {"calendar": ["month-of-year"], "age": False},
        "model.scaling": "standard",
        "model.context_length": 36,
        "model.prediction_length": 12,
        "model.season_length": 12,
        "training.max_steps": 150,  # more overfit one series
        "training.validate_every": 50,
    }
    scores, _ = scores_of("deepar-2020-small", settings, tmp_path / "run", "el-nino")
    check_beats_seasonal_naive(scores)
