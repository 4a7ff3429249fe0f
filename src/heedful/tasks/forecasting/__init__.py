"""Probabilistic forecasting of time series: sample paths and quantiles of future values.

Reading order: `task`, `data`, `evaluation`, `model`, `distributions`, `predictor`, `pages`,
`command` and `default_recipe`.
"""
