"""The registry of tasks: packages by name, imported when used, so that `--help` needs no torch.

Package P defines `TASK` in P.task. A package with commands of its own also has P.command, which
imports no torch and lists them in `COMMANDS`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.tasks.task import Task

TASKS = {
    "translation": "heedful.tasks.translation",
    "language-modeling": "heedful.tasks.language_modeling",
    "masked-language-modeling": "heedful.tasks.masked_language_modeling",
}


@cache
def load_task(name: str) -> Task:
    """Import a task."""
    return import_module(f"{TASKS[name]}.task").TASK


def all_tasks() -> list[Task]:
    """Import every task."""
    return [load_task(name) for name in TASKS]


def task_of_model(config: Any) -> Task:
    """Return the task that a model config belongs to."""
    return next(task for task in all_tasks() if isinstance(config, task.model_configs))
