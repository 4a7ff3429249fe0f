"""A forecast, its JSON values, and the metrics of forecasts whose actual values are known."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from heedful.data.series.series import Series
from heedful.evaluation import forecast_metrics
from heedful.evaluation.base import Array
from heedful.evaluation.forecast_metrics import QUANTILE_LEVELS
from heedful.inspection.attention_layers import AttentionLayer

_EVALUATED_INTERVALS = (50, 80)  # in percent; from QUANTILE_LEVELS
_DIGITS = 6


class Forecast(NamedTuple):
    """Sample paths of a series from some position on."""

    series: Series
    forecast_start: int
    samples: Array  # (paths, steps)
    attention_layers: Sequence[AttentionLayer] = ()  # of its last window, if they were requested
    attention_map: None = None
    need_paths: bool = False  # in the JSON of `Forecaster.to_json`

    @classmethod
    def from_json(cls, series: Series, fields: Mapping[str, Any]) -> Self:
        """Return the forecast of a series from its JSON, which has the paths."""
        return cls(series, len(series.values), np.array(fields["paths"]))

    @property
    def times(self) -> list[str]:
        """The times of the steps."""
        start = self.forecast_start
        return self.series.format_times(start, start + self.samples.shape[1])

    @property
    def targets(self) -> Array:
        """The values of the steps; NaN where they are not known."""
        targets = np.full(self.samples.shape[1], np.nan)
        actual = self.series.values[self.forecast_start :][: len(targets)]
        targets[: len(actual)] = actual
        return targets

    @property
    def mean(self) -> Array:
        """The mean of the paths at each step."""
        return self.samples.mean(axis=0)

    def quantiles(self, levels: Sequence[float]) -> Array:
        """Return quantiles of the paths at each step, (steps, levels)."""
        return np.quantile(self.samples, levels, axis=0).T

    @property
    def tokens(self) -> Sequence[str]:
        """The medians as they are shown."""
        return [f"{median:.4g}" for median in self.quantiles([0.5])[:, 0]]

    @property
    def text(self) -> str:
        """The medians in one line."""
        return " ".join(self.tokens)

    def to_json(
        self, levels: Sequence[float] = (0.1, 0.5, 0.9), *, has_paths: bool = False
    ) -> dict[str, Any]:
        """Return JSON values; docs/forecasting.md explains each field."""
        columns = zip(levels, self.quantiles(levels).T, strict=True)
        fields: dict[str, Any] = {
            "id": self.series.id,
            "times": self.times,
            "mean": _rounded(self.mean),
            "quantiles": {f"{level:g}": _rounded(column) for level, column in columns},
        }
        if not np.isnan(self.targets).all():
            fields["actual"] = [None if np.isnan(z) else z for z in self.targets.tolist()]
        if has_paths:
            fields["paths"] = self.samples.tolist()
        return fields


def _rounded(values: Array) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def score_forecasts(forecasts: Sequence[Forecast], season_length: int) -> dict[str, float]:
    """Return the metrics of forecasts by name."""
    quantiles = np.stack([forecast.quantiles(QUANTILE_LEVELS) for forecast in forecasts])
    targets = np.stack([forecast.targets for forecast in forecasts])
    scores = _score(targets, quantiles, forecasts, season_length)
    for percent in _EVALUATED_INTERVALS:
        low, high = (quantiles[..., _level_index(50 + sign * percent / 2)] for sign in (-1, 1))
        is_inside = np.where(np.isnan(targets), np.nan, (targets >= low) & (targets <= high))
        scores[f"coverage of the {percent} % interval"] = 100 * float(np.nanmean(is_inside))
    below = quantile_coverage(forecasts)
    scores["calibration error"] = 100 * float(np.abs(below - QUANTILE_LEVELS).mean())
    for level, fraction in zip(QUANTILE_LEVELS, below.tolist(), strict=True):
        scores[f"coverage of quantile {level:g}"] = 100 * fraction
    return scores


def quantile_coverage(forecasts: Sequence[Forecast]) -> Array:
    """Return the fraction of actual values that are not above the quantile of each level."""
    quantiles = np.stack([forecast.quantiles(QUANTILE_LEVELS) for forecast in forecasts])
    targets = np.stack([forecast.targets for forecast in forecasts])
    return forecast_metrics.coverage(targets, quantiles)


def _level_index(percent: float) -> int:
    return int(np.argmin(np.abs(np.array(QUANTILE_LEVELS) - percent / 100)))


def score_seasonal_naive(forecasts: Sequence[Forecast], season_length: int) -> dict[str, float]:
    """Return the metrics of the seasonal naive forecast of the same windows."""
    rows = [
        forecast_metrics.seasonal_naive(
            forecast.series.values[: forecast.forecast_start],
            season_length,
            forecast.samples.shape[1],
        )
        for forecast in forecasts
    ]
    targets = np.stack([forecast.targets for forecast in forecasts])
    quantiles = np.repeat(np.stack(rows)[..., None], len(QUANTILE_LEVELS), axis=-1)
    return _score(targets, quantiles, forecasts, season_length)


def _score(
    targets: Array, quantiles: Array, forecasts: Sequence[Forecast], season_length: int
) -> dict[str, float]:
    medians = quantiles[..., len(QUANTILE_LEVELS) // 2]
    errors = [
        forecast_metrics.seasonal_error(
            forecast.series.values[: forecast.forecast_start], season_length
        )
        for forecast in forecasts
    ]
    loss = forecast_metrics.weighted_quantile_loss(targets, quantiles, QUANTILE_LEVELS)
    return {
        "weighted quantile loss": loss,
        "MASE": forecast_metrics.mase(targets, medians, np.array(errors)),
        "sMAPE": forecast_metrics.smape(targets, medians),
    }


SCORE_NAMES: Mapping[str, str] = {
    "weighted-quantile-loss": "weighted quantile loss",
    "mase": "MASE",
    "smape": "sMAPE",
    "calibration-error": "calibration error",
}
"""Validation metrics, and their names in `score_forecasts`."""
