"""Attention with features of the state against loops over the papers' formulas.

Some toolkits accumulate coverage without using it in the score, or would add it to the values: both
are tested against here.
"""

import math

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


class PaperScore:
    """The parameters of a score as lists, and e = v . tanh(sum of all terms)."""

    def __init__(self, score):
        self.query = score.query_projection.weight.tolist()
        self.key = score.key_projection.weight.tolist()
        self.vector = score.score_vector.weight[0].tolist()
        bias = score.key_projection.bias
        self.bias = [0.0] * HIDDEN if bias is None else bias.tolist()

    def energy(self, query, key, features):
        sums = zip(times(self.query, query), times(self.key, key), features, self.bias, strict=True)
        return sum(v * math.tanh(sum(four)) for v, four in zip(self.vector, sums, strict=True))


def see_2017(score, queries, values):
    """See et al. 2017: e_i = v . tanh(W_h h_i + W_s s_t + w_c c_i + b), c coverage."""
    paper, coverage, weights = PaperScore(score), [0.0] * len(values), []
    w_c = score.features[0].projection.weight[:, 0].tolist()
    for query in queries:
        energies = [
            paper.energy(query, value, [w * covered for w in w_c])
            for value, covered in zip(values, coverage, strict=True)
        ]
        weights.append(softmax(energies))
        coverage = [c + w for c, w in zip(coverage, weights[-1], strict=True)]
    return weights, coverage


def chorowski_2015(score, queries, values):
    """Chorowski et al. 2015: e_j = w . tanh(W s + V h_j + U f_j + b), f = F * last weights."""
    paper, feature, weights = PaperScore(score), score.features[0], [[0.0] * len(values)]
    filters, u = feature.filters.weight[:, 0].tolist(), feature.projection.weight.tolist()
    half = len(filters[0]) // 2
    for query in queries:
        last, energies = dict(enumerate(weights[-1])), []
        for position, value in enumerate(values):
            f = [
                sum(
                    tap * last.get(position + offset - half, 0.0) for offset, tap in enumerate(item)
                )
                for item in filters
            ]
            energies.append(paper.energy(query, value, times(u, f)))
        weights.append(softmax(energies))
    return weights[1:]


def cheng_2016(score, queries, values):
    """Cheng et al. 2016: a_i = v . tanh(W_h h_i + W_x x_t + W_c c), c the last context."""
    paper, context, weights = PaperScore(score), [0.0] * KEY, []
    matrix = score.features[0].projection.weight.tolist()
    for query in queries:
        features = times(matrix, context)
        weights.append(softmax([paper.energy(query, value, features) for value in values]))
        context = mean(weights[-1], values)
    return weights, context


def visible_values(memory):
    """Return the values of each row without its padding, as lists."""
    return [values[:length].tolist() for values, length in zip(memory.values, LENGTHS, strict=True)]


def test_coverage_attention_same_as_loop_of_see_2017():
    attention = build_attention(CoverageFeature(HIDDEN), bias=True)
    queries, memory = queries_and_memory(attention)
    output = attention(queries, memory, attention.initial_state(memory))
    for row, values in enumerate(visible_values(memory)):
        weights, coverage = see_2017(attention.score, queries[row].tolist(), values)
        size = len(values)
        torch.testing.assert_close(output.weights[row, :, :size], torch.tensor(weights).double())
        torch.testing.assert_close(
            output.state.coverage[row, :size], torch.tensor(coverage).double()
        )
        assert (output.weights[row, :, size:] == 0).all()


@pytest.mark.parametrize("width", [1, 3, 7])
def test_location_attention_same_as_loop_of_chorowski_2015(width):
    attention = build_attention(
        LocationFeature(HIDDEN, num_filters=2, kernel_size=width), bias=True
    )
    queries, memory = queries_and_memory(attention)
    output = attention(queries, memory)
    for row, values in enumerate(visible_values(memory)):
        weights = chorowski_2015(attention.score, queries[row].tolist(), values)
        torch.testing.assert_close(
            output.weights[row, :, : len(values)], torch.tensor(weights).double()
        )


def test_context_attention_same_as_loop_of_cheng_2016():
    attention = build_attention(ContextFeature(HIDDEN, value_size=KEY))
    queries, memory = queries_and_memory(attention)
    output = attention(queries, memory)
    for row, values in enumerate(visible_values(memory)):
        weights, context = cheng_2016(attention.score, queries[row].tolist(), values)
        torch.testing.assert_close(
            output.weights[row, :, : len(values)], torch.tensor(weights).double()
        )
        torch.testing.assert_close(output.context[row, -1], torch.tensor(context).double())


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
