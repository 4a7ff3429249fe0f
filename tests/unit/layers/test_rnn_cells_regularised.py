"""Zoneout and recurrent dropout: at their limits, on average, and as values that are carried."""

import pytest
import torch

from heedful.layers.rnn import unroll_states, unroll_steps
from heedful.layers.rnn_cells import GRUCell, LSTMCell, RecurrentDropout, RNNCell, Zoneout
from heedful.pytree import select_rows


def close(found, wanted):
    for pair in zip(found, wanted, strict=True):
        torch.testing.assert_close(*pair)


def lstm_step():
    return LSTMCell(3, 4), torch.randn(5, 3), (torch.randn(5, 4), torch.randn(5, 4))


@pytest.mark.parametrize("training", [True, False])
def test_zoneout_of_nothing_is_the_cell(training):
    cell, inputs, state = lstm_step()
    close(Zoneout(cell, (0.0, 0.0)).train(training)(inputs, state), cell(inputs, state))


@pytest.mark.parametrize("training", [True, False])
def test_zoneout_of_everything_keeps_the_state(training):
    cell, inputs, state = lstm_step()
    close(Zoneout(cell, (1.0, 1.0)).train(training)(inputs, state), state)


def test_in_training_each_value_is_the_old_or_the_new_at_the_rate_of_its_part():
    cell, inputs, state = lstm_step()
    inputs, state = inputs.repeat(2000, 1), select_rows(state, torch.arange(5).repeat(2000))
    after, rates = cell(inputs, state), (0.05, 0.5)
    found = Zoneout(cell, rates)(inputs, state)
    for old, new, mixed, rate in zip(state, after, found, rates, strict=True):
        stayed = mixed == old
        assert torch.equal(mixed, torch.where(stayed, old, new))
        # 40,000 draws: five standard deviations are 0.0125 at most.
        assert abs(stayed.float().mean().item() - rate) < 0.0125


def test_when_asked_zoneout_is_its_own_expectation():
    cell, inputs, state = lstm_step()
    zoned = Zoneout(cell, (0.05, 0.5))
    asked = zoned.eval()(inputs, state)
    zoned.train()
    rows = torch.arange(5).repeat(20000)
    drawn = zoned(inputs[rows], select_rows(state, rows))
    for expected, part in zip(asked, drawn, strict=True):
        mean = part.view(20000, 5, 4).mean(0)
        torch.testing.assert_close(mean, expected, rtol=0, atol=0.03)


def test_zoneout_wants_a_rate_for_each_part_of_the_state():
    cell, inputs, state = lstm_step()
    with pytest.raises(ValueError, match="zip"):
        Zoneout(cell, (0.1,))(inputs, state)


# --- recurrent dropout ---------------------------------------------------------------------


def test_the_mask_is_the_same_at_every_step():
    cell = RecurrentDropout(LSTMCell(3, 4), 0.5)
    first = cell.initial_state(torch.zeros(6, 4))
    masks = unroll_states(cell, torch.randn(6, 5, 3), first)[-1]
    assert set(first[-1].flatten().tolist()) == {0.0, 2.0}
    assert torch.equal(masks, first[-1][:, None].expand(6, 5, 4))


def test_the_mask_differs_between_rows_and_between_sequences():
    cell = RecurrentDropout(GRUCell(3, 8), 0.5)
    one, other = (cell.initial_state(torch.zeros(6, 8))[-1] for _ in range(2))
    assert len(one.unique(dim=0)) > 1
    assert not torch.equal(one, other)


def test_the_mask_follows_its_row():
    cell, rows = RecurrentDropout(GRUCell(3, 4), 0.5), torch.tensor([3, 0, 0])
    inputs, first = torch.randn(5, 6, 3), cell.initial_state(torch.randn(5, 4))
    chosen = unroll_steps(cell, inputs[rows], select_rows(first, rows))[-1]
    close(chosen, select_rows(unroll_steps(cell, inputs, first)[-1], rows))


@pytest.mark.parametrize("kind", [RNNCell, LSTMCell])
def test_units_that_are_dropped_have_no_say_in_the_products(kind):
    inner = kind(3, 4)
    cell = RecurrentDropout(inner, 0.5)
    inputs, hidden = torch.randn(5, 6, 3), torch.randn(5, 4)
    first = cell.initial_state(hidden)
    state, mask = first[:-1], first[-1]
    for time, found in enumerate(unroll_steps(cell, inputs, first)):
        state = inner(inputs[:, time], (mask * state[0], *state[1:]))
        close(found, (*state, mask))


def test_what_a_gate_carries_over_is_whole():
    inner = GRUCell(3, 4)
    with torch.no_grad():
        inner.weights[2][4:8] = 100.0  # z = 1: the state stays as it is
    cell = RecurrentDropout(inner, 0.5)
    hidden = torch.randn(5, 4)
    last = unroll_steps(cell, torch.randn(5, 6, 3), cell.initial_state(hidden))[-1]
    torch.testing.assert_close(last[0], hidden)


def test_when_asked_nothing_is_dropped():
    inner, inputs, state = lstm_step()
    cell = RecurrentDropout(inner, 0.9).eval()
    first = cell.initial_state(state[0])
    assert (first[-1] == 1).all()
    close(cell(inputs, first)[:-1], inner(inputs, inner.initial_state(state[0])))


def test_both_may_be_wrapped_round_one_cell():
    inner = LSTMCell(3, 4)
    cell = RecurrentDropout(Zoneout(inner, (1.0, 0.0)), 0.5)
    inputs, first = torch.randn(5, 3), cell.initial_state(torch.randn(5, 4))
    hidden, memory, mask = cell(inputs, first)
    assert torch.equal(hidden, first[0])
    torch.testing.assert_close(memory, inner(inputs, (mask * first[0], first[1]))[1])
