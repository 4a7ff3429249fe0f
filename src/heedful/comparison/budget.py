"""The training budget of a comparison: steps, time or FLOPs for each run, and what it has cost.

A learning-rate schedule needs the number of steps, which a budget of time or FLOPs does not give.
So the first tenth of such a budget is a segment of its own, and its speed tells how many steps the
whole run will have. Invariant: at even speed, a run ends where its schedule ends.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from heedful.comparison.results import ValidationPoint
from heedful.config import fields_with_role
from heedful.errors import check
from heedful.experiment import TrainingResult
from heedful.inspection import training_curves
from heedful.inspection.training_curves import Entry, Timeline, as_finite_float, entries_of_type
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.storage.json_files import read_json, read_json_lines
from heedful.tasks.registry import all_metrics
from heedful.training.checkpoints import PROGRESS_FILE, list_checkpoints
from heedful.training.config import TrainingConfig

FIRST_SEGMENT_FRACTION = 0.1  # of the budget
NUM_VALIDATIONS = 10
METRICS_FILE = "metrics.jsonl"
_UNLIMITED_STEPS = 1_000_000_000  # while their number is not known

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
        return cls(f"{amount:g} {name if amount != 1 else name[:-1]}", limit, amount * unit)

    @property
    def seconds(self) -> float | None:
        """The duration of a run, if the budget is a time."""
        return 60 * self.max_value if self.limit == "max_minutes" else None

    def matches_final_segment(self, recipe: Recipe) -> bool:
        """Return whether a recipe has the limits that end a training under this budget."""
        steps = round(self.max_value) if self.limit == "max_steps" else recipe.training.max_steps
        return recipe == self._final_segment(recipe, steps)

    def matches_either_segment(self, recipe: Recipe) -> bool:
        """Return whether a recipe has the limits of the first or of the final segment."""
        is_first = self.limit != "max_steps" and recipe == self._first_segment(recipe)
        return is_first or self.matches_final_segment(recipe)

    def train(self, recipe: Recipe, folder: Path, train: Train) -> TrainingResult:
        """Train a run in a folder, or resume it, until the budget is used up."""
        if self.limit == "max_steps":
            return train(self._final_segment(recipe, round(self.max_value)), folder)
        run = Run(folder)
        steps = run.read_recipe().training.max_steps if run.exists else _UNLIMITED_STEPS
        if steps == _UNLIMITED_STEPS:  # the first segment is not over
            result = train(self._first_segment(recipe), folder)
            if not result.stop_reason:  # interrupted
                return result
            steps = max(1, round(result.step / FIRST_SEGMENT_FRACTION))
            if self.seconds is not None:
                steps = estimate_steps(
                    read_json_lines(folder / METRICS_FILE),
                    step=result.step,
                    seconds=result.seconds,
                    total_seconds=self.seconds,
                    validations=NUM_VALIDATIONS - 2,  # the first is over, the last is not counted
                )
        return train(self._final_segment(recipe, steps), folder)

    def _first_segment(self, recipe: Recipe) -> Recipe:
        limit = self.max_value * FIRST_SEGMENT_FRACTION
        return self._with_limits(recipe, limit, _UNLIMITED_STEPS, _UNLIMITED_STEPS)

    def _final_segment(self, recipe: Recipe, steps: int) -> Recipe:
        interval = max(1, -(-steps // NUM_VALIDATIONS))
        return self._with_limits(recipe, self.max_value, steps, interval)

    def _with_limits(self, recipe: Recipe, limit: float, steps: int, validate_every: int) -> Recipe:
        limits: dict[str, float | None] = dict.fromkeys(_LIMIT_SETTINGS)
        limits |= {self.limit: limit, "max_steps": steps, "validate_every": validate_every}
        training = recipe.training.model_copy(update=limits)
        return recipe.model_copy(update={"training": training})


def estimate_steps(
    entries: Sequence[Entry], *, step: int, seconds: float, total_seconds: float, validations: int
) -> int:
    """Estimate how many steps fit into a time, from the entries of the first segment.

    steps = s + (T - t_s - n v) (s - 1) / (t_s - t_1): the segment ended after step s at time t_s, T
    is the total time, t_1 the time of the first step, which includes all set-up, and n validations
    of v seconds each are to come.
    """
    first_step_seconds = validation_seconds = 0.0
    training = entries_of_type(entries, "training")
    if step > 1 and training and training[0]["step"] == 1:
        first_step_seconds = as_finite_float(training[0].get("seconds")) or 0.0
    for entry in entries_of_type(entries, "validation")[-1:]:  # that ended the segment
        end = as_finite_float(entry.get("seconds"))
        validation_seconds = max(0.0, end - seconds) if end is not None else 0.0
    step_seconds = (seconds - first_step_seconds) / max(1, step - 1)
    remaining = total_seconds - seconds - validations * validation_seconds
    return step + max(1, round(remaining / step_seconds)) if step_seconds > 0 else step + 1


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
        known = [(number, step) for number, step in logged if number is not None]
        if value is not None or not known or last_step is None:
            return value
        number, step = known[-1]
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
