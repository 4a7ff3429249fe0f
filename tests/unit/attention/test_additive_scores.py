"""The additive score with features of the state."""

import math

import pytest
import torch

import heedful.acceleration.kernels  # noqa: F401
from heedful.attention.additive_scores import (
    AdditiveScore,
    AdditiveScoreConfig,
    ContextFeature,
    CoverageFeature,
    LocationFeature,
    additive_score,
)
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.masks import padding_mask
from heedful.attention.memory import AttentionState
from heedful.attention.readouts import WeightedSumReadout

QUERY, KEY, HIDDEN = 2, 4, 3


def all_features(hidden_size=HIDDEN):
    return [
        CoverageFeature(hidden_size),
        LocationFeature(hidden_size, num_filters=2, kernel_size=3),
        ContextFeature(hidden_size, value_size=KEY),
    ]


def score_with_features(**options):
    features = all_features()
    return AdditiveScore(QUERY, KEY, hidden_size=HIDDEN, features=features, **options).double()


def random_state(*leading, positions=5):
    last, total = torch.rand(2, *leading, positions).double().unbind(0)
    num_queries, probability = torch.ones(leading, dtype=torch.long), torch.ones(leading)
    return AttentionState(
        num_queries, last, total, torch.randn(*leading, KEY).double(), probability
    )


def test_additive_score_adds_features_inside_tanh():
    score, state = score_with_features(bias=True), random_state()
    query, keys = torch.randn(1, QUERY).double(), torch.randn(5, KEY).double()
    actual = score(query, score.prepare_keys(keys), state)
    coverage_penalty, location, context = (feature(state) for feature in score.features)
    for position in range(5):
        hidden = (
            score.query_projection.weight @ query[0]
            + score.key_projection.weight @ keys[position]
            + score.key_projection.bias
            + (coverage_penalty[position] + location[position] + context[0])
        )
        parts = zip(score.score_vector.weight[0].tolist(), hidden.tolist(), strict=True)
        expected = sum(vector * math.tanh(item) for vector, item in parts)
        assert actual[0, position].item() == pytest.approx(expected)


def test_missing_state_equals_initial_state():
    score = score_with_features()
    attention = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
    values, query = torch.randn(2, 5, KEY).double(), torch.randn(2, 1, QUERY).double()
    memory = attention.build_memory(values, padding_mask(torch.tensor([5, 3]), 5))
    initial = attention.initial_state(memory)
    assert torch.equal(score(query, memory.keys), score(query, memory.keys, initial))


def test_only_additive_score_with_features_uses_history():
    assert score_with_features().uses_history
    assert not AdditiveScore(QUERY, KEY, hidden_size=HIDDEN).uses_history


def test_additive_score_without_features_ignores_state():
    score = AdditiveScore(QUERY, KEY, hidden_size=HIDDEN).double()
    queries, prepared = (
        torch.randn(3, QUERY).double(),
        score.prepare_keys(torch.randn(5, KEY).double()),
    )
    assert torch.equal(score(queries, prepared, random_state()), score(queries, prepared))


def test_additive_score_with_features_takes_one_query_at_a_time():
    score = score_with_features()
    prepared = score.prepare_keys(torch.randn(5, KEY).double())
    with pytest.raises(AssertionError, match="3 queries at once"):
        score(torch.randn(3, QUERY).double(), prepared, random_state())


@pytest.mark.parametrize("bias", [False, True])
def test_additive_bias_is_optional(bias):
    config = AdditiveScoreConfig(hidden_size=HIDDEN, bias=bias)
    score = config.build(query_size=QUERY, key_size=KEY, num_heads=None)
    assert (score.key_projection.bias is not None) == bias
    assert score.query_projection.bias is None
    assert score.score_vector.bias is None


def test_chunked_additive_score_with_features_same_as_naive_score():
    positions, hidden_size = 2**16 + 1, 64
    features = all_features(hidden_size)
    score = AdditiveScore(QUERY, KEY, hidden_size=hidden_size, features=features).double()
    query, state = torch.randn(1, QUERY).double(), random_state(positions=positions)
    prepared, projected = (
        score.prepare_keys(torch.randn(positions, KEY).double()),
        score.query_projection(query),
    )
    vector = score.score_vector.weight[0]
    assert additive_score.select_kernel(projected, prepared, vector).name == "chunked"
    summed = prepared + sum(feature(state) for feature in features)
    plain = additive_score.reference(projected, summed, vector)
    torch.testing.assert_close(score(query, prepared, state), plain)


def test_additive_gradients_match_finite_differences():
    score, state = score_with_features(bias=True), random_state(2)
    query, keys = torch.randn(2, 1, QUERY).double(), torch.randn(2, 5, KEY).double()
    parts = [query, keys, state.last_weights, state.coverage, state.last_context]
    inputs = [part.requires_grad_() for part in parts] + list(score.parameters())

    def scores(query, keys, last, total, context, *_):
        then = state._replace(last_weights=last, coverage=total, last_context=context)
        return score(query, score.prepare_keys(keys), then)

    assert torch.autograd.gradcheck(scores, inputs)
    for gradient in torch.autograd.grad(scores(*parts).square().sum(), inputs):
        assert (gradient != 0).any()
