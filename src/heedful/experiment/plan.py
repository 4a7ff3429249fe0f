"""From the arguments of `heedful train` to a plan, which is made once and handed down.

Invariant: what cannot be trained is reported before anything is read or written, except for pairs.
Pairs in memory are written to `RUN/pairs.jsonl`, which the recipe names, so the run can be resumed
with the same pairs, or without them from `RUN/config.yaml`. That file never changes once the run
has a checkpoint.
"""

import filecmp
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from reprlib import repr as short_repr
from types import MappingProxyType
from typing import Any, Self

import torch
from rich.console import Console

from heedful.config import (
    BaseConfig,
    Override,
    Settings,
    SettingsArgument,
    to_overrides,
    validate_settings,
)
from heedful.config.base import type_of
from heedful.data.text.sharded_dataset import PreparedDataConfig, load_prepared_dataset
from heedful.errors import ArgumentError, ConfigError, RunError, check, format_count
from heedful.experiment.data_modules import require_training_data
from heedful.experiment.embedding_files import check_embedding_file
from heedful.experiment.environment import usable_cores
from heedful.experiment.flops import check_trainable
from heedful.experiment.pretrained_encoder import with_pretrained_model
from heedful.recipes import Recipe, load_recipe
from heedful.recipes.recipe import DEFAULT_RECIPE, DataConfig, RecipeArgument
from heedful.runs import Run, resolve_device
from heedful.storage.atomic import atomic_replace
from heedful.tasks.command_line import PARALLEL_FILES, FileOptions, Files
from heedful.tasks.registry import (
    all_file_options,
    all_tasks,
    check_files_fit,
    file_overrides,
    files_by_split,
    task_of_files,
)
from heedful.tasks.task import Task
from heedful.training.callbacks import Callback
from heedful.training.config import TrainingConfig
from heedful.training.progress import print_line
from heedful.training.trackers import check_trackers

