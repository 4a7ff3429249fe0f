"""Plans: which runs does a comparison train, and may it?

Each recipe is trained with several seeds on the same data, all recipes with one seed before any
with the next, so that what is interrupted has something of each. Everything that can be refused is
refused before the first step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.comparison.budgets import DECIDED, Budget
from heedful.comparison.comparing import refuse_mixed
from heedful.comparison.datasets import find_dataset
from heedful.errors import ConfigError, RunError
from heedful.recipes import Recipe, load_recipe
from heedful.runs import Run

RUNS = "runs"
"""The folder, of a comparison's own, that its runs are in."""


class Planned(NamedTuple):
    """A run to be trained."""

    name: str  # of the system
    recipe: Recipe  # without the limits of the budget
    folder: Path


def plan(
    recipes: Sequence[str],
    data: str,
    *,
    seeds: int,
    folder: Path,
    overrides: Sequence[str] = (),
) -> list[Planned]:
    """Plan a run for each recipe and each seed; seeds count from the recipe's own."""
    names = [Path(recipe).stem for recipe in recipes]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                "--recipes", f"two of them are called {name!r}", "give one of them another name"
            )
    own = [load_recipe(recipe) for recipe in recipes]
    refuse_mixed(list(zip(names, own, strict=True)))
    dataset = find_dataset(data, is_of_text=own[0].is_of_text)
    on_data = [
        _load(recipe, [*dataset.overrides(before), *overrides])
        for recipe, before in zip(recipes, own, strict=True)
    ]
    return [
        Planned(name, _with_seed(recipe, seed), folder / RUNS / f"{name}-{seed}")
        for seed in range(seeds)
        for name, recipe in zip(names, on_data, strict=True)
    ]


def _load(name: str, overrides: Sequence[str]) -> Recipe:
    try:
        return load_recipe(name, overrides)
    except ConfigError as error:  # its place is an override that the user did not write
        at = error.at.removeprefix("--set ")
        raise ConfigError(f"--recipes {name}: {at}", error.problem, error.remedy) from None


def _with_seed(recipe: Recipe, number: int) -> Recipe:
    training = recipe.training.model_copy(update={"seed": recipe.training.seed + number})
    return recipe.model_copy(update={"training": training})


def refuse_changed(planned: Planned, budget: Budget) -> None:
    """Refuse a folder that holds a run of other settings, or of another budget."""
    run = Run(planned.folder)
    if not run.exists:
        return
    recipe = run.read_recipe()
    old, new = (_settings(each) for each in (recipe, planned.recipe))
    changes = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if changes:
        at = changes[0]
        raise _other(planned, f"a run with {at}={old.get(at)}, but now it is {new.get(at)}")
    if not budget.allows(recipe):
        raise _other(planned, "a run that was trained under another budget")


def _other(planned: Planned, problem: str) -> RunError:
    return RunError(
        str(planned.folder),
        f"the folder holds {problem}",
        "give the command it was begun with, remove the folder, or name another with --output",
    )


def _settings(recipe: Recipe) -> dict[str, Any]:
    """The settings of a recipe by their dotted names, less those that a budget decides."""
    settings = recipe.model_dump(mode="json", exclude={"about": True})
    decided = {f"training.{name}" for name in DECIDED}
    return {name: value for name, value in _flat(settings) if name not in decided}


def _flat(settings: Mapping[str, Any], at: str = "") -> list[tuple[str, Any]]:
    flat = list[tuple[str, Any]]()
    for name, value in settings.items():
        inner = f"{at}{name}"
        flat += _flat(value, f"{inner}.") if isinstance(value, dict) else [(inner, value)]
    return flat
