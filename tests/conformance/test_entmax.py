"""The entmax package of Peters, Niculae, Martins and Correia: values and gradients beside ours."""

import pytest
import torch

from heedful.attention import EntmaxAlignment, SparsemaxAlignment, padding_mask
from heedful.attention.alignments import entmax
from tests.conformance.asking import LENGTHS

peer = pytest.importorskip("entmax", reason="compares with the entmax package: pip install entmax")

ALPHAS = [1.1, 1.33, 1.5, 1.75, 2.0, 2.5]


def both(spread=1.0):
    """The same scores twice, to be differentiated twice."""
    scores = spread * torch.randn(2, 3, 5, dtype=torch.double)
    return scores.clone().requires_grad_(), scores.clone().requires_grad_()


def agree(ours, theirs, mine, its):
    """Hold weights and the gradients of some function of them against each other."""
    torch.testing.assert_close(ours, theirs)
    slopes = torch.randn_like(ours)
    ours.backward(slopes)
    theirs.backward(slopes)
    torch.testing.assert_close(mine.grad, its.grad)


def everywhere(scores):
    return torch.ones_like(scores, dtype=torch.bool)


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_sparsemax_is_the_packages(spread):
    mine, its = both(spread)
    agree(
        SparsemaxAlignment().normalize(mine, everywhere(mine)),
        peer.sparsemax(its, dim=-1),
        mine,
        its,
    )


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_entmax_with_alpha_one_and_a_half_is_the_packages(spread):
    mine, its = both(spread)
    agree(
        EntmaxAlignment(1.5).normalize(mine, everywhere(mine)),
        peer.entmax15(its, dim=-1),
        mine,
        its,
    )


@pytest.mark.parametrize("alpha", ALPHAS)
def test_entmax_with_any_alpha_is_the_packages(alpha):
    mine, its = both()
    theirs = peer.entmax_bisect(its, alpha, dim=-1, n_iter=80)
    agree(EntmaxAlignment(alpha).normalize(mine, everywhere(mine)), theirs, mine, its)


@pytest.mark.parametrize("alpha", [1.1, 1.33, 1.5, 1.75])
def test_alpha_learns_as_the_packages_does(alpha):
    mine, its = both()
    my_alpha = torch.tensor(alpha, dtype=torch.double, requires_grad=True)
    its_alpha = torch.tensor(alpha, dtype=torch.double, requires_grad=True)
    # Its own gradient has one alpha for each row; expanding one adds them up.
    theirs = peer.entmax_bisect(its, its_alpha.expand(2, 3, 1), dim=-1, n_iter=80)
    agree(entmax(mine, my_alpha), theirs, mine, its)
    torch.testing.assert_close(my_alpha.grad, its_alpha.grad)


def test_a_learned_alpha_moves_by_the_packages_gradient():
    mine, its = both()
    align = EntmaxAlignment(1.3, learned=True).double()
    its_alpha = torch.tensor(1.3, dtype=torch.double, requires_grad=True)
    slopes = torch.randn_like(mine)
    align.normalize(mine, everywhere(mine)).backward(slopes)
    peer.entmax_bisect(its, its_alpha.expand(2, 3, 1), dim=-1, n_iter=80).backward(slopes)
    # alpha = 1 + sigmoid(logit) = 1.3, whose slope is 0.3 * 0.7
    torch.testing.assert_close(align.logit.grad, 0.21 * its_alpha.grad, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(
    "align", [SparsemaxAlignment(), EntmaxAlignment(1.5), EntmaxAlignment(1.33)], ids=repr
)
def test_hiding_places_is_leaving_them_out_of_the_packages(align):
    scores, _ = both()
    mask = padding_mask(LENGTHS, 5)
    alpha = getattr(align, "alpha", 2.0)
    weights = align.normalize(scores, mask)
    for row, length in enumerate(LENGTHS):
        alone = peer.entmax_bisect(scores[row, :, :length], alpha, dim=-1, n_iter=80)
        torch.testing.assert_close(weights[row, :, :length], alone)
