"""Attention with features of the state against loops over the papers' formulas.

Some toolkits accumulate coverage without using it in the score, or would add it to the values: both
are tested against here.
"""

import pytest
import torch

from heedful.attention.additive_scores import (
    AdditiveScore,
    ContextFeature,
    CoverageFeature,
    LocationFeature,
)
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.masks import padding_mask
from heedful.attention.readouts import WeightedSumReadout

QUERY, KEY, HIDDEN, STEPS, NUM_KEYS = 2, 4, 3, 5, 6
LENGTHS = torch.tensor([6, 4])


def build_attention(*features, bias=False):
    torch.manual_seed(3)
    score = AdditiveScore(QUERY, KEY, hidden_size=HIDDEN, bias=bias, features=features).double()
    with torch.no_grad():
        for weight in score.parameters():
            weight.mul_(3)
    return SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())


def queries_and_memory(attention):
    torch.manual_seed(4)
    queries = torch.randn(2, STEPS, QUERY).double().requires_grad_()
    values = torch.randn(2, NUM_KEYS, KEY).double()
    return queries, attention.build_memory(values, padding_mask(LENGTHS, NUM_KEYS))


def energies(score, query, values, features):
    """e = v . tanh(sum of all terms) of one query, with features of each position."""
    hidden = score.query_projection.weight @ query + score.key_projection(values) + features
    return hidden.tanh() @ score.score_vector.weight[0]


def see_2017(score, queries, values):
    """See et al. 2017: e_i = v . tanh(W_h h_i + W_s s_t + w_c c_i + b), c coverage."""
    coverage, weights = torch.zeros(len(values)).double(), []
    w_c = score.features[0].projection.weight[:, 0]
    for query in queries:
        weights.append(energies(score, query, values, coverage.outer(w_c)).softmax(dim=0))
        coverage = coverage + weights[-1]
    return torch.stack(weights), coverage


def chorowski_2015(score, queries, values):
    """Chorowski et al. 2015: e_j = w . tanh(W s + V h_j + U f_j + b), f = F * last weights."""
    filters, u = score.features[0].filters.weight[:, 0], score.features[0].projection.weight
    half, weights = filters.size(1) // 2, [torch.zeros(len(values)).double()]
    for query in queries:
        margin = torch.zeros(half).double()
        windows = torch.cat([margin, weights[-1], margin]).unfold(0, filters.size(1), 1)
        features = windows @ filters.T @ u.T
        weights.append(energies(score, query, values, features).softmax(dim=0))
    return torch.stack(weights[1:])


def cheng_2016(score, queries, values):
    """Cheng et al. 2016: a_i = v . tanh(W_h h_i + W_x x_t + W_c c), c the last context."""
    context, weights = torch.zeros(KEY).double(), []
    for query in queries:
        features = score.features[0].projection.weight @ context
        weights.append(energies(score, query, values, features).softmax(dim=0))
        context = weights[-1] @ values
    return torch.stack(weights), context


def visible_values(memory):
    """Return the values of each row without its padding."""
    return [values[:length] for values, length in zip(memory.values, LENGTHS, strict=True)]


def test_coverage_attention_same_as_loop_of_see_2017():
    attention = build_attention(CoverageFeature(HIDDEN), bias=True)
    queries, memory = queries_and_memory(attention)
    output = attention(queries, memory, attention.initial_state(memory))
    for row, values in enumerate(visible_values(memory)):
        weights, coverage = see_2017(attention.score, queries[row], values)
        size = len(values)
        torch.testing.assert_close(output.weights[row, :, :size], weights)
        torch.testing.assert_close(output.state.coverage[row, :size], coverage)
        assert (output.weights[row, :, size:] == 0).all()


@pytest.mark.parametrize("width", [1, 3, 7])
def test_location_attention_same_as_loop_of_chorowski_2015(width):
    attention = build_attention(
        LocationFeature(HIDDEN, num_filters=2, kernel_size=width), bias=True
    )
    queries, memory = queries_and_memory(attention)
    output = attention(queries, memory)
    for row, values in enumerate(visible_values(memory)):
        weights = chorowski_2015(attention.score, queries[row], values)
        torch.testing.assert_close(output.weights[row, :, : len(values)], weights)


def test_context_attention_same_as_loop_of_cheng_2016():
    attention = build_attention(ContextFeature(HIDDEN, value_size=KEY))
    queries, memory = queries_and_memory(attention)
    output = attention(queries, memory)
    for row, values in enumerate(visible_values(memory)):
        weights, context = cheng_2016(attention.score, queries[row], values)
        torch.testing.assert_close(output.weights[row, :, : len(values)], weights)
        torch.testing.assert_close(output.context[row, -1], context)


FEATURES = {
    "coverage": lambda: CoverageFeature(HIDDEN),
    "location": lambda: LocationFeature(HIDDEN, num_filters=2, kernel_size=3),
    "context": lambda: ContextFeature(HIDDEN, value_size=KEY),
}
all_features = pytest.mark.parametrize("build_feature", FEATURES.values(), ids=FEATURES)


@all_features
def test_gradients_reach_features_and_earlier_queries(build_feature):
    attention = build_attention(build_feature())
    queries, memory = queries_and_memory(attention)
    last = attention(queries, memory).weights[:, -1].square().sum()
    of_queries, *of_feature = torch.autograd.grad(
        last, [queries, *attention.score.features.parameters()]
    )
    assert (of_queries != 0).any(dim=-1).all()
    assert all((item != 0).any() for item in of_feature)


@all_features
def test_attention_does_not_modify_memory(build_feature):
    attention = build_attention(build_feature())
    queries, memory = queries_and_memory(attention)
    before = [part.clone() for part in memory]
    output = attention(queries, memory)
    for part, original in zip(memory, before, strict=True):
        assert torch.equal(part, original)
    torch.testing.assert_close(output.context, output.weights @ memory.values)
