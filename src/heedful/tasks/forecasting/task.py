"""Forecasting as a task: windows of time series, and the likelihood of their values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.series.batching import (
    SeriesBatch,
    SeriesBatchStream,
    SeriesDataset,
    series_key,
)
from heedful.data.series.series import Series, SeriesFileConfig
from heedful.data.shuffling import DataCursor
from heedful.data.synthetic.series import BuiltInSeriesConfig
from heedful.data.text.example_formats import SERIES, ExampleSource
from heedful.errors import DataError, RunError, check, format_count
from heedful.evaluation.base import Direction
from heedful.evaluation.registry import LOSS, MetricSpec
from heedful.pytree import to_float64
from heedful.tasks.forecasting.command import FILE_OPTIONS
from heedful.tasks.forecasting.default_recipe import default_recipe
from heedful.tasks.forecasting.model import ForecastingModel, ForecastingModelConfig
from heedful.tasks.forecasting.pages import render_forecast_page
from heedful.tasks.forecasting.predictor import (
    SCORE_NAMES,
    Forecast,
    Forecaster,
    check_values,
    score_forecasts,
)
from heedful.tasks.numeric_task import NumericTask
from heedful.tasks.prediction import DevEvaluator
from heedful.tasks.task import (
    BatchShape,
    DataModule,
    ExperimentConfig,
    LoadedRun,
    RunLoader,
    TrainData,
    VocabSizes,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.training.callbacks import LoggedSample
from heedful.training.config import TrainingConfig
from heedful.training.objectives import LossTerms, Objective

_VALIDATION_SAMPLES = 100
_VALIDATION_BATCH_SIZE = 256
_PAGE_LEVELS = (0.1, 0.5, 0.9)


class LikelihoodObjective(Objective):
    """-log p(z_t | z_<t), summed over context and prediction range (Salinas et al. 2020, eq. 2).

    The context also counts: its values are predicted by the same network.
    """

    @override
    def normalizer(self, batch: SeriesBatch) -> int:
        return max(1, batch.num_targets)

    @override
    def __call__(
        self, model: nn.Module, batch: SeriesBatch, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        output = model(batch)
        return LossTerms(-output.log_probs.sum(), output.auxiliary_losses)


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


class ForecastingTask(NumericTask):
    """Forecasting of time series."""

    name = "forecasting"
    description = "forecasts time series"
    next_command = "forecast {run} FILE"
    default_recipe = staticmethod(default_recipe)
    model_inputs = "a forecaster reads numbers"
    example_format = SERIES
    model_configs = (ForecastingModelConfig,)
    source_configs = (SeriesFileConfig, BuiltInSeriesConfig)
    file_options = FILE_OPTIONS
    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        "loss": LOSS,
        "weighted-quantile-loss": MetricSpec("Weighted quantile loss", higher_is_better=False),
        "mase": MetricSpec("MASE", higher_is_better=False),
        "smape": MetricSpec("sMAPE", higher_is_better=False),
        "calibration-error": MetricSpec("Calibration error", higher_is_better=False),
    }
    validation_metrics = ("weighted-quantile-loss", "mase")
    has_evaluation_page = True
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

    @override
    def initialize_model(self, model: nn.Module, data_module: SeriesDataModule) -> None:
        """Assign the vectors of a series embedding to the training series."""
        assert isinstance(model, ForecastingModel), type(model)
        if model.series_embedding is not None:
            model.series_embedding.set_series(list(map(series_key, data_module.train.series)))

    @override
    def check_objective(self, training: TrainingConfig) -> None:
        training.check_no_decoder("needs tokens, and a forecaster has none")
        message, location = "a forecaster has no tokens to smooth", "training.label_smoothing"
        check(not training.label_smoothing, location, message, "remove it")
        super().check_objective(training)

    @override
    def build_objective(self, training: TrainingConfig) -> Objective:
        return LikelihoodObjective()

    @override
    def metric_sums(self, model: Any, batch: SeriesBatch) -> Tensor:
        """Return -log p of the prediction range, and the number of its values."""
        horizon = model.shape.prediction_length
        log_probs = model(batch).log_probs[:, -horizon:]
        count = batch.is_observed[:, -horizon:].sum()
        return torch.stack([-to_float64(log_probs).sum().cpu(), count.double().cpu()])

    @override
    def finalize_metrics(self, sums: Tensor) -> dict[str, float]:
        loss, num_targets = sums.tolist()
        return {"loss": loss / max(num_targets, 1)}

    @override
    def format_metrics(self, metrics: Mapping[str, float]) -> str:
        shown = (f"{name.replace('-', ' ')} {score:.4f}" for name, score in metrics.items())
        return f"validation {', '.join(shown)}"

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Forecaster:
        forecasters: list[Forecaster] = []
        for folder, config, _, model in members:
            if not isinstance(model, ForecastingModel):
                message = f"this run {config.task.description}, but {members[0].folder} forecasts"
                raise RunError(str(folder), message, "leave it out")
            num_windows = config.data.series_batching.num_validation_windows
            forecaster = Forecaster(model, config.model, num_windows=num_windows, device=device)
            if isinstance(config.data.train, SeriesFileConfig):
                forecaster.file_settings = config.data.train.column_settings
            forecasters.append(forecaster)
            horizon = config.model.prediction_length
            expected = forecasters[0].config.prediction_length
            message = (
                f"forecasts {format_count(horizon, 'value')}, but {members[0].folder} {expected}"
            )
            hint = "use runs with the same model.prediction_length"
            check(horizon == expected, str(folder), message, hint, RunError)
        first, *first.ensemble_with = forecasters
        return first

    @override
    def render_evaluation_page(
        self, predictor: Forecaster, examples: Sequence[Series], title: str
    ) -> str:
        forecasts = list(predictor.backtest(examples, num_windows=predictor.num_windows))
        return render_forecast_page(forecasts, _PAGE_LEVELS, title)

    @override
    def comparison_key(self, predictor: Forecaster, examples: Sequence[Series]) -> object:
        config = predictor.config
        return config.prediction_length, config.season_length, predictor.num_windows


def _without_covariates(series: Sequence[Series], model: ForecastingModelConfig) -> list[Series]:
    """Leave out columns of a wide file that are covariates of the others."""
    return [single for single in series if single.id not in model.covariates.columns]


def _format_size(series: Sequence[Series]) -> str:
    num_values = sum(len(single.values) for single in series)
    num_missing = sum(int(np.isnan(single.values).sum()) for single in series)
    missing = f", {num_missing:,} of them missing" if num_missing else ""
    return f"{len(series):,} series, {format_count(num_values, 'value')}{missing}"


TASK = ForecastingTask()
