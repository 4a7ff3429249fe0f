"""Comparison of systems: training under one budget, evaluation, tables, figures and a report.

Reading order: `datasets` and `budget`, `training` (the plan and its runs), `test_sets` and
`systems` (evaluation), `results` (values), then `tables`, `figures` and `report`.
"""
