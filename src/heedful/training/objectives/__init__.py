"""Objectives: what is made small, token by token or over whole outputs?"""

from heedful.training.objectives.choices import (
    LikelihoodConfig,
    MinimumRiskConfig,
    MixedConfig,
    ObjectiveConfig,
    refuse_whole_outputs,
)
from heedful.training.objectives.likelihood import (
    Likelihood,
    negative_log_likelihood,
    num_correct,
)
from heedful.training.objectives.minimum_risk import MinimumRisk
from heedful.training.objectives.objective import Loss, Objective
from heedful.training.objectives.rewarded import Rewarded

__all__ = [
    "Likelihood",
    "LikelihoodConfig",
    "Loss",
    "MinimumRisk",
    "MinimumRiskConfig",
    "MixedConfig",
    "Objective",
    "ObjectiveConfig",
    "Rewarded",
    "negative_log_likelihood",
    "num_correct",
    "refuse_whole_outputs",
]
