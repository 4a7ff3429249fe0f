"""Objectives as a configuration names them, and what is refused in their name."""

import pytest
from pydantic import TypeAdapter, ValidationError

from heedful.errors import ConfigError
from heedful.training.objectives import (
    Likelihood,
    MinimumRisk,
    MinimumRiskConfig,
    MixedConfig,
    ObjectiveConfig,
    Rewarded,
    refuse_whole_outputs,
)
from heedful.training.objectives.rewards import gleu, sentence_bleu
from heedful.training.sampling import LinearSamplingConfig, TeacherForcingConfig

TAUGHT = TeacherForcingConfig()


def chosen(settings):
    return TypeAdapter(ObjectiveConfig).validate_python(settings)


def test_likelihood_is_what_a_section_without_a_kind_means():
    built = chosen({}).build(smoothing=0.1, sampling=LinearSamplingConfig())
    assert isinstance(built, Likelihood)
    assert (built.smoothing, built.sampling) == (0.1, LinearSamplingConfig())


def test_minimum_risk_has_the_sharpness_of_its_paper():
    built = chosen({"kind": "minimum-risk"}).build(smoothing=0.0, sampling=TAUGHT)
    assert isinstance(built, MinimumRisk)
    assert (built.sharpness, built.trial.num_samples) == (0.005, 20)
    assert built.trial.reward is sentence_bleu


def test_mixed_has_the_numbers_of_its_paper():
    built = chosen({"kind": "mixed"}).build(smoothing=0.1, sampling=TAUGHT)
    assert isinstance(built, Rewarded)
    assert (built.likelihood_weight, built.trial.num_samples, built.smoothing) == (0.017, 15, 0.1)
    assert built.trial.reward is gleu
    assert built.baseline == "mean"


def test_one_sample_is_compared_with_the_greedy_output_only():
    assert MixedConfig(samples=1, baseline="greedy").samples == 1
    with pytest.raises(ValidationError, match="one sample has no others"):
        MixedConfig(samples=1)


@pytest.mark.parametrize("objective", [MinimumRiskConfig(), MixedConfig()])
def test_scheduled_sampling_is_refused(objective):
    with pytest.raises(ConfigError) as caught:
        objective.build(smoothing=0.0, sampling=LinearSamplingConfig())
    assert str(caught.value) == (
        f"training.sampling.kind: under the objective '{objective.kind}' whole outputs are the "
        "model's own already, so 'linear' has no meaning\n"
        "  leave training.sampling out"
    )


def test_smoothing_is_refused_where_there_is_nothing_to_smooth():
    with pytest.raises(ConfigError) as caught:
        MinimumRiskConfig().build(smoothing=0.1, sampling=TAUGHT)
    assert str(caught.value) == (
        "training.label_smoothing: the objective 'minimum-risk' has no single targets to smooth, "
        "but this is 0.1\n"
        "  set training.label_smoothing to 0"
    )


def test_models_without_sources_are_refused_by_name():
    refuse_whole_outputs(chosen({}), "language-model")
    with pytest.raises(ConfigError) as caught:
        refuse_whole_outputs(MixedConfig(), "language-model")
    assert str(caught.value) == (
        "training.objective.kind: 'mixed' compares outputs with the reference of their source, "
        "and a language-model has neither\n"
        "  set training.objective.kind to 'likelihood'"
    )
