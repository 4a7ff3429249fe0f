"""OpenNMT-py: its global attention is the papers', its coverage and its copying are not.

What it computes is written out here, for it wants an older torch than heedful (3.5.1: below 2.3).
"""

import math

import torch

from heedful.attention import (
    AdditiveScore,
    BilinearScore,
    DotScore,
    SingleHeadAttention,
    SoftmaxAlignment,
    SparsemaxAlignment,
    WeightedSumReadout,
)
from heedful.attention.additive_scores import CoverageFeature
from tests.conformance.asking import attend, column, row, sentences, softmax, visible

WIDTH = 4


def with_coverage(penalty):
    """See's score in one dimension, with W = U = v = 1: tanh(q + k + strength * total)."""
    score = AdditiveScore(1, 1, hidden_size=1, features=[CoverageFeature(1)]).double()
    score.load_state_dict(
        {
            "query_projection.weight": row(1),
            "key_projection.weight": row(1),
            "reduction.weight": row(1),
            "features.0.projection.weight": row(penalty),
        }
    )
    return SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())


def test_general_attention_is_the_bilinear_score():
    queries, values, mask = sentences()
    score = BilinearScore(WIDTH, WIDTH).double()
    matrix = score.projection.weight
    # OpenNMT-py turns the query, h_s . (W h_t), where the paper turns the key: W is transposed.
    scores = torch.einsum("bsk,qk,btq->bts", values, matrix, queries)
    wanted = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(attend(score, queries, values, mask).weights, wanted)


def test_mlp_attention_is_the_additive_score_with_a_bias():
    queries, values, mask = sentences()
    score = AdditiveScore(WIDTH, WIDTH, hidden_size=WIDTH, bias=True).double()
    asked = queries @ score.query_projection.weight.T + score.key_projection.bias
    held = values @ score.key_projection.weight.T
    hidden = (asked[:, :, None] + held[:, None]).tanh()
    scores = (hidden * score.score_vector.weight[0]).sum(dim=-1)
    wanted = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(attend(score, queries, values, mask).weights, wanted)


def test_its_other_alignment_is_sparsemax():
    # Scores 1, 0.5 and -1: the nearest shares are 0.75 and 0.25, each 0.25 below its score.
    queries, values = column(1.0), column(1.0, 0.5, -1.0)
    weights = attend(
        DotScore(), queries, values, visible(values), align=SparsemaxAlignment()
    ).weights
    torch.testing.assert_close(weights[0], row(0.75, 0.25, 0))


def test_coverage_reaches_our_scores_and_not_those_of_opennmt():
    # Asked the same twice, places 1 and 0. OpenNMT-py keeps a total but asks without it.
    queries, values = column(0.0, 0.0), column(1.0, 0.0)
    first = softmax(math.tanh(1), math.tanh(0))
    second = softmax(math.tanh(1 - 3 * first[0]), math.tanh(0 - 3 * first[1]))
    opennmt = torch.stack([first, first])
    attention = with_coverage(-3.0)
    weights = attention(queries, attention.build_memory(values, visible(values))).weights[0]
    torch.testing.assert_close(weights, torch.stack([first, second]))
    torch.testing.assert_close(weights[0], opennmt[0])
    assert (weights[1] - opennmt[1]).abs().max() > 0.1


def test_without_strength_coverage_is_what_opennmt_computes():
    queries, values = column(0.0, 0.0), column(1.0, 0.0)
    attention = with_coverage(0.0)
    weights = attention(queries, attention.build_memory(values, visible(values))).weights[0]
    first = softmax(math.tanh(1), math.tanh(0))
    torch.testing.assert_close(weights, torch.stack([first, first]))


def test_coverage_leaves_our_values_alone_where_opennmts_unused_branch_spoils_them():
    # The branch adds w c to what the encoder said, in place, and then averages tanh of that.
    queries, values = column(0.0, 0.0), column(1.0, 0.0)
    first = softmax(math.tanh(1), math.tanh(0))
    second = softmax(math.tanh(1 - 3 * first[0]), math.tanh(0 - 3 * first[1]))
    spoiled = (values[0, :, 0] - 3 * first).tanh()
    attention = with_coverage(-3.0)
    memory = attention.build_memory(values, visible(values))
    context = attention(queries, memory).context[0, :, 0]
    torch.testing.assert_close(context[1], second[0] * 1.0 + second[1] * 0.0)
    torch.testing.assert_close(memory.values, column(1.0, 0.0))
    assert (context[1] - second @ spoiled).abs() > 0.1


def test_nothing_is_copied_from_padding_in_ours_and_half_in_opennmt():
    # Two words and two places of padding, all scores equal. Its copy attention is not told how
    # long the source is, so every place gets a quarter.
    queries, values = column(0.0), column(3.0, 5.0, 7.0, 9.0)
    scores = (queries @ values.mT)[0]
    opennmt = scores.softmax(dim=-1)
    torch.testing.assert_close(opennmt[..., 2:].sum(), torch.tensor(0.5).double())
    mask = torch.tensor([[[True, True, False, False]]])
    weights = attend(DotScore(), queries, values, mask).weights
    torch.testing.assert_close(weights[0], row(0.5, 0.5, 0, 0))
    shortened = values[:, :2]
    unpadded = attend(DotScore(), queries, shortened, visible(shortened)).weights
    torch.testing.assert_close(unpadded[0], scores[:, :2].softmax(dim=-1))
