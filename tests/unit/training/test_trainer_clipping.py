import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed, nn

from heedful.training.trainer import GradientClipper

bounds = st.none() | st.floats(0.1, 10)


def weights_with(*gradients):
    weights = [nn.Parameter(torch.zeros(len(gradient))) for gradient in gradients]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = torch.tensor(gradient)
    return weights


def gradients_of(weights):
    return torch.cat([weight.grad for weight in weights])


numbers = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=5)


@settings(max_examples=25)
@given(gradients=st.lists(numbers, min_size=1, max_size=3), max_norm=bounds, max_value=bounds)
def test_clipped_gradient_is_within_both_limits(gradients, max_norm, max_value):
    weights = weights_with(*gradients)
    before = gradients_of(weights).clone()
    norm = GradientClipper(max_norm, max_value)(weights)
    after = gradients_of(weights)
    torch.testing.assert_close(norm, before.norm())
    assert after.norm() <= (max_norm or math.inf) * (1 + 1e-5)
    assert after.abs().max() <= (max_value or math.inf) * (1 + 1e-5)
    is_self_attention = before.norm() < (max_norm or math.inf) * 0.999
    if is_self_attention and before.abs().max() <= (max_value or math.inf):
        assert torch.equal(after, before)


def test_values_clipped_before_the_norm():
    weights = weights_with([30.0, 4.0])
    assert GradientClipper(max_norm=2.5, max_value=3.0)(weights) == pytest.approx(math.hypot(30, 4))
    wanted = torch.tensor([3.0, 3.0]) * 2.5 / math.hypot(3, 3)
    torch.testing.assert_close(gradients_of(weights), wanted)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nonfinite_gradient_is_unchanged(bad):
    weights = weights_with([100.0, 1.0], [bad])
    assert not GradientClipper(max_norm=1.0, max_value=2.0)(weights).isfinite()
    assert torch.equal(weights[0].grad, torch.tensor([100.0, 1.0]))
    assert not weights[1].grad.isfinite().any()


def test_parameters_without_gradient_ignored():
    weights = [nn.Parameter(torch.zeros(2)), *weights_with([3.0, 4.0])]
    assert GradientClipper(max_norm=1.0)(weights) == 5
    assert weights[0].grad is None
    assert GradientClipper(max_norm=1.0, max_value=1.0)(weights[:1]) == 0


@pytest.fixture
def mesh(tmp_path):
    from torch.distributed.device_mesh import init_device_mesh

    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    yield init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


@pytest.mark.slow
def test_sharded_gradient_is_clipped_as_a_whole_one(mesh):
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    whole, sharded = weights_with([30.0, 4.0, 1.0]), weights_with([0.0, 0.0, 0.0])
    sharded[0] = nn.Parameter(distribute_tensor(torch.zeros(3), mesh, [Shard(0)]))
    sharded[0].grad = distribute_tensor(whole[0].grad.clone(), mesh, [Shard(0)])
    clip = GradientClipper(max_norm=2.5, max_value=3.0)
    wanted, found = clip(whole), clip(sharded)
    assert not isinstance(found, DTensor)
    assert torch.equal(wanted, found)
    assert torch.equal(whole[0].grad, sharded[0].grad.full_tensor())
