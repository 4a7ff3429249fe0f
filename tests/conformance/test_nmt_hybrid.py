"""Luong: the paper, and its authors' code (lmthang/nmt.hybrid).

What the code computes is written out here.
"""

import math

import torch

from heedful.attention import ConcatScore, SoftmaxAlignment
from heedful.attention.local_alignment import LocalAlignment, PredictiveCenter
from tests.conformance.asking import column, row, sentences

WIDTH, PLACES = 4, 4
# Places 0 to 3 round a centre at 2, with sigma = reach / 2 = 1: exp(-(s - 2)^2 / 2).
TAPER = [math.exp(-2), math.exp(-0.5), 1.0, math.exp(-0.5)]


def authors_concat(queries, keys, matrix, vector):
    """v . tanh(k + W q): no matrix for the keys."""
    turned = queries @ matrix.T
    return (turned[:, :, None] + keys[:, None]).tanh() @ vector


def test_concat_has_a_matrix_for_the_keys_too():
    # W = (1 | 2), v = 3, q = 1, k = 0.5: 3 tanh(1 + 2 * 0.5) in the paper, 3 tanh(1 + 0.5) here.
    score = ConcatScore(1, 1, hidden_size=1).double()
    score.load_state_dict({"projection.weight": row(1, 2), "reduction.weight": row(3)})
    queries, keys = column(1.0), column(0.5)
    found = score(queries, score.prepare_keys(keys)).item()
    assert math.isclose(found, 3 * math.tanh(2))
    code = authors_concat(queries, keys, row(1), row(3)[0]).item()
    assert math.isclose(code, 3 * math.tanh(1.5))


def test_concat_is_the_codes_where_the_matrix_of_the_keys_is_one():
    queries, keys, _ = sentences()
    score = ConcatScore(WIDTH, WIDTH, hidden_size=WIDTH).double()
    matrix, vector = torch.randn(WIDTH, WIDTH).double(), torch.randn(WIDTH).double()
    one = torch.eye(WIDTH).double()
    score.load_state_dict(
        {"projection.weight": torch.cat([matrix, one], dim=1), "reduction.weight": vector[None]}
    )
    code = authors_concat(queries, keys, matrix, vector)
    torch.testing.assert_close(score(queries, score.prepare_keys(keys)), code)


def local(scores, gaussian):
    """Weights round the middle of four places, with a reach of two."""
    center = PredictiveCenter(1, hidden_size=1)
    torch.nn.init.zeros_(center.reduction.weight)  # 4 sigmoid(0) = 2
    align = LocalAlignment(SoftmaxAlignment(), center, half_width=2, gaussian=gaussian)
    mask = torch.ones(1, 1, PLACES, dtype=torch.bool)
    aligned = align(row(*scores)[None], mask, torch.zeros(1, 1, 1))
    assert aligned.centers.item() == 2
    return aligned.weights[0]


def normalised_by_the_code(scores):
    """`normLocalAttn`: softmax(score * taper)."""
    return (row(*scores) * row(*TAPER)).softmax(dim=-1)


def test_the_taper_multiplies_weights_and_is_not_shared_out_again():
    # Equal scores: a quarter each, times the taper, and no more.
    torch.testing.assert_close(local([0.0] * PLACES, "after"), row(*TAPER) / 4)


def test_the_codes_newer_form_does_not_taper_equal_scores_near_zero():
    zeros = [0.0] * PLACES
    torch.testing.assert_close(normalised_by_the_code(zeros), row(*[0.25] * PLACES))
    assert (local(zeros, "after")[0] - 0.25).abs().max() > 0.1


def test_the_codes_newer_form_prefers_far_places_where_scores_are_negative():
    scores = [-4.0] * PLACES
    code = normalised_by_the_code(scores)
    assert code.argmax().item() == 0  # the farthest
    assert code.argmin().item() == 2  # the centre
    for gaussian in ("before", "after"):
        weights = local(scores, gaussian)
        assert weights.argmax().item() == 2
        assert weights.argmin().item() == 0


def test_a_taper_before_the_softmax_is_the_papers_shared_out_again():
    scores = [0.3, -1.0, 0.2, 2.0]
    after = local(scores, "after")
    torch.testing.assert_close(local(scores, "before"), after / after.sum())
    shared = row(*scores).softmax(dim=-1) * row(*TAPER)
    torch.testing.assert_close(after, shared)


def test_a_centre_learns_through_the_taper_alone():
    center = PredictiveCenter(1, hidden_size=1)
    queries, scores = torch.ones(1, 1, 1), torch.randn(1, 1, PLACES)
    mask = torch.ones(1, 1, PLACES, dtype=torch.bool)
    for gaussian, learns in (("none", False), ("after", True), ("before", True)):
        aligned = LocalAlignment(SoftmaxAlignment(), center, half_width=1, gaussian=gaussian)(
            scores, mask, queries
        )
        assert aligned.weights.requires_grad is learns
