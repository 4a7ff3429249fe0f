"""Tasks, such as translation.

Reading order: `task` (the interface) with its sides `task_data` and `evaluation`, and `registry`
(the list of tasks); `pair_data`, `text_data` and `text_task` (what tasks share); `prediction` (use
of a trained model: `Predictor`), `search_predictor` and `label_predictor` (by kind of output) and
`ensembles`; `command_line`, `text_input` and `default_recipe`. A folder for each task:
`translation`, `language_modeling`, `masked_language_modeling`, `classification`, `tagging`,
`forecasting`, `captioning` and `glimpse`.
"""
