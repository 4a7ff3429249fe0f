"""Probabilistic forecasting of time series: sample paths and quantiles of future values."""
