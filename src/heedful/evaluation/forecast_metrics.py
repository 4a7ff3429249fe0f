"""Metrics of probabilistic forecasts: quantile loss, scaled errors, coverage, calibration.

Arrays are (windows, steps), quantiles (windows, steps, levels); NaN targets do not count.
Invariant: the quantile loss is smallest, in expectation, at the true quantile.
"""

from collections.abc import Sequence

import numpy as np

from heedful.evaluation.base import Array

QUANTILE_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The levels that the weighted quantile loss averages, as in GluonTS."""


def quantile_loss(targets: Array, quantiles: Array, levels: Sequence[float]) -> Array:
    """Return 2 (q - 1[z < z_q]) (z - z_q) of each quantile, (windows, steps, levels).

    It is the paper's (Salinas et al. 2020, section 4.2); some code leaves out the factor 2, with
    which the loss of the median is the absolute error.
    """
    errors = targets[..., None] - quantiles
    return 2 * (np.asarray(levels) - (errors < 0)) * errors


def weighted_quantile_loss(targets: Array, quantiles: Array, levels: Sequence[float]) -> float:
    """Return the mean over levels of the summed quantile losses, divided by the sum of |z|."""
    losses = np.nansum(quantile_loss(targets, quantiles, levels), axis=(0, 1))
    return float(losses.mean() / max(float(np.nansum(np.abs(targets))), np.finfo(float).tiny))


def seasonal_error(values: Array, season_length: int) -> float:
    """Return the mean |z_t - z_(t-m)| of values, m the season; NaN if there is no such pair."""
    season = season_length if len(values) > season_length else 1
    differences = np.abs(values[season:] - values[:-season])
    return float(np.nanmean(differences)) if (~np.isnan(differences)).any() else float("nan")


def mase(targets: Array, forecasts: Array, seasonal_errors: Array) -> float:
    """Return the mean absolute error of a window in units of its seasonal error, averaged.

    (Hyndman and Koehler 2006.) Windows without changes before them do not count.
    """
    is_valid = np.nan_to_num(seasonal_errors) > 0
    if not is_valid.any():
        return float("nan")
    errors = np.nanmean(np.abs(targets - forecasts)[is_valid], axis=1)
    return float(np.nanmean(errors / seasonal_errors[is_valid]))


def smape(targets: Array, forecasts: Array) -> float:
    """Return the mean of 200 |z - f| / (|z| + |f|), as in M4; 0 where both are 0."""
    total = np.abs(targets) + np.abs(forecasts)
    errors = 200 * np.abs(targets - forecasts) / np.where(total > 0, total, 1)
    return float(np.nanmean(errors))


def coverage(targets: Array, quantiles: Array) -> Array:
    """Return the fraction of targets that are not above the quantile of each level.

    For calibrated forecasts of real values these are the levels; of counts, they are larger.
    """
    is_below = np.where(np.isnan(targets)[..., None], np.nan, targets[..., None] <= quantiles)
    return np.nanmean(is_below, axis=(0, 1))


def seasonal_naive(values: Array, season_length: int, num_steps: int) -> Array:
    """Return the values of the last season, repeated.

    A missing one is replaced by the one of an earlier season, or else by the last value.
    """
    filled = np.array([value for value in values if not np.isnan(value)][-1:] * num_steps)
    for step in range(num_steps):
        earlier = values[len(values) - season_length + step % season_length :: -season_length]
        observed = earlier[~np.isnan(earlier)] if len(values) >= season_length else earlier[:0]
        if len(observed):
            filled[step] = observed[0]
    return filled
