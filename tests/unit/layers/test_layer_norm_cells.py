"""Layer-norm cells match the equations of Ba et al. 2016."""

import pytest
import torch

from heedful.layers.rnn import unroll_states
from heedful.layers.rnn_cells import (
    LayerNormLSTMCell,
    LayerNormRNNCell,
    ResetAfterGRUCell,
    ResetBeforeGRUCell,
    layer_norm_linear,
)


def with_random_parameters(cell):
    """Randomize all parameters, so that a missing gain or bias would show."""
    with torch.no_grad():
        for weight in cell.parameters():
            weight.add_(torch.randn_like(weight))
    return cell


def LN(a, norm):
    centered = a - a.sum() / len(a)
    variance = (centered**2).sum() / len(a)
    return norm.weight * centered / (variance + norm.eps).sqrt() + norm.bias


def product(module, vector):
    linear, norm = module
    return LN(linear.weight @ vector, norm)


def simple(cell, x, state):
    a = cell.input_to_hidden.weight @ x + cell.hidden_to_hidden.weight @ state[0]
    return (LN(a, cell.norm).tanh(),)


def lstm(cell, x, state):
    h, c = state
    i, f, g, o = (product(cell.input_to_hidden, x) + product(cell.hidden_to_hidden, h)).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * LN(c, cell.norm).tanh(), c


def gru_gates(cell, x, h):
    return (product(cell.input_to_gates, x) + product(cell.hidden_to_gates, h)).sigmoid().chunk(2)


def gru_update(cell, x, state):
    h = state[0]
    r, keep = gru_gates(cell, x, h)
    n = product(cell.input_to_candidate, x) + r * product(cell.hidden_to_candidate, h)
    return ((1 - keep) * n.tanh() + keep * h,)


def reset_before(cell, x, state):
    h = state[0]
    r, z = gru_gates(cell, x, h)
    n = product(cell.input_to_candidate, x) + product(cell.hidden_to_candidate, r * h)
    return ((1 - z) * h + z * n.tanh(),)


@pytest.mark.parametrize(
    ("make", "paper"),
    [
        (lambda: LayerNormRNNCell(4, 6), simple),
        (lambda: LayerNormLSTMCell(4, 6), lstm),
        (lambda: ResetAfterGRUCell(4, 6, make_linear=layer_norm_linear), gru_update),
        (lambda: ResetBeforeGRUCell(4, 6, make_linear=layer_norm_linear), reset_before),
    ],
    ids=["rnn", "lstm", "gru, reset after", "gru, reset before"],
)
def test_layer_norm_cell_same_as_equations_of_paper(make, paper):
    cell, inputs = with_random_parameters(make()), torch.randn(3, 5, 4)
    first = cell.initial_state(torch.randn(3, 6))
    actual = unroll_states(cell, inputs, first)
    for row in range(3):
        state = tuple(part[row] for part in first)
        for time in range(5):
            state = paper(cell, inputs[row, time], state)
            for part, expected in zip(actual, state, strict=True):
                torch.testing.assert_close(part[row, time], expected)
