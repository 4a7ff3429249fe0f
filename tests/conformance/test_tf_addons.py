"""TensorFlow Addons: its Bahdanau, Luong and monotonic attention beside ours.

What it computes is written out here, for its TensorFlow wants an older numpy than heedful (0.23.0:
below 2).
"""

import pytest
import torch

from heedful.attention import AdditiveScore, BilinearScore
from heedful.attention.monotonic_alignment import MonotonicAlignment
from tests.conformance.asking import attend, sentences

WIDTH, HIDDEN = 4, 3


def under_a_softmax(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


def test_bahdanau_attention_is_the_additive_score():
    queries, values, mask = sentences()
    score = AdditiveScore(WIDTH, WIDTH, hidden_size=HIDDEN).double()
    asked = queries @ score.query_projection.weight.T
    held = values @ score.key_projection.weight.T
    scores = (asked[:, :, None] + held[:, None]).tanh() @ score.score_vector.weight[0]
    found = attend(score, queries, values, mask)
    torch.testing.assert_close(found.weights, under_a_softmax(scores, mask))


def test_its_normed_form_is_the_additive_score_with_a_bias_and_another_v():
    # g v / |v| . tanh(W q + U k + b): a way to learn v, and not another score.
    queries, values, mask = sentences()
    length, vector = 1.7, torch.randn(HIDDEN, dtype=torch.double)
    score = AdditiveScore(WIDTH, WIDTH, hidden_size=HIDDEN, bias=True).double()
    with torch.no_grad():
        score.score_vector.weight.copy_(length * vector / vector.norm())
    hidden = queries @ score.query_projection.weight.T + score.key_projection.bias
    held = values @ score.key_projection.weight.T
    normed = length * vector * vector.square().sum().rsqrt()
    scores = (hidden[:, :, None] + held[:, None]).tanh() @ normed
    found = attend(score, queries, values, mask)
    torch.testing.assert_close(found.weights, under_a_softmax(scores, mask))


def test_luong_attention_is_the_bilinear_score():
    # Its memory layer cannot be left out: there is "general" alone, and no "dot".
    queries, values, mask = sentences()
    score = BilinearScore(WIDTH, WIDTH).double()
    scores = queries @ (values @ score.projection.weight.T).mT
    found = attend(score, queries, values, mask)
    torch.testing.assert_close(found.weights, under_a_softmax(scores, mask))


def recursive(chances, before):
    """One step of its mode "recursive": what arrives at a place either stops or goes on."""
    weights, arriving = [], 0.0
    for chance, came in zip(chances.tolist(), before.tolist(), strict=True):
        arriving = arriving + came
        weights.append(chance * arriving)
        arriving = (1 - chance) * arriving
    return torch.tensor(weights, dtype=torch.double)


@pytest.mark.parametrize("form", ["recursive", "parallel"])
def test_monotonic_attention_is_ours_in_expectation(form):
    scores = torch.randn(1, 4, 6, dtype=torch.double)
    align = (
        MonotonicAlignment(bias=0.0, noise=0.0, algorithm=form, inference="expected")
        .double()
        .eval()
    )
    found = align(scores, torch.ones(1, 1, 6, dtype=torch.bool)).weights[0]
    before = torch.eye(6, dtype=torch.double)[0]
    for row, weights in zip(scores[0].sigmoid(), found, strict=True):
        before = recursive(row, before)
        torch.testing.assert_close(weights, before)


def test_hard_monotonic_attention_is_ours_in_use():
    # Its mode "hard": the first place from the last one on whose chance rounds to one, or none.
    scores = torch.randn(20, 4, 6, dtype=torch.double)
    found = (
        MonotonicAlignment(bias=0.0).eval()(scores, torch.ones(1, 1, 6, dtype=torch.bool)).weights
    )
    for row, weights in zip(scores, found, strict=True):
        place = 0
        for energies, stopped in zip(row.tolist(), weights, strict=True):
            stops = [at for at in range(place, 6) if energies[at] > 0]
            place = stops[0] if stops else 6
            assert stopped.nonzero().flatten().tolist() == stops[:1]
