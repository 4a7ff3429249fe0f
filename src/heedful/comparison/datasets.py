"""The data of a comparison: a built-in corpus, the data of a recipe, or a folder of files."""

import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from heedful.config import Settings, fields_with_role
from heedful.config.base import type_of
from heedful.data.sources import SyntheticConfig
from heedful.errors import ConfigError, check, choices_hint, did_you_mean
from heedful.recipes import Recipe, load_recipe, recipe_names
from heedful.recipes.recipe import DataConfig
from heedful.tasks.command_line import Split
from heedful.tasks.registry import all_tasks
from heedful.tasks.task import Task

SPLITS: tuple[Split, ...] = ("train", "dev", "test")
_BATCHING = fields_with_role(DataConfig, "batching")
_NUM_TRIED = 20  # examples of a built-in corpus, to see whether it fits a task


class Dataset(NamedTuple):
    """Data that replace the data of a recipe."""

    data: Settings
    tokenizers: Settings | None = None  # None keeps those of each recipe

    def overrides(self, recipe: Recipe) -> list[str]:
        """Return overrides for a recipe; it keeps how its examples are batched."""
        kept = recipe.data.model_dump(mode="json", include={*_BATCHING})
        overrides = [f"data={json.dumps({**kept, **self.data})}"]
        if self.tokenizers is not None:
            overrides.append(f"tokenizers={json.dumps(self.tokenizers)}")
        return overrides


def task_of_dataset(name: str) -> Task:
    """Return the task of a recipe with data, else the first task with such examples."""
    for task in all_tasks():
        if name in built_in_corpora(task) or Path(name).is_dir():
            with suppress(ConfigError):
                find_dataset(name, task)
                return task
    return load_recipe(name).task if _is_recipe(name) else all_tasks()[0]


def _is_recipe(name: str) -> bool:
    return name in recipe_names() or name.endswith((".yaml", ".yml"))


def find_dataset(name: str, task: Task) -> Dataset:
    """Find the dataset of a name, as examples of this task."""
    corpora = built_in_corpora(task)
    if name in corpora and _fits(task, name, corpora[name]):
        return _built_in_dataset(name, corpora[name])
    if (folder := Path(name)).is_dir():
        return _dataset_from_folder(folder, task)
    if _is_recipe(name):
        return _dataset_from_recipe(name)
    names = [other for other, config in corpora.items() if _fits(task, other, config)]
    message = f"no dataset is called {name!r}{did_you_mean(name, [*names, *recipe_names()])}"
    if any(name in built_in_corpora(other) for other in all_tasks()):
        message = f"this built-in corpus has no {task.data.example_format.description}"
    choices = f"{choices_hint(names)}; or give" if names else "give"
    hint = f"{choices} a recipe with data, a .yaml file or a folder"
    raise ConfigError(f"--data {name}", message, hint)


def built_in_corpora(task: Task) -> Mapping[str, type[SyntheticConfig]]:
    """Return the source configs of the corpora that heedful generates for a task, by name."""
    configs = [config for config in task.data.source_configs if issubclass(config, SyntheticConfig)]
    return {name: config for config in configs for name in config.corpus_names()}


def _fits(task: Task, name: str, config: type[SyntheticConfig]) -> bool:
    """Return whether a corpus of texts has examples of a task; other corpora are of one task."""
    if not task.data.example_format.has_tokens:
        return True
    source: Any = config.model_validate({"name": name, "num_examples": _NUM_TRIED})
    return task.data.example_format.fits(list(islice(source.stream(), _NUM_TRIED)))


def _built_in_dataset(name: str, config: type[SyntheticConfig]) -> Dataset:
    corpus = {"type": str(type_of(config)), "name": name}
    sizes = config.default_sizes.items()
    return Dataset({split: {**corpus, "split": split, "num_examples": n} for split, n in sizes})


def _dataset_from_folder(folder: Path, task: Task) -> Dataset:
    options = task.data.file_options
    settings = {split: options.folder_setting(folder, split) for split in SPLITS}
    message = f"the folder has no {options.expected_files()}"
    hint = "rename the files, or write a .yaml file with a `data` section"
    check(settings["train"], f"--data {folder}", message, hint)
    return Dataset({split: setting for split, setting in settings.items() if setting})


def _dataset_from_recipe(name: str) -> Dataset:
    recipe = load_recipe(name)
    message = "the recipe has no training data"
    hint = "name a recipe with `data.train`, a built-in corpus or a folder"
    check(recipe.data.train is not None, f"--data {name}", message, hint)
    settings = recipe.model_dump(mode="json")
    data: dict[str, Any] = settings["data"]
    for default in {*_BATCHING} - recipe.data.model_fields_set:
        del data[default]
    has_tokenizers = "tokenizers" in recipe.model_fields_set
    return Dataset(data, settings["tokenizers"] if has_tokenizers else None)
