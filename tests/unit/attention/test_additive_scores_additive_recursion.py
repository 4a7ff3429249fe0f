"""Whole recursions in which attention sees its past, against loops over the papers' formulas.

Well-known code gathers coverage and never shows it to the score, and has a branch that would add
it to the values: each is tested against here.
"""

import math

import pytest
import torch

from heedful.attention import (
    AdditiveScore,
    SingleHeadAttention,
    SoftmaxAlignment,
    WeightedSumReadout,
    padding_mask,
)
from heedful.attention.additive_scores import ContextFeature, CoverageFeature, LocationFeature

QUERY, KEY, HIDDEN, STEPS, PLACES = 2, 4, 3, 5, 6
LENGTHS = torch.tensor([6, 4])


def attending(*features, bias=False):
    torch.manual_seed(3)
    score = AdditiveScore(QUERY, KEY, hidden_size=HIDDEN, bias=bias, features=features).double()
    with torch.no_grad():
        for weight in score.parameters():
            weight.mul_(3)
    return SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())


def asked(attention):
    torch.manual_seed(4)
    queries = torch.randn(2, STEPS, QUERY).double().requires_grad_()
    values = torch.randn(2, PLACES, KEY).double()
    return queries, attention.build_memory(values, padding_mask(LENGTHS, PLACES))


def times(matrix, vector):
    return [sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix]


def softmax(energies):
    powers = [math.exp(energy) for energy in energies]
    return [power / sum(powers) for power in powers]


def mean(weights, values):
    return [
        sum(w * v for w, v in zip(weights, column, strict=True))
        for column in zip(*values, strict=True)
    ]


class Papers:
    """The matrices of a score as lists, and e = v . tanh(the sum of all that is told)."""

    def __init__(self, score):
        self.query = score.query_projection.weight.tolist()
        self.key = score.key_projection.weight.tolist()
        self.vector = score.score_vector.weight[0].tolist()
        bias = score.key_projection.bias
        self.bias = [0.0] * HIDDEN if bias is None else bias.tolist()

    def energy(self, query, key, told):
        sums = zip(times(self.query, query), times(self.key, key), told, self.bias, strict=True)
        return sum(v * math.tanh(sum(four)) for v, four in zip(self.vector, sums, strict=True))


def see(score, queries, values):
    """See et al. 2017: e_i = v . tanh(W_h h_i + W_s s_t + w_c c_i + b), c the weights so far."""
    papers, coverage_penalty, weights = Papers(score), [0.0] * len(values), []
    w_c = score.features[0].projection.weight[:, 0].tolist()
    for query in queries:
        energies = [
            papers.energy(query, value, [w * covered for w in w_c])
            for value, covered in zip(values, coverage_penalty, strict=True)
        ]
        weights.append(softmax(energies))
        coverage_penalty = [c + w for c, w in zip(coverage_penalty, weights[-1], strict=True)]
    return weights, coverage_penalty


def chorowski(score, queries, values):
    """Chorowski et al. 2015: e_j = w . tanh(W s + V h_j + U f_j + b), f = F * last weights."""
    papers, feature, weights = Papers(score), score.features[0], [[0.0] * len(values)]
    filters, u = feature.filters.weight[:, 0].tolist(), feature.projection.weight.tolist()
    half = len(filters[0]) // 2
    for query in queries:
        last, energies = dict(enumerate(weights[-1])), []
        for place, value in enumerate(values):
            f = [
                sum(tap * last.get(place + at - half, 0.0) for at, tap in enumerate(each))
                for each in filters
            ]
            energies.append(papers.energy(query, value, times(u, f)))
        weights.append(softmax(energies))
    return weights[1:]


def cheng(score, queries, values):
    """Cheng et al. 2016: a_i = v . tanh(W_h h_i + W_x x_t + W_c c), c what was taken last."""
    papers, context, weights = Papers(score), [0.0] * KEY, []
    matrix = score.features[0].projection.weight.tolist()
    for query in queries:
        told = times(matrix, context)
        weights.append(softmax([papers.energy(query, value, told) for value in values]))
        context = mean(weights[-1], values)
    return weights, context


