"""Schedules: how large is the learning rate at each step?

A schedule is a function of the step alone, as a share of the largest rate, so that nothing of
it needs to be saved. Steps count from 1. All of them rise in a straight line at first.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from heedful.config import Choice


class ConstantConfig(Choice):
    """Stay at the largest rate after warming up."""

    kind: Literal["constant"] = "constant"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""

    def share(self, step: int, *, max_steps: int) -> float:
        """The share of the largest rate at a step."""
        del max_steps
        return _rise(step, self.warmup_steps)


class InverseSquareRootConfig(Choice):
    """Fall with the square root of the step (Vaswani et al. 2017, equation 3, peak at 1)."""

    kind: Literal["inverse-square-root"] = "inverse-square-root"
    warmup_steps: PositiveInt = 4000
    """Steps over which the rate rises."""

    def share(self, step: int, *, max_steps: int) -> float:
        """The share of the largest rate at a step."""
        del max_steps
        return min(step / self.warmup_steps, math.sqrt(self.warmup_steps / step))


class LinearConfig(Choice):
    """Fall in a straight line to nothing at the last step."""

    kind: Literal["linear"] = "linear"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""

    def share(self, step: int, *, max_steps: int) -> float:
        """The share of the largest rate at a step."""
        return _rise(step, self.warmup_steps) * (1 - _gone(step, self.warmup_steps, max_steps))


class CosineConfig(Choice):
    """Fall along half a cosine to nothing at the last step."""

    kind: Literal["cosine"] = "cosine"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""

    def share(self, step: int, *, max_steps: int) -> float:
        """The share of the largest rate at a step."""
        gone = _gone(step, self.warmup_steps, max_steps)
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

    def share(self, step: int, *, max_steps: int) -> float:
        """The share of the largest rate at a step."""
        del max_steps
        halvings = max(0, math.ceil((step - self.start) / self.every))
        return _rise(step, self.warmup_steps) * 0.5**halvings


ScheduleConfig = Annotated[
    ConstantConfig | InverseSquareRootConfig | LinearConfig | CosineConfig | HalvingConfig,
    Field(discriminator="kind"),
]


def _rise(step: int, warmup_steps: int) -> float:
    return min(1.0, step / warmup_steps) if warmup_steps else 1.0


def _gone(step: int, warmup_steps: int, max_steps: int) -> float:
    """The share of the falling part that lies behind; the last step still learns a little."""
    falling = max(1, max_steps + 1 - warmup_steps)
    return min(1.0, max(0, step - warmup_steps) / falling)
