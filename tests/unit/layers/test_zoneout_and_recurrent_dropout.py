"""Zoneout and recurrent dropout at their limits, on average, and in states."""

import pytest
import torch

from heedful.layers.rnn import unroll_states, unroll_steps
from heedful.layers.rnn_cell_config import RecurrentDropout, Zoneout
from heedful.layers.rnn_cells import GRUCell, LSTMCell, RNNCell
from heedful.pytree import select_rows


def assert_states_close(actual, expected):
    for pair in zip(actual, expected, strict=True):
        torch.testing.assert_close(*pair)


def lstm_step():
    return LSTMCell(3, 4), torch.randn(5, 3), (torch.randn(5, 4), torch.randn(5, 4))


@pytest.mark.parametrize("training", [True, False])
def test_zoneout_rate_zero_is_the_cell(training):
    cell, inputs, state = lstm_step()
    assert_states_close(
        Zoneout(cell, (0.0, 0.0)).train(training)(inputs, state), cell(inputs, state)
    )


@pytest.mark.parametrize("training", [True, False])
def test_zoneout_rate_one_keeps_state(training):
    cell, inputs, state = lstm_step()
    assert_states_close(Zoneout(cell, (1.0, 1.0)).train(training)(inputs, state), state)


def test_zoneout_keeps_values_at_rate_of_each_part():
    cell, inputs, state = lstm_step()
    inputs, state = inputs.repeat(2000, 1), select_rows(state, torch.arange(5).repeat(2000))
    after, rates = cell(inputs, state), (0.05, 0.5)
    actual = Zoneout(cell, rates)(inputs, state)
    for old, new, mixed, rate in zip(state, after, actual, rates, strict=True):
        is_old = mixed == old
        assert torch.equal(mixed, torch.where(is_old, old, new))
        # 40,000 draws: five standard deviations are 0.0125 at most.
        assert abs(is_old.float().mean().item() - rate) < 0.0125


def test_zoneout_in_eval_mode_is_expectation():
    cell, inputs, state = lstm_step()
    zoned = Zoneout(cell, (0.05, 0.5))
    in_eval = zoned.eval()(inputs, state)
    zoned.train()
    rows = torch.arange(5).repeat(20000)
    in_training = zoned(inputs[rows], select_rows(state, rows))
    for expected, part in zip(in_eval, in_training, strict=True):
        mean = part.view(20000, 5, 4).mean(0)
        torch.testing.assert_close(mean, expected, rtol=0, atol=0.03)


def test_recurrent_dropout_mask_is_constant_over_steps():
    cell = RecurrentDropout(LSTMCell(3, 4), 0.5)
    first = cell.initial_state(torch.zeros(6, 4))
    masks = unroll_states(cell, torch.randn(6, 5, 3), first)[-1]
    assert set(first[-1].flatten().tolist()) == {0.0, 2.0}
    assert torch.equal(masks, first[-1][:, None].expand(6, 5, 4))


def test_recurrent_dropout_mask_differs_between_rows_and_sequences():
    cell = RecurrentDropout(GRUCell(3, 8), 0.5)
    one, other = (cell.initial_state(torch.zeros(6, 8))[-1] for _ in range(2))
    assert len(one.unique(dim=0)) > 1
    assert not torch.equal(one, other)


@pytest.mark.parametrize("kind", [RNNCell, LSTMCell])
def test_dropped_units_do_not_enter_products(kind):
    inner = kind(3, 4)
    cell = RecurrentDropout(inner, 0.5)
    inputs, hidden = torch.randn(5, 6, 3), torch.randn(5, 4)
    first = cell.initial_state(hidden)
    state, mask = first[:-1], first[-1]
    for time, actual in enumerate(unroll_steps(cell, inputs, first)):
        state = inner(inputs[:, time], (mask * state[0], *state[1:]))
        assert_states_close(actual, (*state, mask))


def test_recurrent_dropout_does_not_drop_carried_state():
    inner = GRUCell(3, 4)
    with torch.no_grad():
        inner.weights[2][4:8] = 100.0  # z = 1: the state stays as it is
    cell = RecurrentDropout(inner, 0.5)
    hidden = torch.randn(5, 4)
    last = unroll_steps(cell, torch.randn(5, 6, 3), cell.initial_state(hidden))[-1]
    torch.testing.assert_close(last[0], hidden)


def test_recurrent_dropout_is_off_in_eval_mode():
    inner, inputs, state = lstm_step()
    cell = RecurrentDropout(inner, 0.9).eval()
    first = cell.initial_state(state[0])
    assert (first[-1] == 1).all()
    assert_states_close(cell(inputs, first)[:-1], inner(inputs, inner.initial_state(state[0])))


def test_zoneout_and_recurrent_dropout_combine():
    inner = LSTMCell(3, 4)
    cell = RecurrentDropout(Zoneout(inner, (1.0, 0.0)), 0.5)
    inputs, first = torch.randn(5, 3), cell.initial_state(torch.randn(5, 4))
    hidden, cell_state, mask = cell(inputs, first)
    assert torch.equal(hidden, first[0])
    torch.testing.assert_close(cell_state, inner(inputs, (mask * first[0], first[1]))[1])
