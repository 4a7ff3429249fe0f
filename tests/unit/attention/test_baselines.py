"""Baselines of REINFORCE."""

import pytest
import torch

from heedful.attention.hard_alignment import Baseline, LearnedBaseline, MovingAverageBaseline

REAL = torch.tensor([[True, True, True], [True, False, False]])


def test_moving_average_baseline_same_as_recursion():
    """b_1 = .1 (-4), b_2 = .9 b_1 + .1 (-8), means over the real targets by hand."""
    baseline = MovingAverageBaseline(0.9)
    nothing = torch.zeros(2, 3)
    assert baseline(nothing).tolist() == [[0.0] * 3] * 2
    baseline.update(torch.tensor([[-1.0, -2, -3], [-10, 99, 99]]), nothing, REAL)
    assert baseline.running_mean.item() == pytest.approx(-0.4)
    baseline.update(torch.tensor([[-8.0, -8, -8], [-8, 0, 0]]), nothing, REAL)
    assert baseline.running_mean.item() == pytest.approx(0.9 * -0.4 + 0.1 * -8)
    assert baseline(nothing)[1, 2].item() == baseline.running_mean.item()


def test_moving_average_ignores_eval_mode_and_padding():
    baseline = MovingAverageBaseline()
    rewards = torch.full((2, 3), -5.0)
    assert baseline.update(rewards, rewards, torch.zeros_like(REAL)) == {}
    assert baseline.running_mean == 0
    assert baseline.eval().update(rewards, rewards, REAL) == {}
    assert baseline.running_mean == 0


def test_moving_average_is_in_state_dict():
    baseline, other = MovingAverageBaseline(), MovingAverageBaseline()
    baseline.update(torch.full((2, 3), -5.0), torch.zeros(2, 3), REAL)
    other.load_state_dict(baseline.state_dict())
    assert other.running_mean.item() == pytest.approx(-0.5)


def test_learned_baseline_is_linear_and_detached_from_query():
    baseline = LearnedBaseline(4).double()
    queries = torch.randn(2, 3, 4, dtype=torch.double, requires_grad=True)
    expected = baseline(torch.zeros(2, 3, dtype=torch.double), queries)
    weight, bias = baseline.projection.weight[0], baseline.projection.bias[0]
    torch.testing.assert_close(expected, (queries * weight).sum(-1) + bias)
    rewards = torch.randn(2, 3, dtype=torch.double)
    baseline.update(rewards, expected, REAL)["baseline"].backward()
    assert queries.grad is None
    missed = (expected - rewards).detach() * REAL
    torch.testing.assert_close(baseline.projection.bias.grad, missed.sum()[None])


def test_zero_baseline_returns_zeros_and_no_loss():
    rewards = torch.randn(2, 3)
    assert (Baseline()(rewards) == 0).all()
    assert Baseline().update(rewards, rewards, REAL) == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.double], ids=str)
@pytest.mark.parametrize("baseline", [Baseline(), MovingAverageBaseline()], ids=["none", "moving"])
def test_baseline_keeps_dtype(baseline, dtype):
    assert baseline(torch.zeros(2, 3, dtype=dtype)).dtype == dtype
