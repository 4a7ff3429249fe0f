"""Forecasting as a task: windows of time series, and the likelihood of their values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.series.batching import SeriesBatch, series_key
from heedful.data.series.series import Series, SeriesFileConfig
from heedful.errors import check, format_count
from heedful.evaluation.base import Direction
from heedful.evaluation.registry import LOSS, MetricSpec
from heedful.pytree import to_float64
from heedful.tasks.evaluation import DevEvaluator, Evaluation
from heedful.tasks.forecasting.data import SeriesData, SeriesDataModule, choose_settings
from heedful.tasks.forecasting.forecast import SCORE_NAMES, Forecast, score_forecasts
from heedful.tasks.forecasting.model import ForecastingModel, ForecastingModelConfig
from heedful.tasks.forecasting.pages import render_forecast_page
from heedful.tasks.forecasting.predictor import Forecaster
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.task import DefaultRecipe, Task
from heedful.training.callbacks import LoggedSample
from heedful.training.config import TrainingConfig
from heedful.training.objectives import LikelihoodObjective

_VALIDATION_SAMPLES = 100
_PAGE_LEVELS = (0.1, 0.5, 0.9)


class DevForecaster(DevEvaluator):
    """Forecasts the last window of dev series."""

    def _forecast(self, count: int | None) -> list[Forecast]:
        with self.predictor() as forecaster:
            return list(
                forecaster.backtest(
                    self.data_module.dev.series[:count],
                    num_windows=forecaster.num_windows,
                    num_samples=_VALIDATION_SAMPLES,
                )
            )

    @override
    def compute_scores(
        self, names: Sequence[str], *, max_examples: int | None = None
    ) -> dict[str, float]:
        names = [name for name in names if name in SCORE_NAMES]
        if not names:
            return {}
        scores = score_forecasts(self._forecast(max_examples), self.config.model.season_length)
        return {name: scores[SCORE_NAMES[name]] for name in names}

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        return [_to_sample(forecast) for forecast in self._forecast(count)[:count]] if count else []


def _to_sample(forecast: Forecast) -> LoggedSample:
    start, horizon = forecast.forecast_start, len(forecast.targets)
    before = forecast.series.values[max(0, start - horizon) : start]
    return LoggedSample(
        source=_format(before),
        reference=" ".join(_format(forecast.targets)),
        output=list(forecast.tokens),
        text=forecast.text,
        attention=(),
        source_text=f"{forecast.series.id}: {' '.join(_format(before))}",
    )


def _format(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[str]:
    return [f"{value:.4g}" for value in values]


class ForecastingEvaluation(Evaluation):
    """The evaluation of forecasters."""

    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        "loss": LOSS,
        "weighted-quantile-loss": MetricSpec("Weighted quantile loss", higher_is_better=False),
        "mase": MetricSpec("MASE", higher_is_better=False),
        "smape": MetricSpec("sMAPE", higher_is_better=False),
        "calibration-error": MetricSpec("Calibration error", higher_is_better=False),
    }
    shown_metrics = ("weighted-quantile-loss", "mase")
    draws_page = True
    compared_scores: ClassVar[Mapping[str, Direction]] = {
        "weighted quantile loss": "lower",
        "MASE": "lower",
        "sMAPE": "lower",
        "calibration error": "lower",
        "negative log-likelihood": "lower",
    }
    comparison_hint = (
        "compare runs with equal model.prediction_length, model.season_length and "
        "data.series_batching.num_validation_windows"
    )
    dev_evaluator = DevForecaster

    @override
    def batch_sums(self, model: Any, batch: SeriesBatch) -> Tensor:
        """Return -log p of the prediction range, and the number of its values."""
        horizon = model.shape.prediction_length
        log_probs = model(batch).log_probs[:, -horizon:]
        count = batch.is_observed[:, -horizon:].sum()
        return torch.stack([-to_float64(log_probs).sum().cpu(), count.double().cpu()])

    @override
    def render_page(self, predictor: Forecaster, examples: Sequence[Series], title: str) -> str:
        forecasts = list(predictor.backtest(examples, num_windows=predictor.num_windows))
        return render_forecast_page(forecasts, _PAGE_LEVELS, title)

    @override
    def comparison_key(self, predictor: Forecaster, examples: Sequence[Series]) -> object:
        config = predictor.config
        return config.prediction_length, config.season_length, predictor.num_windows


class SeriesLikelihood(LikelihoodObjective):
    """-log p(z_t | z_<t), summed over context and prediction range (Salinas et al. 2020, eq. 2).

    The context also counts: its values are predicted by the same network.
    """

    @override
    def normalizer(self, batch: SeriesBatch) -> int:
        return max(1, batch.num_targets)


class ForecastingTask(Task):
    """Forecasting of time series."""

    name = "forecasting"
    description = "forecasts time series"
    next_command = "forecast {run} FILE"
    model_configs = (ForecastingModelConfig,)
    data = SeriesData()
    evaluation = ForecastingEvaluation()
    objective = SeriesLikelihood
    no_decoder = "needs tokens, and a forecaster has none"

    @override
    def default_recipe(self, device: torch.device, train: Any) -> DefaultRecipe:
        return DefaultRecipe("default-forecaster", choose_settings(train.read()) if train else {})

    @override
    def initialize_model(self, model: nn.Module, data_module: SeriesDataModule) -> None:
        """Assign the vectors of a series embedding to the training series."""
        assert isinstance(model, ForecastingModel), type(model)
        if model.series_embedding is not None:
            model.series_embedding.set_series(list(map(series_key, data_module.train.series)))

    @override
    def check_objective(self, training: TrainingConfig) -> None:
        super().check_objective(training)
        message, location = "a forecaster has no tokens to smooth", "training.label_smoothing"
        check(not training.label_smoothing, location, message, "remove it")

    @override
    def build_predictor(self, run: LoadedRun, device: torch.device) -> Forecaster:
        model, config = cast(ForecastingModel, run.model), run.config
        num_windows = config.data.series_batching.num_validation_windows
        forecaster = Forecaster(model, config.model, num_windows=num_windows, device=device)
        if isinstance(config.data.train, SeriesFileConfig):
            forecaster.file_settings = config.data.train.column_settings
        return forecaster

    @override
    def find_mismatch(
        self, first: Forecaster, other: Forecaster, folder: Path | str
    ) -> tuple[str, str] | None:
        expected, horizon = (part.config.prediction_length for part in (first, other))
        message = f"forecasts {format_count(horizon, 'value')}, but {folder} {expected}"
        hint = "use runs with the same model.prediction_length"
        return (message, hint) if horizon != expected else None


TASK = ForecastingTask()
