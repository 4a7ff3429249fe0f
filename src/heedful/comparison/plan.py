"""Datasets: what do all runs of a comparison learn from?

Named by a word: a built-in corpus, a recipe whose data it is, or a folder of files. What a recipe
says of its own data is replaced by this, but for how running text is read, which belongs to the
model. Text is cut as the dataset's recipe says, where that says it, and else as each recipe does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.comparison.budget import BUDGET_SETTINGS, Budget
from heedful.comparison.systems import check_same_task
from heedful.config import Settings
from heedful.data.synthetic import SYNTHETIC_CORPORA
from heedful.errors import ConfigError, RunError, choices_hint, did_you_mean
from heedful.recipes import Recipe, load_recipe, recipe_names
from heedful.runs import Run

SIZES = {"train": 100_000, "dev": 500, "test": 1000}
"""How many pairs, or lines, of a built-in corpus."""
COMPRESSION_SUFFIXES = ("", ".gz", ".xz")
SIDES = (("source", "target"), ("src", "tgt"))


class Dataset(NamedTuple):
    """What is learned from, validated on and tested on."""

    data: Settings
    tokenizers: Settings | None = None  # how it is cut; None leaves that to each recipe

    def overrides(self, recipe: Recipe) -> list[str]:
        """Say it as overrides of a recipe."""
        streams = recipe.data.lm_batching.model_dump(mode="json")
        changes = [f"data={json.dumps({'lm_batching': streams, **self.data})}"]
        return (
            changes
            if self.tokenizers is None
            else [*changes, f"tokenizers={json.dumps(self.tokenizers)}"]
        )


def find_dataset(name: str, *, is_monolingual: bool) -> Dataset:
    """Find the dataset of a name, as pairs or as running text."""
    if name in SYNTHETIC_CORPORA:
        return Dataset({split: _synthetic_settings(name, split, is_monolingual) for split in SIZES})
    if Path(name).is_dir():
        return Dataset(_dataset_from_folder(Path(name), is_monolingual=is_monolingual))
    if name in recipe_names() or name.endswith((".yaml", ".yml")):
        return _dataset_from_recipe(name)
    known = [*SYNTHETIC_CORPORA, *recipe_names()]
    raise ConfigError(
        f"--data {name}",
        f"no data is called so{did_you_mean(name, known)}",
        f"{choices_hint(SYNTHETIC_CORPORA)}; or give a recipe with data, a .yaml file or a folder",
    )


def _synthetic_settings(name: str, split: str, is_monolingual: bool) -> Settings:
    kind = "synthetic-text" if is_monolingual else "synthetic"
    return {"type": kind, "name": name, "split": split, "num_examples": SIZES[split]}


def _dataset_from_recipe(name: str) -> Dataset:
    recipe = load_recipe(name)
    if recipe.data.train is None:
        raise ConfigError(
            f"--data {name}",
            "this recipe does not say what to learn from",
            "name one with `data.train`, a built-in corpus or a folder",
        )
    settings = recipe.model_dump(mode="json")
    data: dict[str, Any] = settings["data"]
    if "lm_batching" not in recipe.data.model_fields_set:
        del data["lm_batching"]
    return Dataset(
        data, settings["tokenizers"] if "tokenizers" in recipe.model_fields_set else None
    )


def _dataset_from_folder(folder: Path, *, is_monolingual: bool) -> Settings:
    found = {split: _files(folder, split, is_monolingual=is_monolingual) for split in SIZES}
    if found["train"] is None:
        wanted = "train.txt" if is_monolingual else "train.source and train.target, or train.tsv"
        raise ConfigError(
            f"--data {folder}",
            f"the folder does not hold {wanted}",
            "name its files so, or write a .yaml file with a `data` section",
        )
    return {split: source for split, source in found.items() if source is not None}


def _files(folder: Path, split: str, *, is_monolingual: bool) -> Settings | None:
    if is_monolingual:
        text = _first_existing(folder, [f"{split}.txt"])
        return {"type": "text", "path": text[0]} if text else None
    for source, target in SIDES:
        if pair := _first_existing(folder, [f"{split}.{source}", f"{split}.{target}"]):
            return {"type": "parallel-files", "source": pair[0], "target": pair[1]}
    for kind in ("tsv", "jsonl"):
        if table := _first_existing(folder, [f"{split}.{kind}"]):
            return {"type": kind, "path": table[0]}
    return None


def _first_existing(folder: Path, names: Sequence[str]) -> list[str]:
    """The paths of files of these names, all with the same ending; nothing if one is missing."""
    for ending in COMPRESSION_SUFFIXES:
        paths = [folder / f"{name}{ending}" for name in names]
        if all(path.is_file() for path in paths):
            return [str(path) for path in paths]
    return []


# Plans: which runs does a comparison train, and may it?
#
# Each recipe is trained with several seeds on the same data, all recipes with one seed before any
# with the next, so that what is interrupted has something of each. Everything that can be refused is
# refused before the first step.

RUNS = "runs"
"""The folder, of a comparison's own, that its runs are in."""


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
    """Plan a run for each recipe and each seed; seeds count from the recipe's own."""
    names = [Path(recipe).stem for recipe in recipes]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                "--recipes", f"two of them are called {name!r}", "give one of them another name"
            )
    own = [load_recipe(recipe) for recipe in recipes]
    check_same_task(list(zip(names, own, strict=True)))
    dataset = find_dataset(data, is_monolingual=own[0].is_monolingual)
    on_data = [
        _load(recipe, [*dataset.overrides(before), *overrides])
        for recipe, before in zip(recipes, own, strict=True)
    ]
    return [
        PlannedRun(name, _with_seed(recipe, seed), folder / RUNS / f"{name}-{seed}")
        for seed in range(seeds)
        for name, recipe in zip(names, on_data, strict=True)
    ]


