"""Tasks, such as translation.

Reading order: `task` (the interface) with its sides `task_data` and `evaluation`, and `registry`
(the list of tasks); `prediction` (use of a trained model: `Predictor`); `pair_data`, `text_task`,
`search_predictor`, `pooled_text` and `labels` (what tasks share); `command_line`, `text_input` and
`remote` (runs of a server). A folder for each task: `translation`, `language_modeling`,
`masked_language_modeling`, `classification`, `tagging`, `forecasting`, `captioning` and `glimpse`.
"""
