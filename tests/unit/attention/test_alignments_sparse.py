"""Sparse alignments: each against the problem it solves, by other algorithms and by hand."""

import itertools

import pytest
import torch

from heedful.attention import EntmaxAlignment, SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.alignments import entmax, entmax15, entmax_bisect, sparsemax


def rows(count=20, places=6, spread=1.0):
    return torch.randn(count, places, dtype=torch.double) * spread


def visible(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def best_on_any_support(scores):
    """The nearest point of the simplex, by trying every support.

    On a support of k places the nearest point of the plane is score - (sum - 1) / k; of those
    that are nowhere negative, the nearest wins.
    """
    candidates = []
    for chosen in itertools.product([False, True], repeat=len(scores)):
        support = torch.tensor(chosen)
        if support.any():
            shift = (scores[support].sum() - 1) / support.sum()
            candidates.append(torch.where(support, scores - shift, 0))
    inside = [point for point in candidates if (point >= 0).all()]
    return min(inside, key=lambda point: (point - scores).square().sum().item())


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_sparsemax_is_the_nearest_point_of_the_simplex(spread):
    scores = rows(spread=spread)
    wanted = torch.stack([best_on_any_support(row) for row in scores])
    torch.testing.assert_close(SparsemaxAlignment().normalize(scores, visible(scores)), wanted)


def test_sparsemax_of_two_scores_is_a_clamped_line():
    distances = torch.linspace(-2, 2, 9)
    scores = torch.stack([distances, torch.zeros(9)], dim=-1)
    wanted = ((distances + 1) / 2).clamp(0, 1)
    weights = SparsemaxAlignment().normalize(scores, visible(scores))
    torch.testing.assert_close(weights, torch.stack([wanted, 1 - wanted], dim=-1))


@pytest.mark.parametrize("alpha", [1.1, 1.5, 1.7, 2.0, 3.0])
def test_entmax_weights_satisfy_the_conditions_of_the_best(alpha):
    # The best of p . z + (sum p - p^alpha) / (alpha (alpha - 1)) has one slope on its support,
    # z - p^(alpha - 1) / (alpha - 1), and no place outside it would do better.
    scores = rows()
    weights = EntmaxAlignment(alpha).normalize(scores, visible(scores))
    slopes = scores - weights ** (alpha - 1) / (alpha - 1)
    level = slopes.masked_fill(weights == 0, -torch.inf).amax(-1, keepdim=True)
    torch.testing.assert_close(slopes[weights > 0], level.expand_as(slopes)[weights > 0])
    assert (slopes <= level + 1e-9).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(scores)).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("spread", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("places", [1, 2, 500])
def test_exact_and_bisected_weights_agree(places, spread, dtype):
    scores = rows(places=places, spread=spread).to(dtype)
    torch.testing.assert_close(entmax15(scores), entmax_bisect(scores, 1.5))
    torch.testing.assert_close(sparsemax(scores), entmax_bisect(scores, 2.0))


def test_entmax_with_alpha_two_is_sparsemax():
    scores = rows()
    mask = torch.rand(scores.shape) < 0.7
    torch.testing.assert_close(
        EntmaxAlignment(2.0).normalize(scores, mask), SparsemaxAlignment().normalize(scores, mask)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_entmax_becomes_softmax_as_alpha_nears_one(dtype):
    scores = rows().to(dtype)
    softmax = SoftmaxAlignment().normalize(scores, visible(scores))
    distances = [
        (EntmaxAlignment(1 + excess).normalize(scores, visible(scores)) - softmax)
        .abs()
        .max()
        .item()
        for excess in (1e-1, 1e-2, 1e-3)
    ]
    assert distances == sorted(distances, reverse=True)
    torch.testing.assert_close(
        EntmaxAlignment(1 + 1e-12).normalize(scores, visible(scores)), softmax
    )


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
def test_weight_ends_exactly_where_the_law_says(alpha):
    reach = 1 / (alpha - 1)
    scores = torch.tensor([[0.0, -reach], [0.0, -reach * 1.01], [0.0, -reach * 0.9]])
    weights = EntmaxAlignment(alpha).normalize(scores, visible(scores))
    assert weights[:2].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert (weights[2] > 0).all()


@pytest.mark.parametrize("alpha", [1.5, 1.8, 2.0])
def test_many_far_places_do_not_blur_the_zeros(alpha):
    scores = torch.full((1, 20_000), -1e4)
    scores[0, 7] = 0
    weights = EntmaxAlignment(alpha).normalize(scores, visible(scores))
    assert weights[0, 7] == 1
    assert weights.count_nonzero() == 1


@pytest.mark.parametrize("alpha", [1.1, 1.5, 2.0, 4.0])
def test_equal_scores_share_equally_however_many_they_are(alpha):
    weights = entmax(torch.zeros(1, 5000), alpha)
    torch.testing.assert_close(weights, torch.full((1, 5000), 1 / 5000))
