"""Whole outputs: what objectives share that let a model speak by itself."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from heedful.shapes import Float
from heedful.training.objectives.objective import Objective
from heedful.training.objectives.trial import Trial, Tried


class WholeOutputs(Objective):
    """A sum over sentences of how bad a model's outputs are."""

    def __init__(self, trial: Trial, *, penalty_weight: float) -> None:
        self.trial = trial
        self.penalty_weight = penalty_weight

    def count(self, batch: Any) -> int:
        """Count the sentences."""
        return len(batch.targets)

    def penalties(self, tried: Tried) -> dict[str, Float[Tensor, ""]]:
        """The penalties of the model: sums over tokens, where a reward is one number."""
        return {name: self.penalty_weight * each for name, each in tried.told.penalties.items()}
