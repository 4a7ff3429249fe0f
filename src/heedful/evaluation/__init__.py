"""Metrics, significance tests and breakdowns of a test set.

Reading order: `base` (the interface) and `registry`; metrics by what they compare: `text_metrics`,
`caption_metrics`, `annotation_metrics`, `forecast_metrics`, `perplexity` and `confusion`; then
`significance`, `breakdowns` and `score_table`.
"""
