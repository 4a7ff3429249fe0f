"""The gradients of sparse alignments: to the scores, to alpha, and where there is none."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from heedful.attention import EntmaxAlignment
from heedful.attention.alignments import entmax, sparsemax


def scores(*shape):
    return torch.randn(*shape, dtype=torch.double, requires_grad=True)


@pytest.mark.parametrize("alpha", [1.05, 1.3, 1.5, 1.9, 2.0, 2.5])
def test_entmax_has_the_gradients_of_finite_differences_to_scores_and_alpha(alpha):
    learned = torch.tensor(alpha, dtype=torch.double, requires_grad=True)
    assert gradcheck(entmax, (scores(3, 5), learned))
    assert gradgradcheck(entmax, (scores(3, 5), learned))


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_exact_and_bisected_gradients_agree(alpha):
    one = scores(4, 6)
    other = one.detach().clone().requires_grad_()
    pull = torch.randn(4, 6).double()
    (entmax(one, alpha) * pull).sum().backward()
    (entmax(other, torch.tensor(alpha).double()) * pull).sum().backward()
    torch.testing.assert_close(one.grad, other.grad)


def test_sparsemax_has_the_gradient_that_autograd_finds_in_its_algorithm():
    one = scores(4, 6)
    other = one.detach().clone().requires_grad_()
    entmax(one, 2.0).square().sum().backward()
    sparsemax(other).square().sum().backward()
    torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
def test_places_without_weight_get_no_gradient(alpha):
    row = torch.tensor([[0.0, -0.1, -50.0, -60.0]], requires_grad=True)
    entmax(row, alpha).square().sum().backward()
    assert (row.grad[0, :2] != 0).all()
    assert (row.grad[0, 2:] == 0).all()


def test_alpha_is_learned_between_one_and_two():
    align = EntmaxAlignment(1.5, learned=True)
    row = torch.tensor([[0.0, 0.4, 0.5]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    wanted = EntmaxAlignment(1.9).normalize(row, mask)
    optimizer = torch.optim.Adam(align.parameters(), lr=0.3)
    for _ in range(100):
        optimizer.zero_grad()
        (align.normalize(row, mask) - wanted).square().sum().backward()
        optimizer.step()
    assert align.alpha.item() == pytest.approx(1.9, abs=0.01)


def test_hidden_rows_do_not_teach_alpha():
    align = EntmaxAlignment(1.5, learned=True)
    align.normalize(torch.randn(1, 2, 3), torch.zeros(1, 2, 3, dtype=torch.bool)).sum().backward()
    assert align.logit.grad == 0
