"""The data of forecasters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from typing_extensions import override

from heedful.data.series.batching import SeriesBatch, SeriesBatchStream, SeriesDataset
from heedful.data.series.series import Series, SeriesFileConfig, TimeGrid
from heedful.data.shuffling import DataCursor
from heedful.data.synthetic.series import BuiltInSeriesConfig
from heedful.data.text.example_formats import SERIES, ExampleSource
from heedful.errors import DataError, check, format_count
from heedful.tasks.command_line import Split
from heedful.tasks.forecasting.model import ForecastingModelConfig
from heedful.tasks.forecasting.predictor import check_values
from heedful.tasks.task_data import (
    BatchShape,
    DataModule,
    ExperimentConfig,
    NumericData,
    VocabSizes,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair

STEPS_PER_VALUE, MIN_STEPS = 0.3, 100
_HOUR, _DAY, _WEEK = 3600, 86_400, 604_800  # seconds
_HOURS_PER_DAY = 24
_SEASONS = (4, 7, 12, 24)  # that series without dates may have
_MIN_CORRELATION = 0.3
_MIN_GAIN = 0.05  # of a longer season, since a multiple of the season correlates as well
_MAX_MEAN_COUNT = 100
_MAX_SEASON_READ = 400  # values between a step and the season before it
_NUM_MEASURED = 200  # series whose season is looked for


class Frequency(NamedTuple):
    """What follows from the distance of times."""

    season: int
    prediction_length: int
    calendar: tuple[str, ...] = ()
    more_lags: tuple[int, ...] = ()


def choose_settings(series: Sequence[Series]) -> dict[str, Any]:
    """Return the settings of `default-forecaster` for these series.

    The distance of times gives the season, the length of a forecast and the calendar; without
    dates, the season is the distance at which the changes of the series correlate most. A step
    reads the values one and a season (of hours, also a week) before it. At most a quarter of the
    longest series is forecast. Counts, 0, 1, 2 ... with a mean below 100, have a negative binomial
    distribution, scaled by the mean; other values a Student-t distribution, scaled by mean and
    deviation. 0.3 steps per value, so that short series are not learned by heart.
    """
    frequency = _frequency(series[0].grid, series)
    longest = max(len(item.values) for item in series)
    horizon = max(1, min(frequency.prediction_length, longest // 4))
    values = np.concatenate([item.values for item in series])
    values = values[~np.isnan(values)]
    is_count = (values >= 0).all() and (values % 1 == 0).all() and values.mean() < _MAX_MEAN_COUNT
    max_lag = min(_MAX_SEASON_READ, longest // 2)
    lags = {1, *(lag for lag in (frequency.season, *frequency.more_lags) if lag <= max_lag)}
    return {
        "model.season_length": frequency.season,
        "model.prediction_length": horizon,
        "model.context_length": 2 * max(horizon, min(frequency.season, max_lag)),
        "model.lags": sorted(lags),
        "model.covariates.calendar": list(frequency.calendar),
        "model.head.type": "negative-binomial" if is_count else "student-t",
        "model.scaling": "mean" if is_count else "standard",
        "training.max_steps": max(MIN_STEPS, round(STEPS_PER_VALUE * len(values))),
    }


def _frequency(grid: TimeGrid, series: Sequence[Series]) -> Frequency:
    if grid.unit == "steps":
        season = _find_season(series)
        return Frequency(season, 24, more_lags=(7 * season,) if season == _HOURS_PER_DAY else ())
    if grid.unit == "months":
        season = max(1, 12 // grid.step)
        return Frequency(season, max(6, season), ("month-of-year",) if season > 1 else ())
    if grid.step < _DAY:
        day = _DAY // grid.step
        further_lags = (_WEEK // grid.step,) if grid.step == _HOUR else ()
        return Frequency(day, min(day, 48), ("hour-of-day", "day-of-week"), further_lags)
    if grid.step == _DAY:
        return Frequency(7, 14, ("day-of-week", "day-of-year"))
    weeks = max(1, round(grid.step / _WEEK))
    return Frequency(max(1, 52 // weeks), max(4, 13 // weeks), ("day-of-year",))


def _find_season(series: Sequence[Series]) -> int:
    """Return the distance at which changes correlate most, on average over series; else 1."""
    best, season = _MIN_CORRELATION, 1
    changes = [np.diff(np.nan_to_num(item.values)) for item in series[:_NUM_MEASURED]]
    for lag in _SEASONS:
        long_enough = [part - part.mean() for part in changes if len(part) >= 3 * lag]
        products = [
            (part[lag:] * part[:-lag]).mean() / max(part.var(), 1e-12) for part in long_enough
        ]
        if products and np.mean(products) > best:
            best, season = float(np.mean(products)) + _MIN_GAIN, lag
    return season


_VALIDATION_BATCH_SIZE = 256


@dataclass(eq=False)
class SeriesDataModule(DataModule):
    """Time series: windows of training series, the last windows of dev series."""

    train: SeriesDataset
    dev: SeriesDataset

    @override
    def train_batches(self, cursor: DataCursor) -> SeriesBatchStream:
        batching, seed = self.recipe.data.series_batching, self.recipe.training.seed
        return SeriesBatchStream(self.train, batching, seed=seed, cursor=cursor)

    @override
    def validation_batches(self) -> Iterator[SeriesBatch]:
        windows = self.dev.last_windows(self.recipe.data.series_batching.num_validation_windows)
        for start in range(0, len(windows), _VALIDATION_BATCH_SIZE):
            yield self.dev.collate(windows[start : start + _VALIDATION_BATCH_SIZE])


class SeriesData(NumericData):
    """The data of forecasters."""

    model_inputs = "a forecaster reads numbers"
    example_format = SERIES
    source_configs = (SeriesFileConfig, BuiltInSeriesConfig)
    batch_size_setting = "data.series_batching.batch_size"
    batch_size_unit = "windows"
    data_module = SeriesDataModule

    @override
    def build_dataset(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, data: ExampleSource, split: Split
    ) -> tuple[SeriesDataset, list[str]]:
        build = self._build_train if split == "train" else self._build_dev
        columns = config.model.covariates.columns  # of a wide file: covariates of the others
        return build(config, [series for series in data.examples if series.id not in columns])

    def _build_train(
        self, config: ExperimentConfig, series: Sequence[Series]
    ) -> tuple[SeriesDataset, list[str]]:
        model, batching = config.model, config.data.series_batching
        horizon, num_held_out = model.prediction_length, 0
        if config.data.dev is None:
            num_held_out = batching.num_validation_windows * horizon
        usable = [item for item in series if len(item.values) > horizon + num_held_out]
        longest = max((len(item.values) for item in series), default=0)
        needed = format_count(horizon + num_held_out + 1, "value")
        needed += f": one to read, {horizon} to predict"
        needed += f", {num_held_out} held out for validation" if num_held_out else ""
        message = f"the longest of {len(series)} series has {format_count(longest, 'value')}"
        message += f", but one needs {needed}"
        hint = "give longer series, or lower model.prediction_length"
        check(usable, config.data.train.describe(), message, hint, DataError)
        train_series = [
            item._replace(values=item.values[: len(item.values) - num_held_out]) for item in usable
        ]
        dataset = SeriesDataset(train_series, model.shape, model.covariates)
        for item in train_series:  # covariates that cannot be used are reported now
            check_values(item, model)
            dataset.covariates.compute(item, 0, len(item.values))
        report = [_format_size(train_series)]
        if len(usable) < len(series):
            num_short = len(series) - len(usable)
            report.append(f"{num_short} of {len(series)} series left out: shorter than {needed}")
        return dataset, report

    def _build_dev(
        self, config: ExperimentConfig, series: Sequence[Series]
    ) -> tuple[SeriesDataset, list[str]]:
        dataset = SeriesDataset(series, config.model.shape, config.model.covariates)
        for item in series:
            check_values(item, config.model)
        num_windows = len(dataset.last_windows(config.data.series_batching.num_validation_windows))
        horizon = config.model.prediction_length
        message = f"no dev series has more than {format_count(horizon, 'value')}"
        check(num_windows, "data.dev", message, "give longer series to validate on", DataError)
        windows = f"{format_count(num_windows, 'window')} of {format_count(horizon, 'value')}"
        return dataset, [f"{windows} at the end of {len(series)} series"]

    @override
    def worst_case_shapes(self, data_module: SeriesDataModule) -> list[BatchShape]:
        return [BatchShape(0, data_module.train.shape.length)]

    @override
    def max_rows(self, data_module: SeriesDataModule) -> int:
        return sum(len(series.values) for series in data_module.train.series)

    @override
    def mean_shape(self, batches: Sequence[SeriesBatch]) -> BatchShape:
        return BatchShape(0, batches[0].covariates.size(1))

    @override
    def dummy_batch(
        self, model: ForecastingModelConfig, sizes: VocabSizes, shape: BatchShape, rows: int
    ) -> SeriesBatch:
        length = model.shape.num_lagged + shape.target_length
        values = torch.randint(9, (rows, length)).float()
        covariates = torch.rand(rows, shape.target_length, model.covariates.size)
        keys = torch.zeros(rows, dtype=torch.long)
        return SeriesBatch(values, torch.ones_like(values, dtype=torch.bool), covariates, keys)


def _format_size(series: Sequence[Series]) -> str:
    num_values = sum(len(item.values) for item in series)
    num_missing = sum(int(np.isnan(item.values).sum()) for item in series)
    missing = f", {num_missing:,} of them missing" if num_missing else ""
    return f"{len(series):,} series, {format_count(num_values, 'value')}{missing}"
