"""The recipe of a training without one: that of the task which the kind of data belongs to.

The task is that of the file option (`--labeled`: classification), else the first one that reads
data of this type. It sizes its recipe by the device and the data; what the user sets wins.
docs/training.md lists the rules.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from heedful.config import BaseConfig, Override, Settings, to_overrides, validate_settings
from heedful.config.base import type_of
from heedful.data.text.sharded_dataset import PreparedDataConfig, load_prepared_dataset
from heedful.errors import ConfigError
from heedful.recipes import Recipe, load_recipe
from heedful.recipes.recipe import DataConfig
from heedful.tasks.registry import all_tasks
from heedful.tasks.task import Task

DEFAULT_RECIPE = "default"
_LIMITS = ("max_steps", "max_epochs", "max_minutes", "max_flops")


class _DataSettings(BaseConfig):
    data: DataConfig = DataConfig()


def complete_default(
    overrides: Sequence[Override], device: torch.device, task_name: str | None = None
) -> Recipe:
    """Return the default recipe with these overrides, sized for the device and the data.

    `task_name` is that of the file option that names the data, if one does.
    """
    data_overrides = [override for override in overrides if override.path[0] == "data"]
    train = validate_settings(
        _DataSettings, {}, location=DEFAULT_RECIPE, overrides=data_overrides
    ).data.train
    settings: Settings = {}
    if isinstance(train, PreparedDataConfig):
        task, settings = _open_prepared(train)
        train = None
    else:
        task = _task_of_data(train, task_name)
    _check_model_type(task, overrides)
    if train is not None and train.is_single_pass:
        train = None
    default = task.default_recipe(device, train)
    settings = {**default.settings, **settings}
    changed = {".".join(override.path) for override in overrides}
    if changed & {f"training.{limit}" for limit in _LIMITS}:
        settings["training.max_minutes"] = None  # unless it is among them
    return load_recipe(default.name, [*to_overrides(settings), *overrides])


def describe_default(recipe: Recipe) -> str:
    """Return a line about the choice, and how to change it."""
    minutes, model = recipe.training.max_minutes, recipe.task.data.file_options.model
    duration = f" for {minutes:g} minute{'s' * (minutes != 1)}" if minutes else ""
    advice = "change settings with --set, or choose a recipe"
    return f"no recipe is named: {recipe.info.name} trains {model}{duration}; {advice}"


def _open_prepared(train: PreparedDataConfig) -> tuple[Task, Settings]:
    """Return the task of tokens, and the settings that they were made with."""
    folder = Path(train.path)
    if not folder.is_dir():  # reported where it is opened
        return all_tasks()[0], {}
    prepared = load_prepared_dataset(folder, verify=False)
    formats = {task.data.example_format.name: task for task in reversed(all_tasks())}
    return formats.get(prepared.format_name, all_tasks()[0]), {
        "tokenizers": prepared.settings["tokenizers"]
    }


def _task_of_data(train: Any, task_name: str | None) -> Task:
    """Return the task of a file option, else the first that reads such data."""
    for task in all_tasks():
        reads = isinstance(train, (*task.data.source_configs, *task.data.train_source_configs))
        if task.name == task_name or (task_name is None and reads):
            return task
    return all_tasks()[0]


def _check_model_type(task: Task, overrides: Sequence[Override]) -> None:
    """Raise ConfigError if a model of another task is set."""
    for path, value in overrides:
        name = value if path == ("model", "type") else None
        if path == ("model",):
            name = value.get("type") if isinstance(value, dict) else value
        others = [
            other
            for other in all_tasks()
            if name in map(type_of, other.model_configs) and other is not task
        ]
        if others:
            message = f"{name!r} {others[0].description}, but the default for this data "
            message += f"{task.description}"
            recipe = others[0].default_recipe(torch.device("cpu"), None).name
            hint = f"name a recipe of such a model, such as {recipe}"
            raise ConfigError(f"--set {'.'.join(path)}", message, hint)