FileArgument = str | os.PathLike[str] | None
PairsArgument = FileArgument | Iterable[tuple[str, str]]
DataArgument = PairsArgument | Mapping[str, PairsArgument]
"""Files by option, `{"labeled": "train.tsv"}`; a file of the recipe's task; or pairs."""
_PAIRS_FILE = "pairs.jsonl"


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained, where, and how it is monitored."""

    recipe: Recipe
    run: Run
    device: torch.device
    console: Console = field(default_factory=lambda: Console(stderr=True))
    callbacks: Sequence[Callback] = ()
    report_to: Sequence[str] = ()  # names of trackers
    auto_find_batch_size: bool = False
    memory_limit: int | None = None  # in bytes, of that search

    def checked(self) -> Self:
        """Return the plan with its pretrained encoder; raise if it cannot be carried out."""
        require_training_data(self.recipe)
        if self.report_to:
            check_trackers(self.report_to)
        if not self.run.is_saved:  # a saved run does not read them again
            for _, path in self.config.init_embeddings:
                if path is not None:
                    check_embedding_file(path)
        plan = self
        if self.recipe.pretrained_encoder:
            plan = self.with_recipe(with_pretrained_model(self.recipe, self.run))
        check_trainable(plan.recipe)
        return plan

    @property
    def config(self) -> TrainingConfig:
        """The section `training` of the recipe."""
        return self.recipe.training

    def with_recipe(self, recipe: Recipe) -> Self:
        """Return the plan with another recipe."""
        return replace(self, recipe=recipe)

    def log(self, message: str) -> None:
        """Print a line; only the main process has a console."""
        print_line(self.console, message)


def run_folder(recipe: RecipeArgument, run: FileArgument) -> Path:
    """Return the folder to train into: runs/NAME if none is given."""
    message, hint = "not given, and the recipe has no name", "pass run='runs/NAME'"
    check(run is not None or isinstance(recipe, str | Path), "run", message, hint, ArgumentError)
    return Path("runs") / Path(str(recipe)).stem if run is None else Path(run)


def load_recipe_with_data(
    recipe: RecipeArgument,
    run: Run,
    *,
    data: DataArgument,
    files: Mapping[str, PairsArgument],
    settings: SettingsArgument,
    device: torch.device,
) -> Recipe:
    """Return the recipe with this data and these settings; write pairs that are in memory.

    Data that is given replaces all data of the recipe, also dev and test data.
    """
    named = name_files(data, files, lambda: load_recipe(recipe).task.data.file_options)
    in_memory = None
    if not is_path(named.get("pairs", "")):
        in_memory, named["pairs"] = named["pairs"], str(run.folder / _PAIRS_FILE)
    paths = {name: check_path(name, path) for name, path in named.items()}
    by_split = files_by_split(paths, "train", "dev")
    selected = [options for options in all_file_options() if options.selected(by_split["train"])]
    hint = "give the data in one way"
    check(len(selected) <= 1, ", ".join(paths), "given together", hint, ArgumentError)
    with python_names():
        overrides = file_overrides(by_split)
    overrides += to_overrides(settings)
    try:
        if in_memory is not None and recipe == DEFAULT_RECIPE:  # which is sized by the pairs
            load_recipe(recipe, overrides)  # report errors before anything is written
            _store_pairs(in_memory, run)
        loaded = load_training_recipe(recipe, overrides, device, files=by_split["train"], run=run)
    except ConfigError as error:
        location = error.location.removeprefix("--set ")
        raise ConfigError(location, error.message, error.hint) from None
    if in_memory is not None and recipe != DEFAULT_RECIPE:
        _store_pairs(in_memory, run)
    return loaded


def name_files(
    data: DataArgument, files: Mapping[str, Any], task_options: Callable[[], FileOptions]
) -> dict[str, Any]:
    """Return the files that are given, by option; pairs in memory are those of --pairs."""
    named = {name: value for name, value in files.items() if value is not None}
    message, hint = f"given together with {', '.join(named)}", "give the data in one way"
    check(data is None or not named, "data", message, hint, ArgumentError)
    if data is None:
        return named
    if isinstance(data, Mapping):
        return {str(name): value for name, value in data.items() if value is not None}
    options = task_options() if is_path(data) else PARALLEL_FILES
    return {options.single_file.name: data}


def is_path(value: object) -> bool:
    """Return whether a value names a file."""
    return isinstance(value, str | os.PathLike)


def check_path(name: str, value: Any) -> str:
    """Return the path of a file; raise ArgumentError for other values."""
    message = f"must be a file, but is {short_repr(value)} ({type(value).__name__})"
    check(is_path(value), name, message, "only pairs can be given in memory", ArgumentError)
    return os.fspath(value)


@contextmanager
def python_names() -> Iterator[None]:
    """Turn an error about options of the command line into one about arguments of Python."""
    try:
        yield
    except ConfigError as error:
        parts = [
            re.sub(r"--([a-z-]+)", lambda option: option[1].replace("-", "_"), part)
            for part in (error.location, error.message, error.hint)
        ]
        raise ArgumentError(*parts) from None


def load_training_recipe(
    recipe: RecipeArgument,
    settings: SettingsArgument = (),
    device: str | torch.device = "auto",
    *,
    files: Files = MappingProxyType({}),
    run: Run | None = None,
) -> Recipe:
    """Load a recipe to train; `default` is completed for the device and the data.

    `files` are the training files that the settings name, by option: they decide the task. A `run`
    that is saved decides what depends on the machine: it may be resumed on another one.
    """
    if recipe == DEFAULT_RECIPE:
        return complete_default(
            to_overrides(settings), resolve_device(device), task_of_files(files), run
        )
    loaded = load_recipe(recipe, settings)
    check_files_fit(loaded.task, files)
    return loaded


def _store_pairs(pairs: Iterable[tuple[str, str]], run: Run) -> None:
    path = run.folder / _PAIRS_FILE
    with atomic_replace(path) as temporary:
        with temporary.open("w", encoding="utf-8") as file:
            count = _write_pairs(pairs, file.write)
        is_same = path.exists() and filecmp.cmp(path, temporary, shallow=False)
        message = f"this run was not started with the {format_count(count, 'pair')} given now"
        hint = "pass the same pairs in the same order, or leave them out and train "
        hint += f"{str(run.folder / 'config.yaml')!r}, or use another run folder"
        check(is_same or not run.is_saved, str(run.folder), message, hint, RunError)


def check_pair(pair: Any, index: int) -> tuple[str, str]:
    """Return a pair, or raise ArgumentError unless it is (source, target)."""
    parts = tuple(pair) if isinstance(pair, tuple | list) else ()
    if list(map(type, parts)) != [str, str]:
        message = f"expected (source, target), two strings, got {pair!r}"
        raise ArgumentError(f"pairs[{index}]", message, "give one tuple for each example")
    return parts[0], parts[1]


def _write_pairs(pairs: Iterable[tuple[str, str]], write: Callable[[str], object]) -> int:
    """Write each pair as a line; return their number."""
    count = 0
    for index, pair in enumerate(pairs):
        source, target = check_pair(pair, index)
        write(json.dumps({"source": source, "target": target}) + "\n")
        count += 1
    hint = "give one tuple (source, target) for each example"
    check(count, "pairs", "is empty", hint, ArgumentError)
    return count


# ----- the recipe of a training without one: that of the task which the data belongs to
#
# The task is that of the file option (`--labeled`: classification), else the first one that reads
# data of this type. What the user sets wins. docs/training.md lists the rules.

_LIMITS = ("max_steps", "max_epochs", "max_minutes", "max_flops")


class _DataSettings(BaseConfig):
    data: DataConfig = DataConfig()


def complete_default(
    overrides: Sequence[Override],
    device: torch.device,
    task_name: str | None = None,
    run: Run | None = None,
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
    settings = {
        **_machine_settings(task, default.name, device, run),
        **default.settings,
        **settings,
    }
    changed = {".".join(override.path) for override in overrides}
    if changed & {f"training.{limit}" for limit in _LIMITS}:
        settings["training.max_minutes"] = None  # unless it is among them
    return load_recipe(default.name, [*to_overrides(settings), *overrides])


def _machine_settings(
    task: Task, name: str, device: torch.device, run: Run | None
) -> dict[str, Any]:
    """Return what the number of cores decides, or has decided when the run was started."""
    settings = task.core_settings(len(usable_cores())) if device.type == "cpu" else {}
    if run is None or not run.is_saved:
        return settings
    saved = run.read_recipe()
    if saved.info.name != name:
        return settings
    return {setting: attrgetter(setting)(saved) for setting in settings}


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
