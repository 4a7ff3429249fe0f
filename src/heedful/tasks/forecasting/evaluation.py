"""The evaluation of forecasters."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from heedful.data.series.batching import SeriesBatch
from heedful.data.series.series import Series
from heedful.evaluation.base import Direction
from heedful.evaluation.registry import LOSS, MetricSpec
from heedful.pytree import to_float64
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.forecasting.pages import render_forecast_page
from heedful.tasks.forecasting.predictor import (
    SCORE_NAMES,
    Forecast,
    Forecaster,
    score_forecasts,
)
from heedful.tasks.prediction import DevEvaluator
from heedful.training.callbacks import LoggedSample

_VALIDATION_SAMPLES = 100
_PAGE_LEVELS = (0.1, 0.5, 0.9)


class DevForecaster(DevEvaluator):
    """Forecasts the last window of dev series."""

    def _forecast(self, count: int | None) -> list[Forecast]:
        config, dev = self.config, self.data_module.dev.series[:count]
        num_windows = config.data.series_batching.num_validation_windows
        with self.eval_mode():
            forecaster = Forecaster(self.model, config.model, device=self.device)
            return list(
                forecaster.backtest(dev, num_windows=num_windows, num_samples=_VALIDATION_SAMPLES)
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
        return [_to_sample(forecast) for forecast in self._forecast(count)[:count] if count]


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
    def finalize(self, sums: Tensor) -> dict[str, float]:
        loss, num_targets = sums.tolist()
        return {"loss": loss / max(num_targets, 1)}

    @override
    def format(self, metrics: Mapping[str, float]) -> str:
        shown = (f"{name.replace('-', ' ')} {score:.4f}" for name, score in metrics.items())
        return f"validation {', '.join(shown)}"

    @override
    def render_page(self, predictor: Forecaster, examples: Sequence[Series], title: str) -> str:
        forecasts = list(predictor.backtest(examples, num_windows=predictor.num_windows))
        return render_forecast_page(forecasts, _PAGE_LEVELS, title)

    @override
    def comparison_key(self, predictor: Forecaster, examples: Sequence[Series]) -> object:
        config = predictor.config
        return config.prediction_length, config.season_length, predictor.num_windows
