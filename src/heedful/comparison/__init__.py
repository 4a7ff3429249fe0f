"""Comparison of systems: training under one budget, evaluation, tables, figures and a report."""
