"""Schedules: how large is the learning rate at each step?

A schedule is a function of the step and of how validations went before it, as a share of the
largest rate, so that nothing of its own needs to be saved. Steps count from 1. All of them rise
in a straight line at first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt

from heedful.config import Choice


class Course(NamedTuple):
    """How long training goes on at most, and how it went so far."""

    max_steps: int
    scores: Sequence[float] = ()  # one per validation so far; smaller is better


class ConstantConfig(Choice):
    """Stay at the largest rate after warming up."""

    kind: Literal["constant"] = "constant"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""

    def share(self, step: int, course: Course) -> float:
        """The share of the largest rate at a step."""
        del course
        return _rise(step, self.warmup_steps)


class InverseSquareRootConfig(Choice):
    """Fall with the square root of the step (Vaswani et al. 2017, equation 3, peak at 1)."""

    kind: Literal["inverse-square-root"] = "inverse-square-root"
    warmup_steps: PositiveInt = 4000
    """Steps over which the rate rises."""

    def share(self, step: int, course: Course) -> float:
        """The share of the largest rate at a step."""
        del course
        return min(step / self.warmup_steps, math.sqrt(self.warmup_steps / step))


class LinearConfig(Choice):
    """Fall in a straight line to nothing at the last step."""

    kind: Literal["linear"] = "linear"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""

    def share(self, step: int, course: Course) -> float:
        """The share of the largest rate at a step."""
        gone = _gone(step, self.warmup_steps, course.max_steps)
        return _rise(step, self.warmup_steps) * (1 - gone)


class CosineConfig(Choice):
    """Fall along half a cosine to nothing at the last step."""

    kind: Literal["cosine"] = "cosine"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""

    def share(self, step: int, course: Course) -> float:
        """The share of the largest rate at a step."""
        gone = _gone(step, self.warmup_steps, course.max_steps)
        return _rise(step, self.warmup_steps) * (1 + math.cos(math.pi * gone)) / 2


class HalvingConfig(Choice):
    """Halve the rate again and again from some step on (Sutskever et al. 2014)."""

    kind: Literal["halving"] = "halving"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""
    start: PositiveInt
    """The last step at the largest rate."""
    every: PositiveInt
    """Steps at each rate after that."""

    def share(self, step: int, course: Course) -> float:
        """The share of the largest rate at a step."""
        del course
        halvings = max(0, math.ceil((step - self.start) / self.every))
        return _rise(step, self.warmup_steps) * 0.5**halvings


class PlateauConfig(Choice):
    """Lower the rate whenever validations have not become better for a while.

    Gehring et al. 2017 (section 4.2) divide by 10 after one validation that is no better.
    """

    kind: Literal["plateau"] = "plateau"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""
    factor: float = Field(default=0.5, gt=0, lt=1)
    """What the rate is multiplied by."""
    patience: PositiveInt = 3
    """Validations in a row without a better score after which that is done, and done again."""
    minimum: float = Field(default=0.0, ge=0, le=1)
    """The least share of the largest rate, once it has risen."""

    def share(self, step: int, course: Course) -> float:
        """The share of the largest rate at a step."""
        fallen = self.factor ** self._plateaus(course.scores)
        return _rise(step, self.warmup_steps) * max(self.minimum, fallen)

    def _plateaus(self, scores: Sequence[float]) -> int:
        """How many times patience ran out; each time it begins anew."""
        best, waited, plateaus = math.inf, 0, 0
        for score in scores:
            is_better = score < best  # a score that is no number is not
            best, waited = (score, 0) if is_better else (best, waited + 1)
            if waited == self.patience:
                plateaus, waited = plateaus + 1, 0
        return plateaus


ScheduleConfig = Annotated[
    ConstantConfig
    | InverseSquareRootConfig
    | LinearConfig
    | CosineConfig
    | HalvingConfig
    | PlateauConfig,
    Field(discriminator="kind"),
]


def _rise(step: int, warmup_steps: int) -> float:
    return min(1.0, step / warmup_steps) if warmup_steps else 1.0


def _gone(step: int, warmup_steps: int, max_steps: int) -> float:
    """The share of the falling part that lies behind; the last step still learns a little."""
    falling = max(1, max_steps + 1 - warmup_steps)
    return min(1.0, max(0, step - warmup_steps) / falling)
