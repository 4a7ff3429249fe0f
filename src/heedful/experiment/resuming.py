"""Resuming: may this recipe go on in that folder, and what changes if it does?

A run goes on by the settings it was begun with. What only says how long it goes on, how often it
is looked at and what is kept may change: so a finished run is extended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from heedful.errors import RunError
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.training.checkpoints import Snapshot
from heedful.training.config import TrainingConfig
from heedful.training.limits import Limits
from heedful.training.state import Progress, progress_of

MAY_CHANGE = (
    "about",
    "decoding",
    "training.max_steps",
    "training.max_epochs",
    "training.max_minutes",
    "training.max_operations",
    "training.max_bad_steps",
    "training.patience",
    "training.validate_every",
    "training.judged",
    "training.samples",
    "training.save_every",
    "training.checkpoints",
    "training.parallel",
)


class Change(NamedTuple):
    """A setting that is not what it was."""

    at: str
    old: object
    new: object


def settle(run: Run, recipe: Recipe, tell: Callable[[str], None]) -> None:
    """Make a recipe that of a run that exists, or say why it cannot be."""
    changes = list(_changes(run.read_recipe().model_dump(), recipe.model_dump()))
    for at, old, new in changes:
        if not _may_change(at):
            raise RunError(
                str(run.folder),
                f"the folder holds a run with {at}={old}, but now it is {new}",
                "give the settings it was begun with to go on, or another folder with --run",
            )
    for at, old, new in changes:
        tell(f"{run.folder}: {at} was {old} and is now {new}")
    if changes:
        run.replace_recipe(recipe)


def finished(config: TrainingConfig, snapshot: Snapshot) -> Progress | None:
    """Give how far a run came that is over, if these settings take it no further."""
    progress = progress_of(snapshot)
    limits = Limits(config)
    over = limits.passed(progress.reached(snapshot.step)) or limits.is_hopeless(progress)
    return progress if progress.ended and over else None


def _may_change(at: str) -> bool:
    return any(at == free or at.startswith(f"{free}.") for free in MAY_CHANGE)


def _changes(old: Any, new: Any, at: str = "") -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            inner = f"{at}.{key}" if at else str(key)
            yield from _changes(old.get(key), new.get(key), inner)
    elif old != new:
        yield Change(at, old, new)
