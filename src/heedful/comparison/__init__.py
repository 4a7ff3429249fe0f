"""Comparison of systems: training under one budget, evaluation, tables, figures and a report.

Reading order: `budget`, `training` (data, plan and runs), `test_sets` and
`systems` (evaluation), `results` (values), then `tables`, `figures` and `report`.
"""
