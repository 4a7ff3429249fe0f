"""Objectives as a configuration names them, and what is refused in their name."""

import pytest
from pydantic import TypeAdapter, ValidationError

from heedful.errors import ConfigError
from heedful.models.scheduled_sampling import LinearSamplingConfig, TeacherForcingConfig
from heedful.training import (
    CrossEntropyObjective,
    MinimumRiskObjective,
    MinimumRiskObjectiveConfig,
    ObjectiveConfig,
    ReinforceObjective,
    ReinforceObjectiveConfig,
    check_objective_supported,
)
from heedful.training.rollouts import gleu, sentence_bleu

TAUGHT = TeacherForcingConfig()


def chosen(settings):
    return TypeAdapter(ObjectiveConfig).validate_python(settings)


def test_likelihood_is_what_a_section_without_a_kind_means():
    built = chosen({}).build(label_smoothing=0.1, scheduled_sampling=LinearSamplingConfig())
    assert isinstance(built, CrossEntropyObjective)
    assert (built.smoothing, built.sampling) == (0.1, LinearSamplingConfig())


def test_minimum_risk_has_the_sharpness_of_its_paper():
    built = chosen({"type": "minimum-risk"}).build(label_smoothing=0.0, scheduled_sampling=TAUGHT)
    assert isinstance(built, MinimumRiskObjective)
    assert (built.alpha, built.rollout_sampler.num_samples) == (0.005, 20)
    assert built.rollout_sampler.reward is sentence_bleu


def test_mixed_has_the_numbers_of_its_paper():
    built = chosen({"type": "reinforce"}).build(label_smoothing=0.1, scheduled_sampling=TAUGHT)
    assert isinstance(built, ReinforceObjective)
    assert (built.mle_weight, built.rollout_sampler.num_samples, built.label_smoothing) == (
        0.017,
        15,
        0.1,
    )
    assert built.rollout_sampler.reward is gleu
    assert built.baseline == "mean"


def test_one_sample_is_compared_with_the_greedy_output_only():
    assert ReinforceObjectiveConfig(num_samples=1, baseline="greedy").num_samples == 1
    with pytest.raises(ValidationError, match="one sample has no others"):
        ReinforceObjectiveConfig(num_samples=1)


@pytest.mark.parametrize("objective", [MinimumRiskObjectiveConfig(), ReinforceObjectiveConfig()])
def test_scheduled_sampling_is_refused(objective):
    with pytest.raises(ConfigError) as caught:
        objective.build(label_smoothing=0.0, scheduled_sampling=LinearSamplingConfig())
    assert str(caught.value) == (
        f"training.scheduled_sampling.type: under the objective '{objective.type}' whole outputs are the "
        "model's own already, so 'linear' has no meaning\n"
        "  leave training.scheduled_sampling out"
    )


def test_smoothing_is_refused_where_there_is_nothing_to_smooth():
    with pytest.raises(ConfigError) as caught:
        MinimumRiskObjectiveConfig().build(label_smoothing=0.1, scheduled_sampling=TAUGHT)
    assert str(caught.value) == (
        "training.label_smoothing: the objective 'minimum-risk' has no single targets to smooth, "
        "but this is 0.1\n"
        "  set training.label_smoothing to 0"
    )


def test_models_without_sources_are_refused_by_name():
    check_objective_supported(chosen({}), "language-model")
    with pytest.raises(ConfigError) as caught:
        check_objective_supported(ReinforceObjectiveConfig(), "language-model")
    assert str(caught.value) == (
        "training.objective.type: 'reinforce' compares outputs with the reference of their source, "
        "and a language-model has neither\n"
        "  set training.objective.type to 'likelihood'"
    )