def _load(name: str, overrides: Sequence[str]) -> Recipe:
    try:
        return load_recipe(name, overrides)
    except ConfigError as error:  # its place is an override that the user did not write
        at = error.location.removeprefix("--set ")
        raise ConfigError(f"--recipes {name}: {at}", error.message, error.hint) from None


def _with_seed(recipe: Recipe, number: int) -> Recipe:
    training = recipe.training.model_copy(update={"seed": recipe.training.seed + number})
    return recipe.model_copy(update={"training": training})


def check_unchanged(planned: PlannedRun, budget: Budget) -> None:
    """Refuse a folder that holds a run of other settings, or of another budget."""
    run = Run(planned.folder)
    if not run.exists:
        return
    recipe = run.read_recipe()
    old, new = (_comparable_settings(each) for each in (recipe, planned.recipe))
    changes = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if changes:
        at = changes[0]
        raise _other_run_error(
            planned, f"a run with {at}={old.get(at)}, but now it is {new.get(at)}"
        )
    if not budget.matches_either_segment(recipe):
        raise _other_run_error(planned, "a run that was trained under another budget")


def _other_run_error(planned: PlannedRun, message: str) -> RunError:
    return RunError(
        str(planned.folder),
        f"the folder holds {message}",
        "give the command it was begun with, remove the folder, or name another with --output",
    )


def _comparable_settings(recipe: Recipe) -> dict[str, Any]:
    """The settings of a recipe by their dotted names, less those that a budget decides."""
    settings = recipe.model_dump(mode="json", exclude={"info": True})
    decided = {f"training.{name}" for name in BUDGET_SETTINGS}
    return {name: value for name, value in _flatten(settings) if name not in decided}


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat = list[tuple[str, Any]]()
    for name, value in settings.items():
        inner = f"{prefix}{name}"
        flat += _flatten(value, f"{inner}.") if isinstance(value, dict) else [(inner, value)]
    return flat
