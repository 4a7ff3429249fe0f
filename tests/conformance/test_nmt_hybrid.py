"""Luong: the paper, and its authors' code (lmthang/nmt.hybrid).

It is MATLAB and publishes no values, so the numbers are calculated by hand.
"""

import math

import pytest
import torch

from heedful.attention.additive_scores import ConcatScore
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.local_alignment import LocalAlignment, PredictiveCenter
from tests.conformance.inputs import column, row

NUM_KEYS = 4
# Positions 0 to 3 around a center at 2, with sigma = half_width / 2 = 1: exp(-(s - 2)^2 / 2).
GAUSSIAN = [math.exp(-2), math.exp(-0.5), 1.0, math.exp(-0.5)]


def test_concat_score_has_matrix_for_keys():
    # W = (1 | 2), v = 3, q = 1, k = 0.5: 3 tanh(1 + 2 * 0.5) (paper), 3 tanh(1 + 0.5) (code).
    score = ConcatScore(1, 1, hidden_size=1).double()
    score.load_state_dict({"projection.weight": row(1, 2), "score_vector.weight": row(3)})
    queries, keys = column(1.0), column(0.5)
    actual = score(queries, score.prepare_keys(keys)).item()
    assert math.isclose(actual, 3 * math.tanh(2))
    assert not math.isclose(actual, 3 * math.tanh(1.5))


def local(scores, gaussian):
    """Return weights around the middle of four positions, with half-width 2."""
    center = PredictiveCenter(1, hidden_size=1)
    torch.nn.init.zeros_(center.reduction.weight)  # 4 sigmoid(0) = 2
    alignment = LocalAlignment(SoftmaxAlignment(), center, half_width=2, gaussian=gaussian)
    mask = torch.ones(1, 1, NUM_KEYS, dtype=torch.bool)
    output = alignment(row(*scores)[None], mask, torch.zeros(1, 1, 1))
    assert output.centers.item() == 2
    return output.weights[0]


def test_gaussian_multiplies_weights_without_renormalization():
    # Equal scores: a quarter each, times the Gaussian.
    torch.testing.assert_close(local([0.0] * NUM_KEYS, "after"), row(*GAUSSIAN) / 4)


def test_center_wins_for_negative_scores_unlike_normalized_local_attention():
    # `normLocalAttn` is softmax(score * Gaussian): with scores of -4 the Gaussian exp(-2) of the
    # farthest position gives -0.54 and that of the center -4, so the farthest one wins.
    scores = [-4.0] * NUM_KEYS
    assert [score * gaussian for score, gaussian in zip(scores, GAUSSIAN, strict=True)] == (
        pytest.approx([-0.5413, -2.4261, -4.0, -2.4261], abs=1e-4)
    )
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
