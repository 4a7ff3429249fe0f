"""Training: how a model learns."""

from heedful.training.objectives import (
    CrossEntropyObjective,
    CrossEntropyObjectiveConfig,
    LossTerms,
    MinimumRiskObjective,
    MinimumRiskObjectiveConfig,
    Objective,
    ObjectiveConfig,
    ReinforceObjective,
    ReinforceObjectiveConfig,
    check_objective_supported,
    count_correct,
    negative_log_likelihood,
)

__all__ = [
    "CrossEntropyObjective",
    "CrossEntropyObjectiveConfig",
    "LossTerms",
    "MinimumRiskObjective",
    "MinimumRiskObjectiveConfig",
    "Objective",
    "ObjectiveConfig",
    "ReinforceObjective",
    "ReinforceObjectiveConfig",
    "check_objective_supported",
    "count_correct",
    "negative_log_likelihood",
]
