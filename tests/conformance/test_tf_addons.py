"""TensorFlow Addons: its Bahdanau, Luong and monotonic attention.

Its computation is reimplemented here, because the TensorFlow of 0.23.0 needs numpy below 2.
"""

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore
from heedful.attention.dot_product_scores import BilinearScore
from heedful.attention.monotonic_alignment import MonotonicAlignment
from tests.conformance.inputs import attend, sentences

WIDTH, HIDDEN = 4, 3


def masked_softmax(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


def test_tfa_bahdanau_attention_is_additive_score():
    queries, values, mask = sentences()
    score = AdditiveScore(WIDTH, WIDTH, hidden_size=HIDDEN).double()
    projected_queries = queries @ score.query_projection.weight.T
    projected_keys = values @ score.key_projection.weight.T
    scores = (
        projected_queries[:, :, None] + projected_keys[:, None]
    ).tanh() @ score.score_vector.weight[0]
    output = attend(score, queries, values, mask)
    torch.testing.assert_close(output.weights, masked_softmax(scores, mask))


def test_tfa_normed_bahdanau_is_additive_score_with_bias():
    # g v / |v| . tanh(W q + U k + b): a parametrization of v, not another score.
    queries, values, mask = sentences()
    length, vector = 1.7, torch.randn(HIDDEN, dtype=torch.double)
    score = AdditiveScore(WIDTH, WIDTH, hidden_size=HIDDEN, bias=True).double()
    with torch.no_grad():
        score.score_vector.weight.copy_(length * vector / vector.norm())
    hidden = queries @ score.query_projection.weight.T + score.key_projection.bias
    projected_keys = values @ score.key_projection.weight.T
    normed = length * vector * vector.square().sum().rsqrt()
    scores = (hidden[:, :, None] + projected_keys[:, None]).tanh() @ normed
    output = attend(score, queries, values, mask)
    torch.testing.assert_close(output.weights, masked_softmax(scores, mask))


def test_tfa_luong_attention_is_bilinear_score():
    # Its memory layer is required, so there is "general" but no "dot".
    queries, values, mask = sentences()
    score = BilinearScore(WIDTH, WIDTH).double()
    scores = queries @ (values @ score.projection.weight.T).mT
    output = attend(score, queries, values, mask)
    torch.testing.assert_close(output.weights, masked_softmax(scores, mask))


def recursive_step(stop_probs, weights_before):
    """Return one step of its mode "recursive"."""
    weights, arriving = [], 0.0
    for stop_prob, previous in zip(stop_probs.tolist(), weights_before.tolist(), strict=True):
        arriving = arriving + previous
        weights.append(stop_prob * arriving)
        arriving = (1 - stop_prob) * arriving
    return torch.tensor(weights, dtype=torch.double)


@pytest.mark.parametrize("algorithm", ["recursive", "parallel"])
def test_tfa_monotonic_attention_matches_expected_weights(algorithm):
    scores = torch.randn(1, 4, 6, dtype=torch.double)
    alignment = (
        MonotonicAlignment(bias=0.0, noise=0.0, algorithm=algorithm, inference="expected")
        .double()
        .eval()
    )
    actual = alignment(scores, torch.ones(1, 1, 6, dtype=torch.bool)).weights[0]
    weights_before = torch.eye(6, dtype=torch.double)[0]
    for row, weights in zip(scores[0].sigmoid(), actual, strict=True):
        weights_before = recursive_step(row, weights_before)
        torch.testing.assert_close(weights, weights_before)


def test_tfa_hard_monotonic_attention_matches_inference():
    # Its mode "hard": the first position from the last one on with probability above 1/2, or none.
    scores = torch.randn(20, 4, 6, dtype=torch.double)
    actual = (
        MonotonicAlignment(bias=0.0).eval()(scores, torch.ones(1, 1, 6, dtype=torch.bool)).weights
    )
    for row, weights in zip(scores, actual, strict=True):
        position = 0
        for energies, row_weights in zip(row.tolist(), weights, strict=True):
            stops = [index for index in range(position, 6) if energies[index] > 0]
            position = stops[0] if stops else 6
            assert row_weights.nonzero().flatten().tolist() == stops[:1]
