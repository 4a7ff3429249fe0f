"""Tasks, such as translation.

Reading order: `task` (the interface) and `registry` (the list of tasks); `pair_task`, `text_task`
and `numeric_task` (tasks by kind of data); `prediction` (use of a trained model); `command_line`,
`text_input` and `default_recipe`. A folder for each task: `translation`, `language_modeling`,
`masked_language_modeling`, `classification`, `tagging`, `forecasting`, `captioning` and `glimpse`.
"""
