"""Metrics, significance tests and breakdowns of a test set."""
