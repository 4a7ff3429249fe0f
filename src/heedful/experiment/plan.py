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
from pathlib import Path
from reprlib import repr as short_repr
from types import MappingProxyType
from typing import Any, Self

import torch
from rich.console import Console

from heedful.config import SettingsArgument, to_overrides
from heedful.errors import ArgumentError, ConfigError, RunError, check, format_count
from heedful.experiment.data_modules import require_training_data
from heedful.experiment.default_recipe import DEFAULT_RECIPE, complete_default
from heedful.experiment.flops import check_trainable
from heedful.experiment.pretrained_encoder import with_pretrained_model
from heedful.recipes import Recipe, load_recipe
from heedful.recipes.recipe import RecipeArgument
from heedful.runs import Run, resolve_device
from heedful.storage.atomic import atomic_replace
from heedful.tasks.command_line import PARALLEL_FILES, FileOptions, Files
from heedful.tasks.registry import (
    all_file_options,
    check_files_fit,
    file_overrides,
    files_by_split,
    task_of_files,
)
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
        check_trackers(self.report_to)
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
        loaded = load_training_recipe(recipe, overrides, device, files=by_split["train"])
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
) -> Recipe:
    """Load a recipe to train; `default` is completed for the device and the data.

    `files` are the training files that the settings name, by option: they decide the task.
    """
    if recipe == DEFAULT_RECIPE:
        return complete_default(
            to_overrides(settings), resolve_device(device), task_of_files(files)
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
