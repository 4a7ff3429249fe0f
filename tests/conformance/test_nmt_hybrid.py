"""Luong: the paper, and its authors' code (lmthang/nmt.hybrid).

Its computation is reimplemented here.
"""

import math

import torch

from heedful.attention.additive_scores import ConcatScore
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.local_alignment import LocalAlignment, PredictiveCenter
from tests.conformance.inputs import column, row, sentences

WIDTH, NUM_KEYS = 4, 4
# Positions 0 to 3 around a center at 2, with sigma = half_width / 2 = 1: exp(-(s - 2)^2 / 2).
GAUSSIAN = [math.exp(-2), math.exp(-0.5), 1.0, math.exp(-0.5)]


def authors_concat(queries, keys, matrix, vector):
    """v . tanh(k + W q): no matrix for the keys."""
    projected = queries @ matrix.T
    return (projected[:, :, None] + keys[:, None]).tanh() @ vector


def test_concat_score_has_matrix_for_keys():
    # W = (1 | 2), v = 3, q = 1, k = 0.5: 3 tanh(1 + 2 * 0.5) (paper), 3 tanh(1 + 0.5) (code).
    score = ConcatScore(1, 1, hidden_size=1).double()
    score.load_state_dict({"projection.weight": row(1, 2), "score_vector.weight": row(3)})
    queries, keys = column(1.0), column(0.5)
    actual = score(queries, score.prepare_keys(keys)).item()
    assert math.isclose(actual, 3 * math.tanh(2))
    code = authors_concat(queries, keys, row(1), row(3)[0]).item()
    assert math.isclose(code, 3 * math.tanh(1.5))


def test_concat_score_matches_code_with_identity_key_matrix():
    queries, keys, _ = sentences()
    score = ConcatScore(WIDTH, WIDTH, hidden_size=WIDTH).double()
    matrix, vector = torch.randn(WIDTH, WIDTH).double(), torch.randn(WIDTH).double()
    identity = torch.eye(WIDTH).double()
    score.load_state_dict(
        {
            "projection.weight": torch.cat([matrix, identity], dim=1),
            "score_vector.weight": vector[None],
        }
    )
    code = authors_concat(queries, keys, matrix, vector)
    torch.testing.assert_close(score(queries, score.prepare_keys(keys)), code)


def local(scores, gaussian):
    """Return weights around the middle of four positions, with half-width 2."""
    center = PredictiveCenter(1, hidden_size=1)
    torch.nn.init.zeros_(center.reduction.weight)  # 4 sigmoid(0) = 2
    alignment = LocalAlignment(SoftmaxAlignment(), center, half_width=2, gaussian=gaussian)
    mask = torch.ones(1, 1, NUM_KEYS, dtype=torch.bool)
    output = alignment(row(*scores)[None], mask, torch.zeros(1, 1, 1))
    assert output.centers.item() == 2
    return output.weights[0]


def normalized_as_in_code(scores):
    """`normLocalAttn`: softmax(score * Gaussian)."""
    return (row(*scores) * row(*GAUSSIAN)).softmax(dim=-1)


def test_gaussian_multiplies_weights_without_renormalization():
    # Equal scores: a quarter each, times the Gaussian.
    torch.testing.assert_close(local([0.0] * NUM_KEYS, "after"), row(*GAUSSIAN) / 4)


def test_newer_code_ignores_gaussian_for_zero_scores():
    zeros = [0.0] * NUM_KEYS
    torch.testing.assert_close(normalized_as_in_code(zeros), row(*[0.25] * NUM_KEYS))
    assert (local(zeros, "after")[0] - 0.25).abs().max() > 0.1


def test_newer_code_prefers_far_positions_for_negative_scores():
    scores = [-4.0] * NUM_KEYS
    code = normalized_as_in_code(scores)
    assert code.argmax().item() == 0  # the farthest
    assert code.argmin().item() == 2  # the center
    for gaussian in ("before", "after"):
        weights = local(scores, gaussian)
        assert weights.argmax().item() == 2
        assert weights.argmin().item() == 0


def test_gaussian_before_softmax_is_normalized_paper_form():
    scores = [0.3, -1.0, 0.2, 2.0]
    after = local(scores, "after")
    torch.testing.assert_close(local(scores, "before"), after / after.sum())
    expected = row(*scores).softmax(dim=-1) * row(*GAUSSIAN)
    torch.testing.assert_close(after, expected)


def test_center_has_gradient_only_through_gaussian():
    center = PredictiveCenter(1, hidden_size=1)
    queries, scores = torch.ones(1, 1, 1), torch.randn(1, 1, NUM_KEYS)
    mask = torch.ones(1, 1, NUM_KEYS, dtype=torch.bool)
    for gaussian, learns in (("none", False), ("after", True), ("before", True)):
        output = LocalAlignment(SoftmaxAlignment(), center, half_width=1, gaussian=gaussian)(
            scores, mask, queries
        )
        assert output.weights.requires_grad is learns
