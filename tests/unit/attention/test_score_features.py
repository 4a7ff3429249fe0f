"""Each feature against its paper's formula, one position at a time."""

import pytest
import torch

from heedful.attention.additive_scores import (
    ContextFeature,
    CoverageFeature,
    LocationFeature,
    ScoreFeatureConfig,
)
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.config import AttentionConfig
from heedful.attention.masks import padding_mask
from heedful.attention.memory import AttentionState
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore
from heedful.config import validate_settings
from heedful.config.base import type_of, types_in
from heedful.errors import ConfigError

HIDDEN, VALUE = 3, 4
FEATURES = {type_of(member): member() for member in types_in(ScoreFeatureConfig)}
all_features = pytest.mark.parametrize("type_name", FEATURES)


def build(type_name):
    return FEATURES[type_name].build(hidden_size=HIDDEN, value_size=VALUE).double()


def random_state(*leading, positions=6):
    last, total = torch.rand(2, *leading, positions).double().unbind(0)
    num_queries, probability = torch.ones(leading, dtype=torch.long), torch.ones(leading)
    return AttentionState(
        num_queries, last, total, torch.randn(*leading, VALUE).double(), probability
    )


def test_location_feature_rejects_even_kernel_size():
    with pytest.raises(AssertionError, match="4"):
        LocationFeature(HIDDEN, num_filters=2, kernel_size=4)


@all_features
def test_feature_is_zero_for_initial_state(type_name):
    attention = SingleHeadAttention(DotScore(), SoftmaxAlignment(), WeightedSumReadout())
    values = torch.randn(2, 6, VALUE).double()
    initial_state = attention.initial_state(
        attention.build_memory(values, padding_mask(torch.tensor([6, 3]), 6))
    )
    assert (build(type_name)(initial_state) == 0).all()


@all_features
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_leading_dimensions_are_independent(type_name, leading):
    feature, state = build(type_name), random_state(*leading)
    batched = feature(state)
    assert batched.shape[:-2] == leading
    flat = AttentionState(*(part.reshape(-1, *part.shape[len(leading) :]) for part in state))
    for row, actual in enumerate(batched.reshape(-1, *batched.shape[-2:])):
        single = feature(AttentionState(*(part[row] for part in flat)))
        torch.testing.assert_close(actual, single)


@all_features
def test_feature_is_unchanged_by_padding(type_name):
    feature, state = build(type_name), random_state(2)
    nowhere = torch.zeros(2, 4).double()
    last, total = (
        torch.cat([part, nowhere], dim=-1) for part in (state.last_weights, state.coverage)
    )
    padded = feature(state._replace(last_weights=last, coverage=total))
    torch.testing.assert_close(padded[..., :6, :], feature(state))


@all_features
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_close_to_double(type_name, dtype):
    feature, state = build(type_name), random_state(2)
    wide = feature(state)
    half = AttentionState(*(part.to(dtype) if part.is_floating_point() else part for part in state))
    actual = feature.to(dtype)(half)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.double(), wide, rtol=0.05, atol=0.05)


@all_features
def test_gradients_match_finite_differences(type_name):
    feature, state = build(type_name), random_state(2)
    parts = [state.last_weights, state.coverage, state.last_context]
    inputs = [part.requires_grad_() for part in parts] + list(feature.parameters())

    def added(last, total, context, *_):
        return feature(state._replace(last_weights=last, coverage=total, last_context=context))

    assert torch.autograd.gradcheck(added, inputs)


def additive(*features):
    settings = {"score": {"type": "additive", "hidden_size": HIDDEN, "features": list(features)}}
    return validate_settings(AttentionConfig, settings, location="recipe.yaml").score


def test_config_builds_features_with_sizes():
    convolution = {"type": "location-convolution", "num_filters": 7, "kernel_size": 9}
    score = additive({"type": "coverage"}, convolution, {"type": "last-context"})
    built = list(score.build(query_size=2, key_size=VALUE, num_heads=None).features)
    assert [type(value) for value in built] == [CoverageFeature, LocationFeature, ContextFeature]
    assert built[1].filters.weight.shape == (7, 1, 9)
    assert built[2].projection.weight.shape == (HIDDEN, VALUE)


def test_even_kernel_size_in_config_raises():
    with pytest.raises(ConfigError) as error:
        additive({"type": "location-convolution", "kernel_size": 4})
    assert str(error.value) == (
        "recipe.yaml: score.features.0.kernel_size: must be odd, got 4\n"
        "  `heedful recipes --schema` lists every setting and its values"
    )
