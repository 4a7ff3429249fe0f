"""Sparsemax and entmax against the optimization problem they solve, and their gradients."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from heedful.attention.alignments import (
    EntmaxAlignment,
    SoftmaxAlignment,
    SparsemaxAlignment,
    entmax,
    entmax15,
    entmax_bisect,
    sparsemax,
)


def random_scores(count=20, positions=6, spread=1.0):
    return torch.randn(count, positions, dtype=torch.double) * spread


def visible(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def project_by_enumeration(scores):
    """Return the projection onto the simplex, by trying every support.

    On a support of k positions the projection onto the plane is score - (sum - 1) / k; the nearest
    nonnegative one is the result.
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
def test_sparsemax_is_projection_onto_simplex(spread):
    scores = random_scores(spread=spread)
    expected = torch.stack([project_by_enumeration(row) for row in scores])
    torch.testing.assert_close(SparsemaxAlignment().normalize(scores, visible(scores)), expected)


@pytest.mark.parametrize("alpha", [1.1, 1.5, 1.7, 2.0, 3.0])
def test_entmax_satisfies_optimality_conditions(alpha):
    # The maximum of p . z + (sum p - p^alpha) / (alpha (alpha - 1)) has equal derivatives
    # z - p^(alpha - 1) / (alpha - 1) on its support, and lower ones outside.
    scores = random_scores()
    weights = EntmaxAlignment(alpha).normalize(scores, visible(scores))
    gradients = scores - weights ** (alpha - 1) / (alpha - 1)
    level = gradients.masked_fill(weights == 0, -torch.inf).amax(-1, keepdim=True)
    torch.testing.assert_close(gradients[weights > 0], level.expand_as(gradients)[weights > 0])
    assert (gradients <= level + 1e-9).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(scores)).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("spread", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("positions", [1, 2, 500])
def test_exact_entmax_same_as_bisection(positions, spread, dtype):
    scores = random_scores(positions=positions, spread=spread).to(dtype)
    torch.testing.assert_close(entmax15(scores), entmax_bisect(scores, 1.5))
    torch.testing.assert_close(sparsemax(scores), entmax_bisect(scores, 2.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_entmax_tends_to_softmax_as_alpha_tends_to_one(dtype):
    scores = random_scores().to(dtype)
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
def test_entmax_weight_is_zero_from_threshold_on(alpha):
    max_distance = 1 / (alpha - 1)
    scores = torch.tensor(
        [[0.0, -max_distance], [0.0, -max_distance * 1.01], [0.0, -max_distance * 0.9]]
    )
    weights = EntmaxAlignment(alpha).normalize(scores, visible(scores))
    assert weights[:2].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert (weights[2] > 0).all()


@pytest.mark.parametrize("alpha", [1.5, 1.8, 2.0])
def test_entmax_zeros_are_exact_for_long_rows(alpha):
    scores = torch.full((1, 20_000), -1e4)
    scores[0, 7] = 0
    weights = EntmaxAlignment(alpha).normalize(scores, visible(scores))
    assert weights[0, 7] == 1
    assert weights.count_nonzero() == 1


@pytest.mark.parametrize("alpha", [1.1, 1.5, 2.0, 4.0])
def test_entmax_of_equal_scores_is_uniform(alpha):
    weights = entmax(torch.zeros(1, 5000), alpha)
    torch.testing.assert_close(weights, torch.full((1, 5000), 1 / 5000))


def leaf_scores(*shape):
    return torch.randn(*shape, dtype=torch.double, requires_grad=True)


@pytest.mark.parametrize("alpha", [1.05, 1.3, 1.5, 1.9, 2.0, 2.5])
def test_entmax_gradients_match_finite_differences(alpha):
    learned = torch.tensor(alpha, dtype=torch.double, requires_grad=True)
    assert gradcheck(entmax, (leaf_scores(3, 5), learned))
    assert gradgradcheck(entmax, (leaf_scores(2, 4), learned))


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
def test_scores_with_zero_weight_get_no_gradient(alpha):
    row = torch.tensor([[0.0, -0.1, -50.0, -60.0]], requires_grad=True)
    entmax(row, alpha).square().sum().backward()
    assert (row.grad[0, :2] != 0).all()
    assert (row.grad[0, 2:] == 0).all()


def test_masked_rows_return_alpha_no_gradient():
    alignment = EntmaxAlignment(1.5, learned=True)
    alignment.normalize(
        torch.randn(1, 2, 3), torch.zeros(1, 2, 3, dtype=torch.bool)
    ).sum().backward()
    assert alignment.logit.grad == 0
