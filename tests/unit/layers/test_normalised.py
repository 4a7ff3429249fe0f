"""Normalised cells against slow loops from Ba et al. 2016."""

import pytest
import torch

from heedful.layers.gated import ResetAfterGruCell, ResetBeforeGruCell
from heedful.layers.normalised import NormalisedLstmCell, NormalisedSimpleCell, normalised
from heedful.layers.sequences import states_along


def scattered(cell):
    """Give gains and biases values that would show if one of them were left out."""
    with torch.no_grad():
        for weight in cell.parameters():
            weight.add_(torch.randn_like(weight))
    return cell


def LN(a, norm):
    centred = a - a.sum() / len(a)
    variance = (centred**2).sum() / len(a)
    return norm.weight * centred / (variance + norm.eps).sqrt() + norm.bias


def product(module, vector):
    linear, norm = module
    return LN(linear.weight @ vector, norm)


def simple(cell, x, state):
    a = cell.of_input.weight @ x + cell.of_hidden.weight @ state[0]
    return (LN(a, cell.norm).tanh(),)


def lstm(cell, x, state):
    h, c = state
    i, f, g, o = (product(cell.of_input, x) + product(cell.of_hidden, h)).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * LN(c, cell.norm).tanh(), c


def gru_gates(cell, x, h):
    return (product(cell.gates_of_input, x) + product(cell.gates_of_hidden, h)).sigmoid().chunk(2)


def reset_after(cell, x, state):
    h = state[0]
    r, keep = gru_gates(cell, x, h)
    n = product(cell.candidate_of_input, x) + r * product(cell.candidate_of_hidden, h)
    return ((1 - keep) * n.tanh() + keep * h,)


def reset_before(cell, x, state):
    h = state[0]
    r, z = gru_gates(cell, x, h)
    n = product(cell.candidate_of_input, x) + product(cell.candidate_of_hidden, r * h)
    return ((1 - z) * h + z * n.tanh(),)


@pytest.mark.parametrize(
    ("make", "paper"),
    [
        (lambda: NormalisedSimpleCell(4, 6), simple),
        (lambda: NormalisedLstmCell(4, 6), lstm),
        (lambda: ResetAfterGruCell(4, 6, product=normalised), reset_after),
        (lambda: ResetBeforeGruCell(4, 6, product=normalised), reset_before),
    ],
    ids=["rnn", "lstm", "gru, reset after", "gru, reset before"],
)
def test_a_normalised_cell_is_the_loop_of_the_paper(make, paper):
    cell, inputs = scattered(make()), torch.randn(3, 5, 4)
    first = cell.begin(torch.randn(3, 6))
    found = states_along(cell, inputs, first)
    for row in range(3):
        state = tuple(part[row] for part in first)
        for time in range(5):
            state = paper(cell, inputs[row, time], state)
            for part, wanted in zip(found, state, strict=True):
                torch.testing.assert_close(part[row, time], wanted)


def test_a_normalised_product_does_not_depend_on_the_scale_of_its_matrix():
    module, inputs = normalised(4, 6), torch.randn(3, 4)
    before = module(inputs)
    with torch.no_grad():
        module[0].weight.mul_(3)
    torch.testing.assert_close(module(inputs), before, rtol=1e-3, atol=1e-4)  # up to eps
