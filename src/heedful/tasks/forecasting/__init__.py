"""Probabilistic forecasting of time series: sample paths and quantiles of future values.

Reading order: `task`, `data`, `model`, `distributions`, `predictor`, `forecast`, `pages` and
`command`.
"""
