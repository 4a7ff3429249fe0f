"""What is trained on time series by default: `default-forecaster`, on any device.

- Data: the distance of times gives the season, the length of a forecast and the calendar (below);
  without dates, the season is the distance at which the changes of the series correlate most. A
  step reads the values one and a season (of hours, also a week) before it. At most a quarter of the
  longest series is forecast. Counts, 0, 1, 2 ... with a mean below 100, have a negative binomial
  distribution, scaled by the mean; other values a Student-t distribution, scaled by mean and
  deviation.
- Time: 0.3 steps per value, so that short series are not learned by heart, and at most 5 minutes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from heedful.data.series.series import Series, TimeGrid
from heedful.tasks.default_recipe import DefaultRecipe

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


def default_recipe(device: torch.device, train: Any) -> DefaultRecipe:
    """Return the recipe for these series, or for unknown ones, if `train` is None."""
    del device
    if train is None:
        return DefaultRecipe("default-forecaster")
    series = train.read()
    frequency = _frequency(series[0].grid, series)
    longest = max(len(single.values) for single in series)
    horizon = max(1, min(frequency.prediction_length, longest // 4))
    values = np.concatenate([single.values for single in series])
    values = values[~np.isnan(values)]
    is_count = (values >= 0).all() and (values % 1 == 0).all() and values.mean() < _MAX_MEAN_COUNT
    max_lag = min(_MAX_SEASON_READ, longest // 2)
    lags = {1, *(lag for lag in (frequency.season, *frequency.more_lags) if lag <= max_lag)}
    settings = {
        "model.season_length": frequency.season,
        "model.prediction_length": horizon,
        "model.context_length": 2 * max(horizon, min(frequency.season, max_lag)),
        "model.lags": sorted(lags),
        "model.covariates.calendar": list(frequency.calendar),
        "model.head.type": "negative-binomial" if is_count else "student-t",
        "model.scaling": "mean" if is_count else "standard",
        "training.max_steps": max(MIN_STEPS, round(STEPS_PER_VALUE * len(values))),
    }
    return DefaultRecipe("default-forecaster", settings)


def _frequency(grid: TimeGrid, series: Sequence[Series]) -> Frequency:
    if grid.unit == "steps":
        season = _find_season(series)
        return Frequency(season, 24, more_lags=(7 * season,) if season == _HOURS_PER_DAY else ())
    if grid.unit == "months":
        season = max(1, 12 // grid.step)
        return Frequency(season, max(6, season), ("month-of-year",) if season > 1 else ())
    if grid.step < _DAY:
        day = _DAY // grid.step
        more = (_WEEK // grid.step,) if grid.step == _HOUR else ()
        return Frequency(day, min(day, 48), ("hour-of-day", "day-of-week"), more)
    if grid.step == _DAY:
        return Frequency(7, 14, ("day-of-week", "day-of-year"))
    weeks = max(1, round(grid.step / _WEEK))
    return Frequency(max(1, 52 // weeks), max(4, 13 // weeks), ("day-of-year",))


def _find_season(series: Sequence[Series]) -> int:
    """Return the distance at which changes correlate most, on average over series; else 1."""
    best, season = _MIN_CORRELATION, 1
    changes = [np.diff(np.nan_to_num(single.values)) for single in series[:_NUM_MEASURED]]
    for lag in _SEASONS:
        long_enough = [part - part.mean() for part in changes if len(part) >= 3 * lag]
        products = [
            (part[lag:] * part[:-lag]).mean() / max(part.var(), 1e-12) for part in long_enough
        ]
        if products and np.mean(products) > best:
            best, season = float(np.mean(products)) + _MIN_GAIN, lag
    return season
