"""The registry of tasks: packages by name, imported when used, so that `--help` needs no torch.

Package P defines `TASK` in P.task; P.command, which imports no torch, defines its `FILE_OPTIONS`
and the functions of its own commands, `COMMANDS`. Tasks of other packages are entry points of the
group `heedful.tasks`, or are added by `register`; tests/ninth_task is an example.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from heedful.config import Override
from heedful.errors import ArgumentError, ConfigError, check, choices_hint, did_you_mean
from heedful.parallel import call_in_workers
from heedful.tasks.command_line import COLUMN_OPTIONS, PARALLEL_FILES, READING_OPTIONS, column_flag
from heedful.tasks.remote import RemotePredictor

if TYPE_CHECKING:
    from heedful.evaluation.registry import MetricSpec
    from heedful.tasks.command_line import FileOptions, Files, Split
    from heedful.tasks.task import Task


def register(name: str, package: str) -> None:
    """Add the task of a package, before anything is trained or loaded; worker processes get it.

    `name` is that of the task; the package has the modules `task` and `command`.
    """
    message = f"{package} is registered too late: recipes are known already"
    hint = "register tasks before heedful trains or loads, or by an entry point"
    check("heedful.recipes" not in sys.modules, name, message, hint, ArgumentError)
    TASKS[name] = package


def _add_tasks(tasks: Mapping[str, str]) -> None:
    TASKS.update(tasks)


VALIDATE_EVERY_EPOCHS = 10  # of small files
TASKS = {
    "translation": "heedful.tasks.translation",
    "language-modeling": "heedful.tasks.language_modeling",
    "masked-language-modeling": "heedful.tasks.masked_language_modeling",
    "classification": "heedful.tasks.classification",
    "tagging": "heedful.tasks.tagging",
    "forecasting": "heedful.tasks.forecasting",
    "captioning": "heedful.tasks.captioning",
    "glimpses": "heedful.tasks.glimpse",
    **{point.name: point.value for point in entry_points(group="heedful.tasks")},
}
"""Packages by name."""
call_in_workers(partial(_add_tasks, TASKS))


@cache
def all_tasks() -> list[Task]:
    """Import all tasks."""
    return [import_module(f"{package}.task").TASK for package in TASKS.values()]


def all_metrics() -> dict[str, MetricSpec]:
    """Return the validation metrics of all tasks by name, "loss" first."""
    return {name: spec for task in all_tasks() for name, spec in task.evaluation.metrics.items()}


def task_of_model(config: Any) -> Task:
    """Return the task that a model config belongs to."""
    return next(task for task in all_tasks() if isinstance(config, task.model_configs))


def describe_format(name: str) -> str:
    """Return what examples of a format are; its name, if no task has it."""
    formats = {task.data.example_format.name: task.data.example_format for task in all_tasks()}
    return formats[name].description if name in formats else name


def task_commands() -> list[tuple[str, Callable[..., None]]]:
    """Return the commands that belong to one task, with its name.

    The first parameter of a command loads the predictor of a run (`PredictorLoader`).
    """
    modules = zip(TASKS, _command_modules(), strict=True)
    return [(name, command) for name, module in modules for command in module.COMMANDS]


def task_routes() -> dict[str, str]:
    """Return the last part of the HTTP path of each task by name: its first command.

    A task without commands has `ROUTE` in its `command` module, or is called by its name.
    """
    return {
        name: module.COMMANDS[0].__name__ if module.COMMANDS else getattr(module, "ROUTE", name)
        for name, module in zip(TASKS, _command_modules(), strict=True)
    }


def remote_predictor(server: str, task: str, name: str) -> RemotePredictor:
    """Return a run of a server, by name, as the commands of its task use it."""
    module = import_module(f"{TASKS[task]}.command")
    return RemotePredictor(server, task_routes()[task], name, getattr(module, "read_remote", None))


def all_file_options() -> list[FileOptions]:
    """Return the file options of all tasks, each once."""
    options: list[FileOptions] = []
    for module in _command_modules():
        if module.FILE_OPTIONS not in options:
            options.append(module.FILE_OPTIONS)
    return options


def task_of_files(files: Files) -> str | None:
    """Return the name of the task that these training files belong to; None without files.

    Running text belongs to language modeling; masked language models are chosen by a recipe.
    """
    for name, module in zip(TASKS, _command_modules(), strict=True):
        if module.FILE_OPTIONS.selected(files):
            return name
    return None


def check_files_fit(task: Task, files: Files) -> None:
    """Raise ConfigError if files are of another task than that of a recipe.

    Pairs of texts may also be texts and labels, or words and tags.
    """
    for options in all_file_options():
        if options in (task.data.file_options, PARALLEL_FILES) or not options.selected(files):
            continue
        flag = options.selected(files)[0].flag()
        message = f"trains {options.model}, but the model of this recipe {task.description}"
        hint = f"leave out the recipe, and one for {flag} is chosen"
        raise ConfigError(flag, message, f"give {task.data.file_options.usage()}; or {hint}")


def data_table() -> list[tuple[str, str, str, str]]:
    """Return for each kind of data: what it is, its option, what it trains, and its command."""
    rows: dict[str, tuple[str, str, str, str]] = {}
    for module in _command_modules():
        options = module.FILE_OPTIONS
        command = module.COMMANDS[0].__name__ if module.COMMANDS else ""
        rows.setdefault(options.usage(), (options.data, options.usage(), options.model, command))
    return list(rows.values())


def file_overrides(files: Mapping[Split, Files]) -> list[Override]:
    """Return the recipe overrides that name these files.

    Training files replace all data of the recipe: its dev and test data are of other texts, and
    its interval of validations fits another size.
    """
    settings: dict[Split, dict[str, Any] | None] = {}
    for split, split_files in files.items():
        selected = [options for options in all_file_options() if options.selected(split_files)]
        if len(selected) > 1:
            one, other = (options.selected(split_files)[0].flag(split) for options in selected[:2])
            raise ConfigError(one, f"given together with {other}", "leave out one of the two")
        for options in selected:
            settings[split] = options.data_setting(split_files, split)
    check_columns(settings.values(), files)
    overrides: list[Override] = []
    if "train" in settings:
        interval = Override(("training", "validate_every_epochs"), VALIDATE_EVERY_EPOCHS)
        overrides = [interval, Override(("data", "additional_tests"), {})]
        settings = {"dev": None, "test": None, **settings}
    return overrides + [Override(("data", split), data) for split, data in settings.items()]


def files_by_split(arguments: Mapping[str, Any], *splits: Split) -> dict[Split, dict[str, Any]]:
    """Return files and columns, which are given by keyword, by split and name of the option.

    Columns are those of each split. Raise ArgumentError for a keyword that no task has.
    """
    keywords = file_keywords(*splits)
    files: dict[Split, dict[str, Any]] = {split: {} for split in splits}
    for keyword, value in arguments.items():
        message = f"no argument has this name{did_you_mean(keyword, keywords)}"
        check(keyword in keywords, keyword, message, choices_hint(keywords), ArgumentError)
        for split, name in keywords[keyword]:
            files[split][name] = value
    return files


def file_keywords(*splits: Split) -> dict[str, list[tuple[Split, str]]]:
    """Return the keywords of files and columns, with the options that they stand for."""
    keywords = {
        option.keyword(split): [(split, option.name)]
        for split in splits
        for task_options in all_file_options()
        for option in task_options.all_options
    }
    columns = [*COLUMN_OPTIONS, *(name for task in all_file_options() for name in task.columns)]
    columns += READING_OPTIONS
    return keywords | {name: [(split, name) for split in splits] for name in columns}


def check_columns(settings: Iterable[Any], files: Mapping[Split, Files]) -> None:
    """Raise ConfigError if columns are given, but no file that has any."""
    used = {name for setting in settings if setting for name in setting}
    selected = {name for split in files.values() for name in split if split[name]}
    for name in COLUMN_OPTIONS if COLUMN_OPTIONS[0] not in used else ():
        pair_files = [options.pair_file for options in all_file_options() if options.pair_file]
        flags = [f"{file.option.flag()} FILE" for file in pair_files if file.has_columns]
        hint = f"add {', '.join(flags[:-1])} or {flags[-1]}"
        check(name not in selected, column_flag(name), "works only with a file of pairs", hint)
    for name in {*READING_OPTIONS} & selected - used:
        message = (
            "works only with files of text" if name == "encoding" else "works only with tables"
        )
        raise ConfigError(column_flag(name), message, "leave it out, or give such files")
    for options in all_file_options():
        flag = options.single_file.flag()
        for name in {*options.columns} & selected - used:
            raise ConfigError(column_flag(name), f"works only with {flag}", f"add {flag} FILE")


def _command_modules() -> list[Any]:
    return [import_module(f"{package}.command") for package in TASKS.values()]
