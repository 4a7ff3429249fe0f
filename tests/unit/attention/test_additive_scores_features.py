"""Each feature against its paper's formula, one place at a time."""

import pytest
import torch

from heedful.attention import (
    AttentionState,
    DotScore,
    SingleHeadAttention,
    SoftmaxAlignment,
    WeightedSumReadout,
    padding_mask,
)
from heedful.attention.additive_scores import (
    ContextFeature,
    CoverageFeature,
    LocationFeature,
    ScoreFeatureConfig,
)
from heedful.attention.config import AttentionConfig
from heedful.config import validate_settings
from heedful.config.base import type_of, types_in
from heedful.errors import ConfigError

HIDDEN, VALUE = 3, 4
FEATURES = {type_of(member): member() for member in types_in(ScoreFeatureConfig)}
each_feature = pytest.mark.parametrize("kind", FEATURES)


def build(kind):
    return FEATURES[kind].build(hidden_size=HIDDEN, value_size=VALUE).double()


def past_of(*leading, places=6):
    last, total = torch.rand(2, *leading, places).double().unbind(0)
    asked, chance = torch.ones(leading, dtype=torch.long), torch.ones(leading)
    return AttentionState(asked, last, total, torch.randn(*leading, VALUE).double(), chance)


def test_coverage_is_one_vector_times_what_each_place_has_had():
    feature, past = build("coverage"), past_of(2)
    vector = feature.projection.weight[:, 0].tolist()
    wanted = [[[each * had for each in vector] for had in row] for row in past.coverage.tolist()]
    torch.testing.assert_close(feature(past), torch.tensor(wanted).double())


@pytest.mark.parametrize("width", [1, 3, 5, 9])
def test_location_is_what_filters_see_of_the_last_weights_round_a_place(width):
    feature, past = LocationFeature(HIDDEN, num_filters=2, kernel_size=width).double(), past_of()
    filters, matrix = feature.filters.weight[:, 0].tolist(), feature.projection.weight
    last = dict(enumerate(past.last_weights.tolist()))
    for place, found in enumerate(feature(past)):
        seen = [last.get(place + offset - width // 2, 0.0) for offset in range(width)]
        convolved = [sum(f * w for f, w in zip(each, seen, strict=True)) for each in filters]
        torch.testing.assert_close(found, matrix @ torch.tensor(convolved).double())


def test_a_location_filter_without_a_middle_is_refused():
    with pytest.raises(AssertionError, match="4"):
        LocationFeature(HIDDEN, num_filters=2, kernel_size=4)


def test_the_last_context_is_one_matrix_on_what_was_taken_for_every_place_alike():
    feature, past = build("last-context"), past_of(2)
    matrix = feature.projection.weight
    wanted = torch.stack([(matrix @ context)[None] for context in past.context])
    torch.testing.assert_close(feature(past), wanted)


@each_feature
def test_a_past_in_which_nothing_was_asked_adds_exactly_nothing(kind):
    attention = SingleHeadAttention(DotScore(), SoftmaxAlignment(), WeightedSumReadout())
    values = torch.randn(2, 6, VALUE).double()
    begun = attention.initial_state(
        attention.build_memory(values, padding_mask(torch.tensor([6, 3]), 6))
    )
    assert (build(kind)(begun) == 0).all()


@each_feature
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_leading_dimensions_are_free(kind, leading):
    feature, past = build(kind), past_of(*leading)
    together = feature(past)
    assert together.shape[:-2] == leading
    flat = AttentionState(*(part.reshape(-1, *part.shape[len(leading) :]) for part in past))
    for row, found in enumerate(together.reshape(-1, *together.shape[-2:])):
        alone = feature(AttentionState(*(part[row] for part in flat)))
        torch.testing.assert_close(found, alone)


@each_feature
def test_more_padding_changes_nothing_at_the_places_that_are_there(kind):
    feature, past = build(kind), past_of(2)
    nowhere = torch.zeros(2, 4).double()
    last, total = (
        torch.cat([part, nowhere], dim=-1) for part in (past.last_weights, past.coverage)
    )
    padded = feature(past._replace(last_weights=last, coverage=total))
    torch.testing.assert_close(padded[..., :6, :], feature(past))


@each_feature
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_loses_only_the_last_digits(kind, dtype):
    feature, past = build(kind), past_of(2)
    wide = feature(past)
    narrow = AttentionState(
        *(part.to(dtype) if part.is_floating_point() else part for part in past)
    )
    found = feature.to(dtype)(narrow)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), wide, rtol=0.05, atol=0.05)


@each_feature
def test_gradients_are_those_of_finite_differences(kind):
    feature, past = build(kind), past_of(2)
    parts = [past.last_weights, past.coverage, past.context]
    inputs = [part.requires_grad_() for part in parts] + list(feature.parameters())

    def added(last, total, context, *_):
        return feature(past._replace(last_weights=last, coverage=total, context=context))

    assert torch.autograd.gradcheck(added, inputs)


def additive(*features):
    settings = {"score": {"type": "additive", "hidden_size": HIDDEN, "features": list(features)}}
    return validate_settings(AttentionConfig, settings, location="recipe.yaml").score


def test_a_configuration_names_features_and_their_sizes_reach_them():
    convolution = {"type": "location-convolution", "num_filters": 7, "kernel_size": 9}
    score = additive({"type": "coverage"}, convolution, {"type": "last-context"})
    built = list(score.build(query_size=2, key_size=VALUE).features)
    assert [type(each) for each in built] == [CoverageFeature, LocationFeature, ContextFeature]
    assert built[1].filters.weight.shape == (7, 1, 9)
    assert built[2].projection.weight.shape == (HIDDEN, VALUE)


def test_a_configured_filter_needs_a_middle():
    with pytest.raises(ConfigError) as refused:
        additive({"type": "location-convolution", "kernel_size": 4})
    assert str(refused.value) == (
        "recipe.yaml: score.features.0.kernel_size: a filter has a middle, so its width is odd, found 4\n"
        "  `heedful recipes --schema` lists every setting and what it takes"
    )
