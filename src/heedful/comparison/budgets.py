"""Budgets: how long may each run of a comparison be trained?

So many steps, so much time or so many operations; whichever it is, a run is validated ten times on
the way, and nothing else ends it. A schedule such as a cosine falls until the last step, which a
budget of time does not know. So the first tenth of such a budget is a leg of its own: the steps
that were taken in it say how many the whole will have (`foretelling`). Law: a run ends at the rate
its schedule ends at, as near as its speed was even.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple

from heedful.comparison.foretelling import foretell_steps
from heedful.comparison.spending import METRICS
from heedful.errors import ConfigError
from heedful.experiment import Outcome
from heedful.inspection.run_page import read_lines
from heedful.recipes import Recipe
from heedful.runs import Run

FIRST_LEG = 0.1  # of the budget
VALIDATIONS = 10
_UNKNOWN = 1_000_000_000  # steps, while it is not known how many there will be

Limit = Literal["max_steps", "max_minutes", "max_operations"]
Train = Callable[[Recipe, Path], Outcome]

_UNITS: dict[str, tuple[str, Limit, float]] = {
    "s": ("seconds", "max_minutes", 1 / 60),
    "m": ("minutes", "max_minutes", 1),
    "h": ("hours", "max_minutes", 60),
    "steps": ("steps", "max_steps", 1),
    "flops": ("FLOPs", "max_operations", 1),
}
_FORM = re.compile(rf"(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*({'|'.join(_UNITS)})")
_ENDS = ("max_steps", "max_minutes", "max_operations", "max_epochs", "patience")
DECIDED = (*_ENDS, "validate_every")
"""Settings of training that a budget decides, whatever a recipe says."""


class Budget(NamedTuple):
    """What each run may take."""

    text: str  # in words
    limit: Limit
    most: float

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read a budget such as 2m, 90s, 1h, 500steps or 1e15flops."""
        found = _FORM.fullmatch(text.strip().lower())
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
        return 60 * self.most if self.limit == "max_minutes" else None

    def is_whole(self, recipe: Recipe) -> bool:
        """Say whether a recipe has the limits that end a training under this budget."""
        steps = round(self.most) if self.limit == "max_steps" else recipe.training.max_steps
        return recipe == self._whole(recipe, steps)

    def allows(self, recipe: Recipe) -> bool:
        """Say whether a recipe has the limits of either leg."""
        is_first = self.limit != "max_steps" and recipe == self._first_leg(recipe)
        return is_first or self.is_whole(recipe)

    def train(self, recipe: Recipe, folder: Path, train: Train) -> Outcome:
        """Train by a recipe into a folder, or go on there, until the budget is used up."""
        if self.limit == "max_steps":
            return train(self._whole(recipe, round(self.most)), folder)
        steps = self._steps_in(folder)
        if steps is None:
            outcome = train(self._first_leg(recipe), folder)
            if not outcome.ended:
                return outcome
            steps = self._foretell(outcome, folder)
        return train(self._whole(recipe, steps), folder)

    def _foretell(self, outcome: Outcome, folder: Path) -> int:
        """How many steps the whole will have, by those of the first leg."""
        if self.seconds is None:
            return max(1, round(outcome.step / FIRST_LEG))
        return foretell_steps(
            read_lines(folder / METRICS),
            step=outcome.step,
            taken=outcome.seconds,
            whole=self.seconds,
            validations=VALIDATIONS - 2,  # the first is over, and the last is not counted
        )

    def _steps_in(self, folder: Path) -> int | None:
        """How many steps the run there was given, if its first leg is over."""
        run = Run(folder)
        if not run.exists:
            return None
        training = run.read_recipe().training
        return training.max_steps if training.max_steps != _UNKNOWN else None

    def _first_leg(self, recipe: Recipe) -> Recipe:
        return self._limited(recipe, self.most * FIRST_LEG, _UNKNOWN, _UNKNOWN)

    def _whole(self, recipe: Recipe, steps: int) -> Recipe:
        return self._limited(recipe, self.most, steps, max(1, -(-steps // VALIDATIONS)))

    def _limited(self, recipe: Recipe, most: float, steps: int, every: int) -> Recipe:
        limits: dict[str, float | None] = dict.fromkeys(_ENDS)
        limits |= {self.limit: most, "max_steps": steps, "validate_every": every}
        training = recipe.training.model_copy(update=limits)
        return recipe.model_copy(update={"training": training})
