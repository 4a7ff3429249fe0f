"""The training budget of a comparison: steps, time or FLOPs for each run, and its measured cost."""

import re
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from heedful.comparison.results import ValidationPoint
from heedful.config import fields_with_role
from heedful.errors import check
from heedful.inspection import training_curves
from heedful.inspection.training_curves import Timeline, as_finite_float, entries_of_type
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.storage.json_files import read_json, read_json_lines
from heedful.tasks.registry import all_metrics
from heedful.training.checkpoints import PROGRESS_FILE, list_checkpoints
from heedful.training.config import TrainingConfig

METRICS_FILE = "metrics.jsonl"
_UNLIMITED_STEPS = 1_000_000_000

Limit = Literal["max_steps", "max_minutes", "max_flops"]

_UNITS: dict[str, tuple[str, Limit, float]] = {
    "s": ("seconds", "max_minutes", 1 / 60),
    "m": ("minutes", "max_minutes", 1),
    "h": ("hours", "max_minutes", 60),
    "steps": ("steps", "max_steps", 1),
    "flops": ("FLOPs", "max_flops", 1),
}
_BUDGET_PATTERN = re.compile(rf"(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*({'|'.join(_UNITS)})")
_LIMIT_SETTINGS = fields_with_role(TrainingConfig, "limit")
BUDGET_SETTINGS = (*_LIMIT_SETTINGS, "validate_every")
"""Settings of `training` that the budget overrides."""


class Budget(NamedTuple):
    """The limit of each run."""

    text: str
    limit: Limit
    max_value: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a budget such as 2m, 90s, 1h, 500steps or 1e15flops."""
        match = _BUDGET_PATTERN.fullmatch(text.strip().lower())
        name, limit, unit = _UNITS[match[2] if match else "s"]
        amount = float(match[1]) if match else 0.0
        is_valid = 0 < amount < inf and (limit != "max_steps" or amount % 1 == 0)
        hint = "write it as 90s, 2m, 1h, 500steps or 1e15flops"
        check(is_valid, f"--budget {text}", "not an amount of training", hint)
        value = round(amount) if limit == "max_steps" else amount * unit
        return cls(f"{amount:g} {name if amount != 1 else name[:-1]}", limit, value)

    @property
    def seconds(self) -> float | None:
        """The duration of a run, if the budget is a time."""
        return 60 * self.max_value if self.limit == "max_minutes" else None

    def applied_to(self, recipe: Recipe) -> Recipe:
        """Return a recipe with this limit and no other; ten validations are spread over it."""
        limits: dict[str, float | None] = dict.fromkeys(BUDGET_SETTINGS)
        limits |= {"max_steps": _UNLIMITED_STEPS, self.limit: self.max_value}
        training = recipe.training.model_copy(update=limits)
        return recipe.model_copy(update={"training": training})


class TrainingCost(NamedTuple):
    """Cost of a run and its validations; None where it was not logged."""

    steps: int | None
    seconds: float | None  # without reading of data
    flops: float | None
    peak_memory: float | None  # bytes
    curve: Sequence[ValidationPoint]


def read_training_cost(folder: Path) -> TrainingCost:
    """Read the cost of a run from its newest checkpoint and its metrics.

    Without a checkpoint of the last step, the newest values logged are scaled to that step.
    """
    entries = read_json_lines(folder / METRICS_FILE)
    training = entries_of_type(entries, "training")
    validations = entries_of_type(entries, "validation")
    checkpoint_step, progress = _read_newest_progress(folder)
    steps = [int(entry["step"]) for entry in (*training, *validations)]
    last_step = max([*steps, *checkpoint_step], default=None)
    if last_step not in checkpoint_step:  # a run that was killed later
        progress = {}

    def cost(name: str) -> float | None:
        value = as_finite_float(progress.get(name))
        logged = [(as_finite_float(entry.get(name)), entry["step"]) for entry in training]
        measured = [(number, step) for number, step in logged if number is not None]
        if value is not None or not measured or last_step is None:
            return value
        number, step = measured[-1]
        return number * last_step / max(1, step)

    memory = [as_finite_float(entry.get("peak_memory")) for entry in training]
    peak_memory = max((value for value in memory if value is not None), default=None)
    timeline = Timeline([*training, *validations])
    names = ["loss", *training_curves.logged_names(validations, all_metrics())]
    curve = []
    for entry in validations:
        values = {name: as_finite_float(entry.get(name)) for name in names}
        scores = {name: value for name, value in values.items() if value is not None}
        step, seconds, flops = timeline.locate(entry)
        curve.append(ValidationPoint(int(step), seconds, flops, scores))
    return TrainingCost(last_step, cost("seconds"), cost("flops"), peak_memory, curve)


def _read_newest_progress(folder: Path) -> tuple[list[int], dict[str, Any]]:
    """Return the step and the progress of the newest readable checkpoint, if there is one."""
    for step, _, checkpoint in reversed(list_checkpoints(Run(folder).checkpoints)):
        with suppress(OSError, ValueError, TypeError):
            return [step], dict(read_json(checkpoint / PROGRESS_FILE))
    return [], {}
