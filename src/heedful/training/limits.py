"""Limits: when is training over?

A limit is a number that only grows and the most it may become. Training is over when the first of
them is reached, or when validations have long been no better.
"""

from __future__ import annotations

from heedful.training.config import TrainingConfig
from heedful.training.state import Progress, Reached


class Limits:
    """Every limit of a training."""

    def __init__(self, config: TrainingConfig) -> None:
        self._most = {
            "steps": config.max_steps,
            "epochs": config.max_epochs,
            "minutes": config.max_minutes,
            "operations": config.max_operations,
        }
        self._patience = config.patience

    def passed(self, reached: Reached) -> str:
        """Say which limit is reached; nothing if none is."""
        for unit, (most, now) in self._pairs(reached).items():
            if now >= most:
                return _REASONS[unit].format(most)
        return ""

    def is_hopeless(self, progress: Progress) -> str:
        """Say that validations have long been no better, or nothing."""
        waited = progress.validations_since_best
        hopeless = self._patience is not None and waited >= self._patience
        return f"no better in {waited} validations" if hopeless else ""

    def share(self, reached: Reached) -> float:
        """How much of the way to the nearest limit lies behind: from 0 to 1."""
        return min(1.0, max(now / most for most, now in self._pairs(reached).values()))

    def _pairs(self, reached: Reached) -> dict[str, tuple[float, float]]:
        now = dict(zip(self._most, reached, strict=True))
        return {unit: (most, now[unit]) for unit, most in self._most.items() if most is not None}


_REASONS = {
    "steps": "all {} steps taken",
    "epochs": "all {} epochs seen",
    "minutes": "{:g} minutes are over",
    "operations": "{:g} operations done",
}
