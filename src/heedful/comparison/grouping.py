"""Grouping: which runs are one system?

Runs of the same recipe but of other seeds. What says only where a recipe comes from, how a run was
looked at and what was kept of it makes no other system; nor do the most steps of a run that a limit
of time or of operations ends, since they are then found by measuring (`budgets`). Runs that share
their seed, too, are systems apart: there is something else that differs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from heedful.errors import ConfigError
from heedful.recipes import Recipe
from heedful.runs import Run

MAY_DIFFER = (
    "seed",
    "validate_every",
    "judged",
    "samples",
    "save_every",
    "checkpoints",
    "max_bad_steps",
    "parallel",
)
"""Settings of training that differ within a system."""


class Entrant(NamedTuple):
    """A system that is to be compared."""

    name: str
    recipe: Recipe  # of its first run
    folders: Sequence[Path]  # one for each seed


def group(folders: Iterable[Path]) -> list[Entrant]:
    """Group trained runs into systems, in the order of their first runs."""
    systems = dict[tuple[str, int], list[tuple[Path, Recipe]]]()
    seeds, seen = Counter[tuple[str, int]](), set[Path]()
    for folder in folders:
        _refuse_twice(folder, seen)
        run = Run(folder)
        run.verify()
        recipe = run.read_recipe()
        system = fingerprint(recipe)
        turn = seeds[system, recipe.training.seed]  # the second run of a seed begins a new system
        seeds[system, recipe.training.seed] += 1
        systems.setdefault((system, turn), []).append((folder, recipe))
    groups = list(systems.values())
    names = _distinct([[folder for folder, _ in runs] for runs in groups])
    return [
        Entrant(name, runs[0][1], [folder for folder, _ in runs])
        for name, runs in zip(names, groups, strict=True)
    ]


def fingerprint(recipe: Recipe) -> str:
    """What two recipes have in common if they are of one system."""
    settings = recipe.model_dump(mode="json", exclude={"about": True})
    training = settings["training"]
    for name in MAY_DIFFER:
        del training[name]
    if training["max_minutes"] is not None or training["max_operations"] is not None:
        del training["max_steps"]
    return json.dumps(settings, sort_keys=True)


def _refuse_twice(folder: Path, seen: set[Path]) -> None:
    if folder.resolve() in seen:
        raise ConfigError(str(folder), "this run is named twice", "name each run once")
    seen.add(folder.resolve())


def _distinct(groups: Sequence[Sequence[Path]]) -> list[str]:
    """Name each system after its folders: by their names, or by their paths if those are alike."""
    names = [_name([folder.resolve().name for folder in folders]) for folders in groups]
    counts = Counter(names)
    return [
        name if counts[name] == 1 else str(folders[0])
        for name, folders in zip(names, groups, strict=True)
    ]


def _name(names: Sequence[str]) -> str:
    """Give what the names of runs begin with, less the beginning of a number."""
    if len(names) == 1:
        return names[0]
    alike = takewhile(lambda signs: len({*signs}) == 1, zip(*names, strict=False))
    shared = "".join(signs[0] for signs in alike)
    return re.sub(r"[-_.]?\d*$", "", shared) or names[0]
