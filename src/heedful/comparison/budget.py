"""Budgets: how long may each run of a comparison be trained?

So many steps, so much time or so many operations; whichever it is, a run is validated ten times on
the way, and nothing else ends it. A schedule such as a cosine falls until the last step, which a
budget of time does not know. So the first tenth of such a budget is a leg of its own: the steps
that were taken in it say how many the whole will have (`foretelling`). Law: a run ends at the rate
its schedule ends at, as near as its speed was even.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

from heedful.comparison.results import ValidationPoint
from heedful.errors import ConfigError
from heedful.experiment import TrainingResult
from heedful.inspection.run_report import read_json_lines
from heedful.inspection.training_curves import (
    Entry,
    Timeline,
    as_finite_float,
    entries_of_type,
    validation_metric_names,
)
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.training.checkpoints import PROGRESS_FILE, list_checkpoints

# Foretelling: how many steps fit into a time, by those that were taken in its first part?
#
# The first step pays for what is set up once, so it does not count for the pace; nor do validations,
# which take their part of the time that is left.
#
#     steps = s + (T - t_s - n v) (s - 1) / (t_s - t_1)
#
# where the first part ended after step s at time t_s, T is the whole time, t_1 the time of the first
# step, and n validations that take v each are still to come.


def estimate_steps(
    entries: Sequence[Entry],
    *,
    step: int,
    elapsed_seconds: float,
    total_seconds: float,
    validations: int,
) -> int:
    """Tell how many steps `summon_full_params` seconds have room for, from the lines of a run's first part.

    After `step` steps and `taken` seconds so many `validations` are still to come.
    """
    first = _startup_seconds(entries) if step > 1 else 0.0
    each = (elapsed_seconds - first) / max(1, step - 1)
    left = (
        total_seconds
        - elapsed_seconds
        - validations * _validation_seconds(entries, elapsed_seconds)
    )
    return step + max(1, round(left / each)) if each > 0 else step + 1


def _startup_seconds(entries: Sequence[Entry]) -> float:
    training = entries_of_type(entries, "training")
    is_first = bool(training) and training[0]["step"] == 1
    return (as_finite_float(training[0].get("seconds")) or 0.0) if is_first else 0.0


def _validation_seconds(entries: Sequence[Entry], elapsed_seconds: float) -> float:
    """How long the validation took that ended the first part."""
    held_out = entries_of_type(entries, "validation")
    ended = as_finite_float(held_out[-1].get("seconds")) if held_out else None
    return max(0.0, ended - elapsed_seconds) if ended is not None else 0.0


# Spending: what did a run take, and how did it get where it is?
#
# Read from its newest checkpoint, which says how far it came, and from the lines it left on the way.
# Where no checkpoint is kept, lines are all there is: they come every few steps, and what the last of
# them says is carried on to the last step in proportion. What old runs have not told stays unknown.

METRICS_FILE, CHECKPOINTS_FOLDER = "metrics.jsonl", "checkpoints"


class TrainingCost(NamedTuple):
    """What the training of one run took; None where it has not told."""

    steps: int | None
    seconds: float | None  # reading of data not counted
    flops: float | None
    peak_memory: float | None  # bytes at the peak
    curve: Sequence[ValidationPoint]


def read_training_cost(folder: Path) -> TrainingCost:
    """Read what a run has told."""
    entries = read_json_lines(folder / METRICS_FILE)
    training, held_out = (
        entries_of_type(entries, "training"),
        entries_of_type(entries, "validation"),
    )
    reached, progress = _newest_progress(folder)
    steps = [int(entry["step"]) for entry in (*training, *held_out)]
    last = max([*steps, *reached], default=None)
    saved_progress = (
        progress if last in reached else {}
    )  # a run that was killed came further than that
    seconds, operations = (
        as_finite_float(saved_progress.get(name)) for name in ("seconds", "flops")
    )
    memory = [
        found
        for entry in training
        if (found := as_finite_float(entry.get("peak_memory"))) is not None
    ]
    return TrainingCost(
        last,
        _last_logged("seconds", training, last) if seconds is None else seconds,
        _last_logged("flops", training, last) if operations is None else operations,
        max(memory, default=None),
        _curve(training, held_out),
    )


def _newest_progress(folder: Path) -> tuple[list[int], dict[str, Any]]:
    """The step of the newest checkpoint, if one is kept, and how far the run had come then."""
    for step, _, checkpoint in reversed(list_checkpoints(folder / CHECKPOINTS_FOLDER)):
        with suppress(OSError, ValueError):
            return [step], dict(
                json.loads((checkpoint / PROGRESS_FILE).read_text(encoding="utf-8"))
            )
    return [], {}


def _last_logged(name: str, training: Sequence[Entry], last: int | None) -> float | None:
    known = [
        (found, entry)
        for entry in training
        if (found := as_finite_float(entry.get(name))) is not None
    ]
    if not known or last is None:
        return None
    found, entry = known[-1]
    return found * last / max(1, entry["step"])


def _curve(training: Sequence[Entry], held_out: Sequence[Entry]) -> list[ValidationPoint]:
    timeline, names = Timeline([*training, *held_out]), ["loss", *validation_metric_names(held_out)]
    points = list[ValidationPoint]()
    for entry in held_out:
        step, seconds, operations = timeline.locate(entry)
        scores = {
            name: found for name in names if (found := as_finite_float(entry.get(name))) is not None
        }
        points.append(ValidationPoint(int(step), seconds, operations, scores))
    return points


FIRST_SEGMENT_FRACTION = 0.1  # of the budget
NUM_VALIDATIONS = 10
_UNLIMITED_STEPS = 1_000_000_000  # steps, while it is not known how many there will be

Limit = Literal["max_steps", "max_minutes", "max_flops"]
Train = Callable[[Recipe, Path], TrainingResult]

_UNITS: dict[str, tuple[str, Limit, float]] = {
    "s": ("seconds", "max_minutes", 1 / 60),
    "m": ("minutes", "max_minutes", 1),
    "h": ("hours", "max_minutes", 60),
    "steps": ("steps", "max_steps", 1),
    "flops": ("FLOPs", "max_flops", 1),
}
_BUDGET_PATTERN = re.compile(rf"(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*({'|'.join(_UNITS)})")
_LIMIT_SETTINGS = ("max_steps", "max_minutes", "max_flops", "max_epochs", "patience")
BUDGET_SETTINGS = (*_LIMIT_SETTINGS, "validate_every")
"""Settings of training that a budget decides, whatever a recipe says."""


class Budget(NamedTuple):
    """What each run may take."""

    text: str  # in words
    limit: Limit
    max_value: float

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read a budget such as 2m, 90s, 1h, 500steps or 1e15flops."""
        found = _BUDGET_PATTERN.fullmatch(text.strip().lower())
        name, limit, unit = _UNITS[found[2] if found else "s"]
        amount = float(found[1]) if found else 0.0
        if not 0 < amount < inf or (limit == "max_steps" and amount % 1):
            raise ConfigError(
                f"--budget {text}",
                "not an amount of training",
                "write it as 90s, 2m, 1h, 500steps or 1e15flops",
            )
        return cls(f"{amount:g} {name if amount != 1 else name[:-1]}", limit, amount * unit)

    @property
    def seconds(self) -> float | None:
        """How long a run takes, if the budget says so."""
        return 60 * self.max_value if self.limit == "max_minutes" else None

    def matches_final_segment(self, recipe: Recipe) -> bool:
        """Say whether a recipe has the limits that end a training under this budget."""
        steps = round(self.max_value) if self.limit == "max_steps" else recipe.training.max_steps
        return recipe == self._final_segment(recipe, steps)

    def matches_either_segment(self, recipe: Recipe) -> bool:
        """Say whether a recipe has the limits of either leg."""
        is_first = self.limit != "max_steps" and recipe == self._first_segment(recipe)
        return is_first or self.matches_final_segment(recipe)

    def train(self, recipe: Recipe, folder: Path, train: Train) -> TrainingResult:
        """Train by a recipe into a folder, or go on there, until the budget is used up."""
        if self.limit == "max_steps":
            return train(self._final_segment(recipe, round(self.max_value)), folder)
        steps = self._read_planned_steps(folder)
        if steps is None:
            outcome = train(self._first_segment(recipe), folder)
            if not outcome.stop_reason:
                return outcome
            steps = self._estimate_steps(outcome, folder)
        return train(self._final_segment(recipe, steps), folder)

    def _estimate_steps(self, outcome: TrainingResult, folder: Path) -> int:
        """How many steps the whole will have, by those of the first leg."""
        if self.seconds is None:
            return max(1, round(outcome.step / FIRST_SEGMENT_FRACTION))
        return estimate_steps(
            read_json_lines(folder / METRICS_FILE),
            step=outcome.step,
            elapsed_seconds=outcome.seconds,
            total_seconds=self.seconds,
            validations=NUM_VALIDATIONS - 2,  # the first is over, and the last is not counted
        )

    def _read_planned_steps(self, folder: Path) -> int | None:
        """How many steps the run there was given, if its first leg is over."""
        run = Run(folder)
        if not run.exists:
            return None
        training = run.read_recipe().training
        return training.max_steps if training.max_steps != _UNLIMITED_STEPS else None

    def _first_segment(self, recipe: Recipe) -> Recipe:
        return self._with_limits(
            recipe, self.max_value * FIRST_SEGMENT_FRACTION, _UNLIMITED_STEPS, _UNLIMITED_STEPS
        )

    def _final_segment(self, recipe: Recipe, steps: int) -> Recipe:
        return self._with_limits(
            recipe, self.max_value, steps, max(1, -(-steps // NUM_VALIDATIONS))
        )

    def _with_limits(self, recipe: Recipe, most: float, steps: int, every: int) -> Recipe:
        limits: dict[str, float | None] = dict.fromkeys(_LIMIT_SETTINGS)
        limits |= {self.limit: most, "max_steps": steps, "validate_every": every}
        training = recipe.training.model_copy(update=limits)
        return recipe.model_copy(update={"training": training})
