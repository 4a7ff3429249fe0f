"""Objectives as a configuration names them, and what is refused in their name."""

import pytest
from pydantic import TypeAdapter, ValidationError

from heedful.errors import ConfigError
from heedful.models.scheduled_sampling import LinearSamplingConfig, TeacherForcingConfig
from heedful.training.objectives import (
    CrossEntropyObjective,
    MinimumRiskObjective,
    MinimumRiskObjectiveConfig,
    ObjectiveConfig,
    ReinforceObjective,
    ReinforceObjectiveConfig,
    SelfCriticalObjectiveConfig,
    check_objective_supported,
)
from heedful.training.rollouts import CiderDReward, PairReward, gleu, sentence_bleu

TAUGHT = TeacherForcingConfig()


def chosen(settings):
    return TypeAdapter(ObjectiveConfig).validate_python(settings)


def test_default_objective_is_cross_entropy():
    built = chosen({}).build(label_smoothing=0.1, scheduled_sampling=LinearSamplingConfig())
    assert isinstance(built, CrossEntropyObjective)
    assert (built.label_smoothing, built.scheduled_sampling) == (0.1, LinearSamplingConfig())


@pytest.mark.parametrize(
    ("type_name", "objective", "num_samples", "reward", "settings"),
    [
        ("minimum-risk", MinimumRiskObjective, 20, PairReward(sentence_bleu), {"alpha": 0.005}),
        (
            "reinforce",
            ReinforceObjective,
            15,
            PairReward(gleu),
            {"mle_weight": 0.017, "label_smoothing": 0.1, "baseline": "mean"},
        ),
        (
            "self-critical",
            ReinforceObjective,
            1,
            CiderDReward(),
            {"mle_weight": 0, "baseline": "greedy"},
        ),
    ],
)
def test_objective_has_the_defaults_of_the_paper(
    type_name, objective, num_samples, reward, settings
):
    smoothing = settings.get("label_smoothing", 0.0)
    built = chosen({"type": type_name}).build(label_smoothing=smoothing, scheduled_sampling=TAUGHT)
    assert isinstance(built, objective)
    assert built.rollout_sampler.num_samples == num_samples
    assert built.rollout_sampler.reward == reward
    assert {name: getattr(built, name) for name in settings} == settings


def test_single_sample_needs_the_greedy_baseline():
    assert ReinforceObjectiveConfig(num_samples=1, baseline="greedy").num_samples == 1
    with pytest.raises(ValidationError, match="a mean of other samples needs num_samples 2"):
        ReinforceObjectiveConfig(num_samples=1)


@pytest.mark.parametrize(
    "objective",
    [MinimumRiskObjectiveConfig(), ReinforceObjectiveConfig(), SelfCriticalObjectiveConfig()],
)
def test_sequence_objective_with_scheduled_sampling_raises(objective):
    with pytest.raises(ConfigError) as caught:
        objective.check(label_smoothing=0.0, scheduled_sampling=LinearSamplingConfig())
    assert str(caught.value) == (
        "training.scheduled_sampling.type: 'linear' has no effect: the objective "
        f"'{objective.type}' samples outputs\n  remove training.scheduled_sampling"
    )


def test_minimum_risk_with_label_smoothing_raises():
    with pytest.raises(ConfigError) as caught:
        MinimumRiskObjectiveConfig().check(label_smoothing=0.1, scheduled_sampling=TAUGHT)
    assert str(caught.value) == (
        "training.label_smoothing: is 0.1, but the objective 'minimum-risk' has no targets to "
        "smooth\n  set training.label_smoothing to 0"
    )


def test_sequence_objective_of_a_language_model_raises():
    check_objective_supported(chosen({}), "language-model")
    with pytest.raises(ConfigError) as caught:
        check_objective_supported(ReinforceObjectiveConfig(), "language-model")
    assert str(caught.value) == (
        "training.objective.type: 'reinforce' compares outputs with references, "
        "and a language-model has neither\n"
        "  set training.objective.type to 'cross-entropy'"
    )
