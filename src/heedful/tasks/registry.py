"""The registry of tasks: packages by name, imported when used, so that `--help` needs no torch.

Package P defines `TASK` in P.task; P.command, which imports no torch, defines its `FILE_OPTIONS`
and the functions of its own commands, `COMMANDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.evaluation.registry import MetricSpec
    from heedful.tasks.command_line import FileOptions
    from heedful.tasks.task import Task

TASKS = {
    "translation": "heedful.tasks.translation",
    "language-modeling": "heedful.tasks.language_modeling",
    "masked-language-modeling": "heedful.tasks.masked_language_modeling",
    "classification": "heedful.tasks.classification",
}


@cache
def all_tasks() -> list[Task]:
    """Import all tasks."""
    return [import_module(f"{package}.task").TASK for package in TASKS.values()]


def all_metrics() -> dict[str, MetricSpec]:
    """Return the validation metrics of all tasks by name, "loss" first."""
    return {name: spec for task in all_tasks() for name, spec in task.metrics.items()}


def task_of_model(config: Any) -> Task:
    """Return the task that a model config belongs to."""
    return next(task for task in all_tasks() if isinstance(config, task.model_configs))


def task_commands() -> list[tuple[str, Callable[..., None]]]:
    """Return the commands that belong to one task, with its name.

    The first parameter of a command loads the predictor of a run (`PredictorLoader`).
    """
    modules = zip(TASKS, _command_modules(), strict=True)
    return [(name, command) for name, module in modules for command in module.COMMANDS]


def all_file_options() -> list[FileOptions]:
    """Return the file options of all tasks, each once."""
    options: list[FileOptions] = []
    for module in _command_modules():
        if module.FILE_OPTIONS not in options:
            options.append(module.FILE_OPTIONS)
    return options


def _command_modules() -> list[Any]:
    return [import_module(f"{package}.command") for package in TASKS.values()]
