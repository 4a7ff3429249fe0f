"""The entmax package of Peters, Niculae, Martins and Correia: equal values and gradients."""

import pytest
import torch

from heedful.attention.alignments import EntmaxAlignment, SparsemaxAlignment, entmax
from heedful.attention.masks import padding_mask
from tests.conformance.inputs import LENGTHS

reference = pytest.importorskip(
    "entmax", reason="compares with the entmax package: pip install entmax"
)

ALPHAS = [1.1, 1.33, 1.5, 1.75, 2.0, 2.5]


def score_pair(spread=1.0):
    """Return two copies of the same scores."""
    scores = spread * torch.randn(2, 3, 5, dtype=torch.double)
    return scores.clone().requires_grad_(), scores.clone().requires_grad_()


def check_agreement(ours, theirs, our_scores, their_scores):
    """Check that weights and gradients agree."""
    torch.testing.assert_close(ours, theirs)
    grad_outputs = torch.randn_like(ours)
    ours.backward(grad_outputs)
    theirs.backward(grad_outputs)
    torch.testing.assert_close(our_scores.grad, their_scores.grad)


def all_visible(scores):
    return torch.ones_like(scores, dtype=torch.bool)


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_sparsemax_same_as_package(spread):
    our_scores, their_scores = score_pair(spread)
    check_agreement(
        SparsemaxAlignment().normalize(our_scores, all_visible(our_scores)),
        reference.sparsemax(their_scores, dim=-1),
        our_scores,
        their_scores,
    )


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_entmax15_same_as_package(spread):
    our_scores, their_scores = score_pair(spread)
    check_agreement(
        EntmaxAlignment(1.5).normalize(our_scores, all_visible(our_scores)),
        reference.entmax15(their_scores, dim=-1),
        our_scores,
        their_scores,
    )


@pytest.mark.parametrize("alpha", ALPHAS)
def test_entmax_with_any_alpha_same_as_package(alpha):
    our_scores, their_scores = score_pair()
    theirs = reference.entmax_bisect(their_scores, alpha, dim=-1, n_iter=80)
    check_agreement(
        EntmaxAlignment(alpha).normalize(our_scores, all_visible(our_scores)),
        theirs,
        our_scores,
        their_scores,
    )


@pytest.mark.parametrize("alpha", [1.1, 1.33, 1.5, 1.75])
def test_alpha_gradient_same_as_package(alpha):
    our_scores, their_scores = score_pair()
    our_alpha = torch.tensor(alpha, dtype=torch.double, requires_grad=True)
    their_alpha = torch.tensor(alpha, dtype=torch.double, requires_grad=True)
    # Its gradient has one alpha per row; expand sums them.
    theirs = reference.entmax_bisect(their_scores, their_alpha.expand(2, 3, 1), dim=-1, n_iter=80)
    check_agreement(entmax(our_scores, our_alpha), theirs, our_scores, their_scores)
    torch.testing.assert_close(our_alpha.grad, their_alpha.grad)


def test_learned_alpha_gradient_same_as_package():
    our_scores, their_scores = score_pair()
    alignment = EntmaxAlignment(1.3, learned=True).double()
    their_alpha = torch.tensor(1.3, dtype=torch.double, requires_grad=True)
    grad_outputs = torch.randn_like(our_scores)
    alignment.normalize(our_scores, all_visible(our_scores)).backward(grad_outputs)
    reference.entmax_bisect(their_scores, their_alpha.expand(2, 3, 1), dim=-1, n_iter=80).backward(
        grad_outputs
    )
    # alpha = 1 + sigmoid(logit) = 1.3, whose derivative is 0.3 * 0.7
    torch.testing.assert_close(alignment.logit.grad, 0.21 * their_alpha.grad, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(
    "alignment", [SparsemaxAlignment(), EntmaxAlignment(1.5), EntmaxAlignment(1.33)], ids=repr
)
def test_masking_same_as_package_on_shorter_rows(alignment):
    scores, _ = score_pair()
    mask = padding_mask(LENGTHS, 5)
    alpha = getattr(alignment, "alpha", 2.0)
    weights = alignment.normalize(scores, mask)
    for row, length in enumerate(LENGTHS):
        single = reference.entmax_bisect(scores[row, :, :length], alpha, dim=-1, n_iter=80)
        torch.testing.assert_close(weights[row, :, :length], single)
