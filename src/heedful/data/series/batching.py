"""Windows of time series as batches: lagged values, covariates, and an endless resumable stream.

A window is the values before a forecast start (context) and after it (prediction range); what lies
before the first value of a series is missing. Invariants: a window depends on its series and its
start alone; a stream started from the cursor of another continues it exactly.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.data.series.series import Numbers, Series
from heedful.data.shuffling import DataCursor
from heedful.errors import DataError, check, quote_names
from heedful.shapes import Bool, Float, Int

CalendarFeature = Literal[
    "minute-of-hour", "hour-of-day", "day-of-week", "day-of-month", "day-of-year", "month-of-year"
]
_HOUR, _DAY, _YEAR_DAYS = 3600, 86_400, 365.25


def _since(times: NDArray[Any], unit: str) -> Numbers:
    """Return the seconds since the beginning of the month or year of each time."""
    start = times.astype(f"datetime64[{unit}]").astype("datetime64[s]")
    return (times - start).astype(np.int64).astype(np.float64)


_CALENDAR: Mapping[CalendarFeature, Callable[[NDArray[Any]], Numbers]] = {
    "minute-of-hour": lambda times: times.astype(np.int64) % _HOUR / _HOUR,
    "hour-of-day": lambda times: times.astype(np.int64) % _DAY / _DAY,
    "day-of-week": lambda times: (times.astype("datetime64[D]").astype(np.int64) - 3) % 7 / 7,
    "day-of-month": lambda times: _since(times, "M") / (31 * _DAY),
    "day-of-year": lambda times: _since(times, "Y") / (_YEAR_DAYS * _DAY),
    "month-of-year": lambda times: times.astype("datetime64[M]").astype(np.int64) % 12 / 12,
}
"""The part that has passed, from 0 to 1; day 3, 4 January 1970, was a Sunday."""


class CovariatesConfig(BaseConfig):
    """Covariates: inputs that are known at each time, before and after the forecast start."""

    calendar: tuple[CalendarFeature, ...] = ()
    """Parts of the calendar, each as sine and cosine, so that its end is near its beginning."""
    age: bool = True
    """log10(2 + t), t the number of values since the first (GluonTS; the paper has t)."""
    columns: tuple[str, ...] = ()
    """Columns of the data, whose future values must be known; give them in numbers around 0."""

    @property
    def size(self) -> int:
        """Number of covariates."""
        return 2 * len(self.calendar) + self.age + len(self.columns)

    def compute(self, series: Series, start: int, stop: int) -> NDArray[np.float32]:
        """Return the covariates of some positions of a series, (positions, size)."""
        positions = np.arange(start, stop)
        features: list[Numbers] = []
        if self.calendar:
            message = f"series {series.id!r} has whole numbers for times, which have no calendar"
            hint = "give dates, or set model.covariates.calendar to []"
            check(series.grid.unit != "steps", series.location, message, hint, DataError)
            times = series.grid.times(positions)
            angles = [2 * math.pi * _CALENDAR[name](times) for name in self.calendar]
            features += [wave(angle) for angle in angles for wave in (np.sin, np.cos)]
        if self.age:
            features.append(np.log10(2 + np.maximum(positions, 0)))
        features += [_column_values(series, name, start, stop) for name in self.columns]
        stacked = np.stack(features, axis=1) if features else np.empty((stop - start, 0))
        return stacked.astype(np.float32)


def _column_values(series: Series, name: str, start: int, stop: int) -> Numbers:
    """Return a column from `start` to `stop`; zero before the first value of the series."""
    if name not in series.columns:
        message = f"series {series.id!r} has no column {name!r}"
        hint = f"add it; columns found: {quote_names(series.columns)}"
        raise DataError(series.location, message, hint)
    column = series.columns[name]
    if isinstance(column, DataError):
        raise column
    values = column[max(start, 0) : stop]
    missing = np.flatnonzero(np.isnan(values))
    first_missing = max(start, 0) + int(missing[0] if len(missing) else len(values))
    if first_missing < stop:
        time = series.format_times(first_missing, first_missing + 1)[0]
        message = f"series {series.id!r} has no {name!r} at {time}, and the model needs it there"
        hint = "fill in the column; after the last value, add rows with an empty value"
        raise DataError(series.location, message, hint)
    return np.concatenate([np.zeros(max(0, -start)), values])


class WindowShape(NamedTuple):
    """Numbers of values of a window."""

    num_lagged: int  # before the context, where only lags reach
    context_length: int
    prediction_length: int

    @property
    def length(self) -> int:
        """Positions that the model reads: context and prediction range."""
        return self.context_length + self.prediction_length


class SeriesBatch(NamedTuple):
    """Windows of series; L is T and the lagged values before it."""

    values: Float[Tensor, "B L"]  # zero where missing
    is_observed: Bool[Tensor, "B L"]
    covariates: Float[Tensor, "B T K"]
    series_keys: Int[Tensor, "B"]  # `series_key` of the series of each window

    @property
    def num_lagged(self) -> int:
        """Values before the first position that is predicted."""
        return self.values.size(1) - self.covariates.size(1)

    @property
    def num_targets(self) -> int:
        """Observed values that are predicted."""
        return int(self.is_observed[:, self.num_lagged :].sum())

    @property
    def num_tokens(self) -> int:
        """Values that are read; as many as are predicted."""
        return self.num_targets

    @property
    def num_positions(self) -> int:
        """Values that are predicted, with missing ones."""
        return self.is_observed[:, self.num_lagged :].numel()


def series_key(series: Series) -> int:
    """Return a number of 62 bits that stands for the id of a series."""
    return int.from_bytes(blake2b(series.id.encode(), digest_size=8).digest(), "big") >> 2


class Window(NamedTuple):
    """A window of a series of a dataset."""

    series_index: int
    forecast_start: int  # the first position of the prediction range


@dataclass(frozen=True)
class SeriesDataset:
    """Series, and how windows of them become a batch."""

    series: Sequence[Series]
    shape: WindowShape
    covariates: CovariatesConfig

    def collate(self, windows: Sequence[Window]) -> SeriesBatch:
        """Return windows as a batch."""
        rows = [self._row(*window) for window in windows]
        values, covariates = (
            torch.from_numpy(np.stack(arrays)) for arrays in zip(*rows, strict=True)
        )
        is_observed = ~values.isnan()
        keys = torch.tensor([series_key(self.series[window.series_index]) for window in windows])
        return SeriesBatch(values.nan_to_num(0.0).float(), is_observed, covariates, keys)

    def _row(self, index: int, forecast_start: int) -> tuple[Numbers, NDArray[np.float32]]:
        series, shape = self.series[index], self.shape
        start, stop = (
            forecast_start - shape.context_length,
            forecast_start + shape.prediction_length,
        )
        positions = np.arange(start - shape.num_lagged, stop)
        is_inside = (positions >= 0) & (positions < len(series.values))
        values = np.where(is_inside, series.values[np.where(is_inside, positions, 0)], np.nan)
        return values, self.covariates.compute(series, start, stop)

    def last_windows(self, count: int) -> list[Window]:
        """Return the last windows of each series, one prediction range apart, oldest first."""
        horizon = self.shape.prediction_length
        return [
            Window(index, start)
            for index, series in enumerate(self.series)
            for start in range(len(series.values) - count * horizon, len(series.values), horizon)
            if start > 0
        ]

    def fingerprint(self) -> str:
        """Return a hash of ids, times, values and the columns that are used."""
        digest = blake2b(digest_size=16)
        for series in self.series:
            used = {name: series.columns.get(name) for name in self.covariates.columns}
            columns = {name: np.asarray(column).tolist() for name, column in used.items()}
            digest.update(repr((series.id, series.grid, columns)).encode())
            digest.update(series.values.tobytes())
        return digest.hexdigest()


class SeriesBatchingConfig(BaseConfig):
    """How windows of time series become batches."""

    batch_size: PositiveInt = 32
    """Windows per batch."""
    batches_per_epoch: PositiveInt = 50
    """Batches of an epoch; windows begin at random positions."""
    sampling: Literal["uniform", "scale"] = "uniform"
    """Each window with equal probability, or those of a series in proportion to its scale nu_i, so
    that large series are not underfitted (Salinas et al. 2020, section 3.3)."""
    num_validation_windows: PositiveInt = Field(default=1, le=10_000)
    """Prediction ranges at the end of each dev series that are validated on; without dev data, they
    are held out from training."""


@dataclass
class SeriesBatchStream:
    """Random windows of one epoch after another; `cursor` is where to resume."""

    dataset: SeriesDataset
    config: SeriesBatchingConfig
    seed: int
    cursor: DataCursor

    def __iter__(self) -> Iterator[SeriesBatch]:
        lengths = np.array([len(series.values) for series in self.dataset.series])
        num_starts = lengths - self.dataset.shape.prediction_length  # the first value is context
        weights = num_starts.astype(np.float64)
        if self.config.sampling == "scale":
            weights *= [1 + np.nanmean(np.abs(series.values)) for series in self.dataset.series]
        probabilities = weights / weights.sum()
        while True:
            epoch, batch = self.cursor.epoch, self.cursor.batch
            rng = np.random.default_rng((self.seed, epoch, batch))
            chosen = rng.choice(len(weights), size=self.config.batch_size, p=probabilities)
            starts = rng.integers(1, num_starts[chosen] + 1)
            is_last = batch + 1 == self.config.batches_per_epoch
            self.cursor = DataCursor(epoch + 1, 0) if is_last else DataCursor(epoch, batch + 1)
            yield self.dataset.collate(list(map(Window, chosen.tolist(), starts.tolist())))
