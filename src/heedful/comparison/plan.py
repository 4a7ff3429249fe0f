"""The plan of a comparison: the runs to train, and their data.

Every recipe is trained with several seeds on the same dataset: a built-in corpus, the data of a
recipe, or a folder of files. All recipes are trained with one seed before the next seed, so that an
interrupted comparison has a run of each. All checks are made before the first step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.comparison.budget import BUDGET_SETTINGS, Budget
from heedful.comparison.systems import check_same_task
from heedful.config import Settings, flatten_settings
from heedful.data.examples import ExampleFormat
from heedful.data.synthetic import SYNTHETIC_CORPORA
from heedful.errors import ConfigError, RunError, check, choices_hint, did_you_mean
from heedful.recipes import Recipe, load_recipe, recipe_names
from heedful.runs import Run

SIZES = {"train": 100_000, "dev": 500, "test": 1000}
"""Number of pairs or lines of a built-in corpus."""
RUNS = "runs"
"""Subfolder of a comparison for the runs that it trains."""

_COMPRESSION_SUFFIXES = ("", ".gz", ".xz")
_SYNTHETIC_TYPES = {"pairs": "synthetic", "lines": "synthetic-text"}
_FOLDER_LAYOUTS: Mapping[str, Sequence[tuple[str, Mapping[str, str]]]] = {
    "pairs": [
        ("parallel-files", {"source": "source", "target": "target"}),
        ("parallel-files", {"source": "src", "target": "tgt"}),
        ("tsv", {"path": "tsv"}),
        ("jsonl", {"path": "jsonl"}),
    ],
    "lines": [("text", {"path": "txt"})],
}
"""By format of the examples: types of data sources, and suffixes of their files."""
_EXPECTED_FILES = {"pairs": "train.source and train.target, or train.tsv", "lines": "train.txt"}


# ----- datasets -----


class Dataset(NamedTuple):
    """Data that replace those of a recipe."""

    data: Settings
    tokenizers: Settings | None = None  # None keeps those of each recipe

    def overrides(self, recipe: Recipe) -> list[str]:
        """Return overrides for a recipe; it keeps its batching of running text."""
        lm_batching = recipe.data.lm_batching.model_dump(mode="json")
        overrides = [f"data={json.dumps({'lm_batching': lm_batching, **self.data})}"]
        if self.tokenizers is not None:
            overrides.append(f"tokenizers={json.dumps(self.tokenizers)}")
        return overrides


def find_dataset(name: str, example_format: ExampleFormat) -> Dataset:
    """Find the dataset of a name, as examples of this format."""
    if name in SYNTHETIC_CORPORA:
        source = {"type": _SYNTHETIC_TYPES[example_format.name], "name": name}
        return Dataset(
            {
                split: {**source, "split": split, "num_examples": size}
                for split, size in SIZES.items()
            }
        )
    if Path(name).is_dir():
        return Dataset(_data_from_folder(Path(name), example_format))
    if name in recipe_names() or name.endswith((".yaml", ".yml")):
        return _dataset_from_recipe(name)
    known = [*SYNTHETIC_CORPORA, *recipe_names()]
    raise ConfigError(
        f"--data {name}",
        f"no dataset is called {name!r}{did_you_mean(name, known)}",
        f"{choices_hint(SYNTHETIC_CORPORA)}; or give a recipe with data, a .yaml file or a folder",
    )


def _dataset_from_recipe(name: str) -> Dataset:
    recipe = load_recipe(name)
    check(
        recipe.data.train is not None,
        f"--data {name}",
        "the recipe has no training data",
        "name a recipe with `data.train`, a built-in corpus or a folder",
    )
    settings = recipe.model_dump(mode="json")
    data: dict[str, Any] = settings["data"]
    if "lm_batching" not in recipe.data.model_fields_set:
        del data["lm_batching"]
    has_tokenizers = "tokenizers" in recipe.model_fields_set
    return Dataset(data, settings["tokenizers"] if has_tokenizers else None)


def _data_from_folder(folder: Path, example_format: ExampleFormat) -> Settings:
    sources = {split: _find_source(folder, split, example_format) for split in SIZES}
    check(
        sources["train"],
        f"--data {folder}",
        f"the folder has no {_EXPECTED_FILES[example_format.name]}",
        "rename the files, or write a .yaml file with a `data` section",
    )
    return {split: source for split, source in sources.items() if source}


def _find_source(folder: Path, split: str, example_format: ExampleFormat) -> Settings | None:
    """Return the data source of a split, whose files all have the same compression."""
    for source_type, suffixes in _FOLDER_LAYOUTS[example_format.name]:
        for compression in _COMPRESSION_SUFFIXES:
            paths = {
                field: folder / f"{split}.{suffix}{compression}"
                for field, suffix in suffixes.items()
            }
            if all(path.is_file() for path in paths.values()):
                return {"type": source_type, **{name: str(path) for name, path in paths.items()}}
    return None


# ----- runs -----


class PlannedRun(NamedTuple):
    """A run to be trained."""

    name: str  # of the system
    recipe: Recipe  # without the limits of the budget
    folder: Path


def plan_runs(
    recipes: Sequence[str],
    data: str,
    *,
    seeds: int,
    folder: Path,
    overrides: Sequence[str] = (),
) -> list[PlannedRun]:
    """Plan a run for each recipe and seed; seeds count from the one of the recipe."""
    names = [Path(recipe).stem for recipe in recipes]
    for name in names:
        check(
            names.count(name) == 1,
            "--recipes",
            f"two recipes are called {name!r}",
            "rename one of them",
        )
    originals = [load_recipe(recipe) for recipe in recipes]
    check_same_task(list(zip(names, originals, strict=True)))
    dataset = find_dataset(data, originals[0].task.example_format)
    adapted = [
        _load(recipe, [*dataset.overrides(original), *overrides])
        for recipe, original in zip(recipes, originals, strict=True)
    ]
    return [
        PlannedRun(name, _with_seed(recipe, seed), folder / RUNS / f"{name}-{seed}")
        for seed in range(seeds)
        for name, recipe in zip(names, adapted, strict=True)
    ]


def _load(name: str, overrides: Sequence[str]) -> Recipe:
    try:
        return load_recipe(name, overrides)
    except ConfigError as error:  # its location is an override that the user did not write
        location = error.location.removeprefix("--set ")
        raise ConfigError(f"--recipes {name}: {location}", error.message, error.hint) from None


def _with_seed(recipe: Recipe, index: int) -> Recipe:
    training = recipe.training.model_copy(update={"seed": recipe.training.seed + index})
    return recipe.model_copy(update={"training": training})


def check_unchanged(planned: PlannedRun, budget: Budget) -> None:
    """Raise RunError if the folder has a run with other settings or another budget."""
    run = Run(planned.folder)
    if not run.exists:
        return
    recipe = run.read_recipe()
    old, new = (_comparable_settings(config) for config in (recipe, planned.recipe))
    changes = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    message = "a run with another budget"
    if changes:
        name = changes[0]
        message = f"a run with {name}={old.get(name)}, but now it is {new.get(name)}"
    check(
        not changes and budget.matches_either_segment(recipe),
        str(planned.folder),
        f"the folder has {message}",
        "run the command it was started with, remove the folder, or choose another --output-dir",
        RunError,
    )


def _comparable_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the settings by dotted name, without those that a budget overrides."""
    settings = recipe.model_dump(mode="json", exclude={"info": True})
    overridden = {f"training.{name}" for name in BUDGET_SETTINGS}
    return {name: value for name, value in flatten_settings(settings) if name not in overridden}
