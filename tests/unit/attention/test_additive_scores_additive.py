"""The additive score with what the past adds to it."""

import math

import pytest
import torch

import heedful.acceleration.kernels  # noqa: F401
from heedful.attention import (
    AdditiveScore,
    AttentionState,
    SingleHeadAttention,
    SoftmaxAlignment,
    WeightedSumReadout,
    padding_mask,
)
from heedful.attention.additive_scores import (
    AdditiveScoreConfig,
    ContextFeature,
    CoverageFeature,
    LocationFeature,
    additive_score,
)

QUERY, KEY, HIDDEN = 2, 4, 3


def every_feature(hidden_size=HIDDEN):
    return [
        CoverageFeature(hidden_size),
        LocationFeature(hidden_size, num_filters=2, kernel_size=3),
        ContextFeature(hidden_size, value_size=KEY),
    ]


def looking_back(**options):
    features = every_feature()
    return AdditiveScore(QUERY, KEY, hidden_size=HIDDEN, features=features, **options).double()


def past_of(*leading, places=5):
    last, total = torch.rand(2, *leading, places).double().unbind(0)
    asked, chance = torch.ones(leading, dtype=torch.long), torch.ones(leading)
    return AttentionState(asked, last, total, torch.randn(*leading, KEY).double(), chance)


def test_a_feature_stands_inside_the_tanh_beside_query_and_key():
    score, past = looking_back(bias=True), past_of()
    query, keys = torch.randn(1, QUERY).double(), torch.randn(5, KEY).double()
    found = score(query, score.prepare_keys(keys), past)
    coverage_penalty, location, context = (feature(past) for feature in score.features)
    for place in range(5):
        hidden = (
            score.query_projection.weight @ query[0]
            + score.key_projection.weight @ keys[place]
            + score.key_projection.bias
            + (coverage_penalty[place] + location[place] + context[0])
        )
        parts = zip(score.score_vector.weight[0].tolist(), hidden.tolist(), strict=True)
        wanted = sum(vector * math.tanh(each) for vector, each in parts)
        assert found[0, place].item() == pytest.approx(wanted)


def test_no_past_is_a_past_in_which_nothing_was_asked():
    score = looking_back()
    attention = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
    values, query = torch.randn(2, 5, KEY).double(), torch.randn(2, 1, QUERY).double()
    memory = attention.build_memory(values, padding_mask(torch.tensor([5, 3]), 5))
    begun = attention.initial_state(memory)
    assert torch.equal(score(query, memory.keys), score(query, memory.keys, begun))


def test_only_a_score_with_features_looks_back():
    assert looking_back().uses_history
    assert not AdditiveScore(QUERY, KEY, hidden_size=HIDDEN).uses_history


def test_without_features_the_past_has_no_say():
    score = AdditiveScore(QUERY, KEY, hidden_size=HIDDEN).double()
    queries, prepared = (
        torch.randn(3, QUERY).double(),
        score.prepare_keys(torch.randn(5, KEY).double()),
    )
    assert torch.equal(score(queries, prepared, past_of()), score(queries, prepared))


def test_with_features_only_one_query_can_be_scored_at_a_time():
    score = looking_back()
    prepared = score.prepare_keys(torch.randn(5, KEY).double())
    with pytest.raises(AssertionError, match="3 queries at once"):
        score(torch.randn(3, QUERY).double(), prepared, past_of())


@pytest.mark.parametrize("bias", [False, True])
def test_a_bias_is_there_only_where_asked_for(bias):
    config = AdditiveScoreConfig(hidden_size=HIDDEN, bias=bias)
    score = config.build(query_size=QUERY, key_size=KEY)
    assert (score.key_projection.bias is not None) == bias
    assert score.query_projection.bias is None
    assert score.score_vector.bias is None


def test_a_feature_of_the_query_is_what_the_query_is_made_of():
    """W [x; c] is W_x x + W_c c, the score of Cheng et al. 2016 whichever way it is written."""
    feature = ContextFeature(HIDDEN, value_size=KEY)
    apart = AdditiveScore(QUERY, KEY, hidden_size=HIDDEN, features=[feature])
    joined = AdditiveScore(QUERY + KEY, KEY, hidden_size=HIDDEN)
    halves = [apart.query_projection.weight, feature.projection.weight]
    joined.query_projection.weight.data = torch.cat(halves, dim=1).detach()
    joined.key_projection.load_state_dict(apart.key_projection.state_dict())
    joined.score_vector.load_state_dict(apart.score_vector.state_dict())
    apart, joined, past = apart.double(), joined.double(), past_of(2)
    tokens, keys = torch.randn(2, 1, QUERY).double(), torch.randn(2, 5, KEY).double()
    queries = torch.cat([tokens, past.context.unsqueeze(1)], dim=-1)
    torch.testing.assert_close(
        joined(queries, joined.prepare_keys(keys)), apart(tokens, apart.prepare_keys(keys), past)
    )


def test_features_are_scored_in_chunks_like_all_else_and_agree_with_the_plain_form():
    places, hidden_size = 2**16 + 1, 64
    features = every_feature(hidden_size)
    score = AdditiveScore(QUERY, KEY, hidden_size=hidden_size, features=features).double()
    query, past = torch.randn(1, QUERY).double(), past_of(places=places)
    prepared, projected = (
        score.prepare_keys(torch.randn(places, KEY).double()),
        score.query_projection(query),
    )
    vector = score.score_vector.weight[0]
    assert additive_score.select_kernel(projected, prepared, vector).name == "chunked"
    summed = prepared + sum(feature(past) for feature in features)
    plain = additive_score.reference(projected, summed, vector)
    torch.testing.assert_close(score(query, prepared, past), plain)


def test_gradients_reach_everything_and_are_those_of_finite_differences():
    score, past = looking_back(bias=True), past_of(2)
    query, keys = torch.randn(2, 1, QUERY).double(), torch.randn(2, 5, KEY).double()
    parts = [query, keys, past.last_weights, past.coverage, past.context]
    inputs = [part.requires_grad_() for part in parts] + list(score.parameters())

    def scores(query, keys, last, total, context, *_):
        then = past._replace(last_weights=last, coverage=total, context=context)
        return score(query, score.prepare_keys(keys), then)

    assert torch.autograd.gradcheck(scores, inputs)
    for gradient in torch.autograd.grad(scores(*parts).square().sum(), inputs):
        assert (gradient != 0).any()
