"""The data of forecasters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.series.batching import (
    SeriesBatch,
    SeriesBatchStream,
    SeriesDataset,
)
from heedful.data.series.series import Series, SeriesFileConfig
from heedful.data.shuffling import DataCursor
from heedful.data.synthetic.series import BuiltInSeriesConfig
from heedful.data.text.example_formats import SERIES, ExampleSource
from heedful.errors import DataError, check, format_count
from heedful.tasks.forecasting.command import FILE_OPTIONS
from heedful.tasks.forecasting.model import ForecastingModelConfig
from heedful.tasks.forecasting.predictor import check_values
from heedful.tasks.task_data import (
    BatchShape,
    DataModule,
    ExperimentConfig,
    NumericData,
    TrainData,
    VocabSizes,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair

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
    file_options = FILE_OPTIONS
    batch_size_setting = "data.series_batching.batch_size"
    batch_size_unit = "windows"

    @override
    def tokenize_train(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        corpora: Sequence[ExampleSource],
    ) -> TrainData:
        model, batching = config.model, config.data.series_batching
        horizon, num_held_out = model.prediction_length, 0
        if config.data.dev is None:
            num_held_out = batching.num_validation_windows * horizon
        series = _without_covariates(corpora[0].examples, model)
        usable = [single for single in series if len(single.values) > horizon + num_held_out]
        longest = max((len(single.values) for single in series), default=0)
        needed = format_count(horizon + num_held_out + 1, "value")
        needed += f": one to read, {horizon} to predict"
        needed += f", {num_held_out} held out for validation" if num_held_out else ""
        message = f"the longest of {len(series)} series has {format_count(longest, 'value')}"
        message += f", but one needs {needed}"
        hint = "give longer series, or lower model.prediction_length"
        check(usable, config.data.train.describe(), message, hint, DataError)
        kept = [
            single._replace(values=single.values[: len(single.values) - num_held_out])
            for single in usable
        ]
        dataset = SeriesDataset(kept, model.shape, model.covariates)
        for single in kept:  # covariates that cannot be used are reported now
            check_values(single, model)
            dataset.covariates.compute(single, 0, len(single.values))
        report = [_format_size(kept)]
        if len(usable) < len(series):
            num_short = len(series) - len(usable)
            report.append(f"{num_short} of {len(series)} series left out: shorter than {needed}")
        return TrainData(dataset, dataset.fingerprint(), report)

    @override
    def build_data_module(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        train: TrainData,
        dev: ExampleSource,
    ) -> SeriesDataModule:
        series = _without_covariates(dev.examples, config.model)
        dataset = SeriesDataset(series, config.model.shape, config.model.covariates)
        for single in series:
            check_values(single, config.model)
        num_windows = len(dataset.last_windows(config.data.series_batching.num_validation_windows))
        horizon = config.model.prediction_length
        message = f"no dev series has more than {format_count(horizon, 'value')}"
        check(num_windows, "data.dev", message, "give longer series to validate on", DataError)
        windows = f"{format_count(num_windows, 'window')} of {format_count(horizon, 'value')}"
        report = [f"{windows} at the end of {len(series)} series"]
        return SeriesDataModule(
            config, tokenizers, train.dataset, dataset, train.fingerprint, report
        )

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
        self,
        model: BaseConfig,
        sizes: VocabSizes,
        shape: BatchShape,
        rows: int,
        device: torch.device | str = "cpu",
    ) -> SeriesBatch:
        assert isinstance(model, ForecastingModelConfig), type(model)
        length = model.shape.num_lagged + shape.target_length
        values = torch.randint(9, (rows, length), device=device).float()
        covariates = torch.rand(rows, shape.target_length, model.covariates.size, device=device)
        keys = torch.zeros(rows, dtype=torch.long, device=device)
        return SeriesBatch(values, torch.ones_like(values, dtype=torch.bool), covariates, keys)


def _without_covariates(series: Sequence[Series], model: ForecastingModelConfig) -> list[Series]:
    """Leave out columns of a wide file that are covariates of the others."""
    return [single for single in series if single.id not in model.covariates.columns]


def _format_size(series: Sequence[Series]) -> str:
    num_values = sum(len(single.values) for single in series)
    num_missing = sum(int(np.isnan(single.values).sum()) for single in series)
    missing = f", {num_missing:,} of them missing" if num_missing else ""
    return f"{len(series):,} series, {format_count(num_values, 'value')}{missing}"