def visible(memory):
    """The values of each row without its padding, as lists."""
    return [values[:length].tolist() for values, length in zip(memory.values, LENGTHS, strict=True)]


def test_coverage_is_the_whole_recursion_of_see():
    attention = attending(CoverageFeature(HIDDEN), bias=True)
    queries, memory = asked(attention)
    attended = attention(queries, memory, attention.initial_state(memory))
    for row, values in enumerate(visible(memory)):
        weights, coverage_penalty = see(attention.score, queries[row].tolist(), values)
        size = len(values)
        torch.testing.assert_close(attended.weights[row, :, :size], torch.tensor(weights).double())
        torch.testing.assert_close(
            attended.state.coverage[row, :size], torch.tensor(coverage_penalty).double()
        )
        assert (attended.weights[row, :, size:] == 0).all()


@pytest.mark.parametrize("width", [1, 3, 7])
def test_location_features_are_the_whole_recursion_of_chorowski(width):
    attention = attending(LocationFeature(HIDDEN, num_filters=2, kernel_size=width), bias=True)
    queries, memory = asked(attention)
    attended = attention(queries, memory)
    for row, values in enumerate(visible(memory)):
        weights = chorowski(attention.score, queries[row].tolist(), values)
        torch.testing.assert_close(
            attended.weights[row, :, : len(values)], torch.tensor(weights).double()
        )


def test_the_last_context_is_the_whole_recursion_of_cheng():
    attention = attending(ContextFeature(HIDDEN, value_size=KEY))
    queries, memory = asked(attention)
    attended = attention(queries, memory)
    for row, values in enumerate(visible(memory)):
        weights, context = cheng(attention.score, queries[row].tolist(), values)
        torch.testing.assert_close(
            attended.weights[row, :, : len(values)], torch.tensor(weights).double()
        )
        torch.testing.assert_close(attended.context[row, -1], torch.tensor(context).double())


FEATURES = {
    "coverage": lambda: CoverageFeature(HIDDEN),
    "location": lambda: LocationFeature(HIDDEN, num_filters=2, kernel_size=3),
    "context": lambda: ContextFeature(HIDDEN, value_size=KEY),
}
each_feature = pytest.mark.parametrize("make", FEATURES.values(), ids=FEATURES)


@each_feature
def test_what_was_seen_before_changes_where_attention_goes(make):
    attention = attending(make())
    queries, memory = asked(attention)
    again = queries[:, :1].expand(-1, 2, -1)  # the same question, twice
    first, second = attention(again, memory).weights.unbind(1)
    assert (first - second).abs().max() > 1e-3


@each_feature
def test_gradients_reach_the_feature_and_the_queries_of_earlier_steps(make):
    attention = attending(make())
    queries, memory = asked(attention)
    last = attention(queries, memory).weights[:, -1].square().sum()
    of_queries, *of_feature = torch.autograd.grad(
        last, [queries, *attention.score.features.parameters()]
    )
    assert (of_queries != 0).any(dim=-1).all()
    assert all((each != 0).any() for each in of_feature)


@each_feature
def test_what_can_be_attended_to_is_left_as_it_was(make):
    attention = attending(make())
    queries, memory = asked(attention)
    before = [part.clone() for part in memory]
    attended = attention(queries, memory)
    for part, was in zip(memory, before, strict=True):
        assert torch.equal(part, was)
    torch.testing.assert_close(attended.context, attended.weights @ memory.values)


@each_feature
def test_queries_one_by_one_are_queries_at_once(make):
    attention = attending(make())
    queries, memory = asked(attention)
    begun = attention.initial_state(memory)
    past, weights = begun, []
    for query in queries.split(1, dim=1):
        attended = attention(query, memory, past)
        past = attended.state
        weights.append(attended.weights)
    whole = attention(queries, memory, begun)
    torch.testing.assert_close(torch.cat(weights, dim=1), whole.weights)
    torch.testing.assert_close(tuple(past), tuple(whole.state))
