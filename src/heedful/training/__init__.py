"""Training: how a model learns."""

from heedful.training.losses import (
    CrossEntropyConfig,
    CrossEntropyObjective,
    LossTerms,
    MinimumRiskConfig,
    MinimumRiskObjective,
    MixedObjectiveConfig,
    Objective,
    ObjectiveConfig,
    ReinforceObjective,
    check_objective_supported,
    count_correct,
    negative_log_likelihood,
)

__all__ = [
    "CrossEntropyConfig",
    "CrossEntropyObjective",
    "LossTerms",
    "MinimumRiskConfig",
    "MinimumRiskObjective",
    "MixedObjectiveConfig",
    "Objective",
    "ObjectiveConfig",
    "ReinforceObjective",
    "check_objective_supported",
    "count_correct",
    "negative_log_likelihood",
]
