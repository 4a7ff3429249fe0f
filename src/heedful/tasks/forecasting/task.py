"""Forecasting as a task: windows of time series, and the likelihood of their values."""

from collections.abc import Sequence

import torch
from torch import nn
from typing_extensions import override

from heedful.data.series.batching import (
    SeriesBatch,
    series_key,
)
from heedful.data.series.series import SeriesFileConfig
from heedful.errors import RunError, check, format_count
from heedful.tasks.forecasting.data import SeriesData, SeriesDataModule
from heedful.tasks.forecasting.default_recipe import default_recipe
from heedful.tasks.forecasting.evaluation import ForecastingEvaluation
from heedful.tasks.forecasting.model import ForecastingModel, ForecastingModelConfig
from heedful.tasks.forecasting.predictor import Forecaster
from heedful.tasks.task import LoadedRun, RunLoader, Task
from heedful.training.config import TrainingConfig
from heedful.training.objectives import LossTerms, Objective


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


class ForecastingTask(Task):
    """Forecasting of time series."""

    name = "forecasting"
    description = "forecasts time series"
    next_command = "forecast {run} FILE"
    default_recipe = staticmethod(default_recipe)
    model_configs = (ForecastingModelConfig,)
    data = SeriesData()
    evaluation = ForecastingEvaluation()

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


TASK = ForecastingTask()
