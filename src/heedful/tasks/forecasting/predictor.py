"""The forecaster: a trained model, or an ensemble, that samples future values of a series.

Invariant: the forecast of a series does not depend on the other series.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, ClassVar, TypeVar, overload

import numpy as np
import torch
from pydantic import PositiveInt
from typing_extensions import override

from heedful.acceleration.registry import accelerate_for_inference
from heedful.config import check_types
from heedful.data.series.batching import SeriesDataset, Window
from heedful.data.series.series import (
    MAX_VALUE,
    Series,
    SeriesFileConfig,
    TimeGrid,
    parse_series,
    value_error,
)
from heedful.errors import DataError, check, format_count
from heedful.evaluation.base import Array, MetricScore
from heedful.inspection.attention_layers import (
    AttentionLayer,
    TokenAxis,
    collect_layers,
    without_words,
)
from heedful.inspection.attention_trace import TraceRecord, trace_attention
from heedful.pytree import map_tensors
from heedful.tasks.forecasting.forecast import (
    Forecast,
    score_forecasts,
    score_seasonal_naive,
)
from heedful.tasks.forecasting.model import ForecastingModel, ForecastingModelConfig
from heedful.tasks.prediction import PredictionOptions, Predictor, check_json, format_predictor

DEFAULT_NUM_SAMPLES = 200
_MAX_ROWS = 2048  # sampled at once

Item = TypeVar("Item")


class ForecastOptions(PredictionOptions):
    """How one call samples."""

    num_samples: PositiveInt = DEFAULT_NUM_SAMPLES
    """Sample paths of each series."""
    seed: int = 0
    """Random seed."""
    need_paths: bool = False
    """Return the sample paths, too."""

    @property
    def batch_size(self) -> int:
        """Number of series that are forecast together."""
        return max(1, _MAX_ROWS // self.num_samples)


class Forecaster(Predictor[Series, Forecast]):
    """A trained model of time series, and the rest of its ensemble."""

    request_name = "series"
    reads_files = True
    input_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"id": {}},
        "additionalProperties": {"type": "array"},
    }
    options_class = ForecastOptions

    def __init__(
        self,
        model: ForecastingModel,
        config: ForecastingModelConfig,
        *,
        num_windows: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = accelerate_for_inference(model, device)
        self.config = config
        self.num_windows = num_windows  # of `evaluate`
        self.device = device
        self.file_settings: Mapping[str, str | None] = {}  # columns of the training file
        self.ensemble_with: Sequence[Forecaster] = ()  # with the same prediction length

    def __repr__(self) -> str:
        shape = self.config.shape
        return format_predictor(self, f"{shape.prediction_length} from {shape.context_length}")

    @overload
    def forecast(self, series: Series, *, num_samples: int = ..., seed: int = ...) -> Forecast: ...
    @overload
    def forecast(
        self, series: Iterable[Series], *, num_samples: int = ..., seed: int = ...
    ) -> list[Forecast]: ...
    @check_types
    def forecast(
        self,
        series: Series | Iterable[Series],
        *,
        num_samples: int = DEFAULT_NUM_SAMPLES,
        seed: int = 0,
    ) -> Forecast | list[Forecast]:
        """Forecast the values after the end of a series, or of each series."""
        many = [series] if isinstance(series, Series) else list(series)
        options = ForecastOptions(num_samples=num_samples, seed=seed)
        results = list(self.predict(many, options))
        return results[0] if isinstance(series, Series) else results

    @override
    def parse_json(self, value: Any) -> Series:
        """Return the series of an object with an `id` and lists of times, values and covariates."""
        example = '{"id": "a", "time": ["2013-01-01", "2013-01-02"], "value": [1.5, null]}'
        columns = dict(check_json(value, dict, "an object with columns of a series", example))
        series_id = str(columns.pop("id", ""))
        for column in columns.values():
            check_json(column, list, "an object whose columns are lists", example)
        return parse_series(series_id, columns)

    @override
    def to_json(self, result: Forecast, *, need_weights: bool = False) -> dict[str, Any]:
        return result.to_json(has_paths=result.need_paths)

    @override
    def example(self) -> dict[str, Any]:
        """Return hours of two days, whose values end where the forecast begins."""
        horizon, count = self.config.prediction_length, 48
        indices = np.arange(count + horizon)
        values = [float(index % 24) for index in range(count)] + [None] * horizon
        times = TimeGrid("seconds", 3600, 0, precision="m").format_times(indices)
        columns = {name: [0.0] * len(times) for name in self.config.covariates.columns}
        return {"id": "example", "time": times, "value": values, **columns}

    @override
    def read_file(
        self, path: str, settings: Mapping[str, str | None] | None = None
    ) -> list[Series]:
        """Read the series of a CSV file; columns that are not set are those of training.

        Columns of a wide file that are covariates are no series.
        """
        chosen = {name: value for name, value in (settings or {}).items() if value}
        config = SeriesFileConfig.model_validate({"path": path, **self.file_settings, **chosen})
        series = config.read()
        return [item for item in series if item.id not in self.config.covariates.columns]

    def backtest(
        self,
        series: Iterable[Series],
        *,
        num_windows: int = 1,
        num_samples: int = DEFAULT_NUM_SAMPLES,
        seed: int = 0,
    ) -> Iterator[Forecast]:
        """Forecast the last values of each series, `num_windows` prediction ranges of them."""
        many = list(series)
        windows = self._dataset(many).last_windows(num_windows)
        horizon, lengths = self.config.prediction_length, [len(item.values) for item in many]
        longest = format_count(max(lengths, default=0), "value")
        message = f"the longest series has {longest}, too few to hold out "
        message += f"{horizon} and forecast them"
        location = many[0].location if many else "series"
        check(windows, location, message, "give longer series", DataError)
        options = ForecastOptions(num_samples=num_samples, seed=seed)
        return self._forecast(many, windows, options)

    @override
    def predict(
        self,
        requests: Iterable[Series],
        options: ForecastOptions | None = None,
        *,
        location: str = "",
        start_index: int = 1,
        need_layers: bool = False,
    ) -> Iterator[Forecast]:
        options, stream = options or ForecastOptions(), iter(requests)
        while series := list(islice(stream, options.batch_size)):
            ends = [Window(index, len(item.values)) for index, item in enumerate(series)]
            forecasts = (
                forecast._replace(need_paths=options.need_paths)
                for forecast in self._forecast(series, ends, options)
            )
            yield from map(self._add_layers, forecasts) if need_layers else forecasts

    @override
    def predict_with_layers(
        self, request: Series, options: ForecastOptions | None = None
    ) -> Forecast:
        """Return a forecast with the attention of its own window, which its first path ends."""
        (forecast,) = self.predict([request], options)
        values = np.concatenate([request.values, forecast.samples[0]])
        layers = self._trace(request._replace(values=values), len(request.values))
        return forecast._replace(attention_layers=layers)

    def _add_layers(self, forecast: Forecast) -> Forecast:
        """Add the attention of each layer while it reads the last window of known values."""
        start = max(1, len(forecast.series.values) - self.config.prediction_length)
        return forecast._replace(attention_layers=self._trace(forecast.series, start))

    def _trace(self, series: Series, start: int) -> list[AttentionLayer]:
        length = self.config.shape.length
        batch = self._dataset([series]).collate([Window(0, start)])
        batch = map_tensors(lambda tensor: tensor.to(self.device), batch)
        with torch.inference_mode(), trace_attention(self.model, device="cpu") as records:
            self.model(batch)
        first = start - self.config.context_length
        axis = without_words(series.format_times(first, first + length))
        return _collect_layers(records, axis)

    @override
    def evaluate(self, examples: Sequence[Series]) -> list[MetricScore]:
        """Return the metrics of the last values of each series, and of the seasonal naive."""
        forecasts = list(self.backtest(examples, num_windows=self.num_windows))
        scores = score_forecasts(forecasts, self.config.season_length)
        naive = score_seasonal_naive(forecasts, self.config.season_length)
        signature = f"windows:{len(forecasts)}|steps:{self.config.prediction_length}"
        sampled = f"{signature}|samples:{DEFAULT_NUM_SAMPLES}|season:{self.config.season_length}"
        rows = [MetricScore("negative log-likelihood", self._mean_loss(forecasts), signature)]
        rows += [MetricScore(name, value, sampled) for name, value in scores.items()]
        rows += [
            MetricScore(f"{name}, seasonal naive", value, sampled) for name, value in naive.items()
        ]
        return rows

    @override
    def count_tokens(self, examples: Sequence[Series]) -> int:
        """Return the number of values that `evaluate` forecasts."""
        windows = self._dataset(examples).last_windows(self.num_windows)
        return self.config.prediction_length * len(windows)

    def _dataset(self, series: Sequence[Series]) -> SeriesDataset:
        for item in series:
            check_values(item, self.config)
        return SeriesDataset(series, self.config.shape, self.config.covariates)

    @torch.inference_mode()
    def _mean_loss(self, forecasts: Sequence[Forecast]) -> float:
        """Return -log p per value; of the first member, as mixtures have no closed form."""
        total, count, horizon = 0.0, 0, self.config.prediction_length
        for chunk in _chunks(forecasts, _MAX_ROWS):
            dataset = self._dataset([forecast.series for forecast in chunk])
            windows = [Window(row, forecast.forecast_start) for row, forecast in enumerate(chunk)]
            batch = dataset.collate(windows)
            count += int(batch.is_observed[:, -horizon:].sum())
            output = self.model(map_tensors(lambda tensor: tensor.to(self.device), batch))
            total -= float(output.log_probs[:, -horizon:].double().sum())
        return total / max(count, 1)

    def _forecast(
        self, series: Sequence[Series], windows: Sequence[Window], options: ForecastOptions
    ) -> Iterator[Forecast]:
        members = (self, *self.ensemble_with)
        datasets = [member._dataset(series) for member in members]  # checks each series once
        num_samples, seed = options.num_samples, options.seed
        num_paths = -(-num_samples // len(members))
        for chunk in _chunks(windows, options.batch_size):
            samples = [
                member._sample(dataset, chunk, num_paths, f"{seed} {index}")
                for index, (member, dataset) in enumerate(zip(members, datasets, strict=True))
            ]
            for row, window in enumerate(chunk):
                paths = np.concatenate([array[row] for array in samples])[:num_samples]
                yield Forecast(series[window.series_index], window.forecast_start, paths)

    def _sample(
        self, dataset: SeriesDataset, windows: Sequence[Window], num_paths: int, seed: str
    ) -> Array:
        series, batch = dataset.series, dataset.collate(windows)
        batch = map_tensors(lambda tensor: tensor.to(self.device), batch)
        generators = [_generator(f"{seed} {start} {series[index].id}") for index, start in windows]
        paths = self.model.sample_paths(batch, num_paths, generators)
        return paths.cpu().double().numpy()


def _collect_layers(records: list[TraceRecord], axis: TokenAxis) -> list[AttentionLayer]:
    return collect_layers(records, lambda record: (record.role, axis, axis), default="self")


def _generator(key: str) -> torch.Generator:
    digest = blake2b(key.encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def _chunks(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


def check_values(series: Series, config: ForecastingModelConfig) -> None:
    """Raise DataError for values beyond `MAX_VALUE`, or a model of counts that gets others."""
    name, values = f"series {series.id!r}", series.values[~np.isnan(series.values)]
    for value in values[np.abs(values) > MAX_VALUE][:1]:
        raise value_error(value, name, series.location)
    if config.head.type != "negative-binomial":
        return
    for value in values[(values < 0) | (values % 1 != 0)][:1]:
        message = f"{name} has the value {value:g}, and a negative-binomial distribution has "
        hint = "set model.head to gaussian or student-t"
        raise DataError(series.location, f"{message}0, 1, 2, ...", hint)
