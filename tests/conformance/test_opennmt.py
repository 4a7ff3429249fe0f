"""OpenNMT-py: where its attention differs from the papers, by hand calculation.

Its own tests expect no values of attention, and 3.5.1 needs torch below 2.3. Its search is that of
`test_hugging_face_search.py`.
"""

import math

import torch

from heedful.attention.additive_scores import AdditiveScore, CoverageFeature
from heedful.attention.alignments import SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.attention import SingleHeadAttention, WeightedSumReadout
from heedful.attention.dot_product_scores import DotScore
from tests.conformance.inputs import attend, column, row, softmax, visible

WIDTH = 4


def with_coverage(weight):
    """See's score in one dimension, with W = U = v = 1: tanh(q + k + weight * coverage)."""
    score = AdditiveScore(1, 1, hidden_size=1, features=[CoverageFeature(1)]).double()
    score.load_state_dict(
        {
            "query_projection.weight": row(1),
            "key_projection.weight": row(1),
            "score_vector.weight": row(1),
            "features.0.projection.weight": row(weight),
        }
    )
    return SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())


def test_opennmt_sparsemax_matches():
    # Scores 1, 0.5 and -1: the projection is 0.75 and 0.25, each 0.25 below its score.
    queries, values = column(1.0), column(1.0, 0.5, -1.0)
    weights = attend(
        DotScore(), queries, values, visible(values), alignment=SparsemaxAlignment()
    ).weights
    torch.testing.assert_close(weights[0], row(0.75, 0.25, 0))


def test_coverage_affects_scores_here_but_not_in_opennmt():
    # The same query twice over keys 1 and 0. OpenNMT-py keeps coverage but does not use it.
    queries, values = column(0.0, 0.0), column(1.0, 0.0)
    first = softmax(math.tanh(1), math.tanh(0))
    second = softmax(math.tanh(1 - 3 * first[0]), math.tanh(0 - 3 * first[1]))
    opennmt = torch.stack([first, first])
    attention = with_coverage(-3.0)
    weights = attention(queries, attention.build_memory(values, visible(values))).weights[0]
    torch.testing.assert_close(weights, torch.stack([first, second]))
    torch.testing.assert_close(weights[0], opennmt[0])
    assert (weights[1] - opennmt[1]).abs().max() > 0.1


def test_coverage_with_zero_weight_matches_opennmt():
    queries, values = column(0.0, 0.0), column(1.0, 0.0)
    attention = with_coverage(0.0)
    weights = attention(queries, attention.build_memory(values, visible(values))).weights[0]
    first = softmax(math.tanh(1), math.tanh(0))
    torch.testing.assert_close(weights, torch.stack([first, first]))


def test_coverage_does_not_modify_values_unlike_opennmt_branch():
    # The branch adds w c to the encoder states in place and averages their tanh.
    queries, values = column(0.0, 0.0), column(1.0, 0.0)
    first = softmax(math.tanh(1), math.tanh(0))
    second = softmax(math.tanh(1 - 3 * first[0]), math.tanh(0 - 3 * first[1]))
    modified = (values[0, :, 0] - 3 * first).tanh()
    attention = with_coverage(-3.0)
    memory = attention.build_memory(values, visible(values))
    context = attention(queries, memory).context[0, :, 0]
    torch.testing.assert_close(context[1], second[0] * 1.0 + second[1] * 0.0)
    torch.testing.assert_close(memory.values, column(1.0, 0.0))
    assert (context[1] - second @ modified).abs() > 0.1
