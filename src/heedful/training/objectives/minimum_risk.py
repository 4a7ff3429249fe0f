"""Minimum risk: how bad are the outputs that the model finds likely?"""

from __future__ import annotations

from typing import Any

from torch import nn

from heedful.training.objectives.objective import Loss
from heedful.training.objectives.trial import Trial
from heedful.training.objectives.whole_outputs import WholeOutputs


class MinimumRisk(WholeOutputs):
    """sum_y Q(y) (1 - reward(y)), Q(y) = p(y|x)^a / sum_z p(z|x)^a  (Shen et al. 2016, section 3).

    y and z run over the reference and what was drawn, equal outputs taken once; a is the
    sharpness. A sum over sentences.
    """

    def __init__(self, trial: Trial, *, sharpness: float, penalty_weight: float) -> None:
        super().__init__(trial, penalty_weight=penalty_weight)
        self.sharpness = sharpness

    def __call__(self, model: nn.Module, batch: Any, step: int, bare: nn.Module) -> Loss:
        """Say how bad a model's outputs are."""
        del step
        tried = self.trial(model, batch, bare)
        shares = (self.sharpness * tried.told.log_likelihoods).softmax(dim=-1)
        return Loss((shares * (1 - tried.rewards)).sum(), self.penalties(tried))
