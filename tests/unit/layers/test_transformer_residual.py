"""Residual sublayers against their formulas, and what stochastic depth leaves unchanged."""

import math

import pytest
import torch

from heedful.layers.transformer import SublayerConnection, build_norm

EPS = 1e-5


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.double)


def layer_norm(place, gains, biases):
    """(x - mean) / sqrt(variance + eps) * gain + bias  (Ba et al. 2016)."""
    mean = sum(place) / len(place)
    variance = sum((each - mean) ** 2 for each in place) / len(place)
    parts = zip(place, gains, biases, strict=True)
    return [(each - mean) / math.sqrt(variance + EPS) * gain + bias for each, gain, bias in parts]


def rms_norm(place, gains):
    """x / sqrt(mean of squares + eps) * gain  (Zhang & Sennrich 2019)."""
    square = sum(each**2 for each in place) / len(place)
    return [each / math.sqrt(square + EPS) * gain for each, gain in zip(place, gains, strict=True)]


def norm(kind):
    built = build_norm(kind, 4, eps=EPS).double()
    for weight in built.parameters():
        torch.nn.init.normal_(weight)
    return built


def slowly(built, inputs):
    """A norm, place by place."""
    weights = [weight.tolist() for weight in built.parameters()]
    formula = layer_norm if len(weights) == 2 else rms_norm
    places = [formula(place, *weights) for place in inputs.flatten(0, 1).tolist()]
    return torch.tensor(places, dtype=torch.double).view(inputs.shape)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_before_what_is_changed_is_normalised_and_what_goes_past_is_not(kind):
    residual, inputs = (
        SublayerConnection(norm(kind), norm_order="before", dropout=0.0),
        numbers(2, 3, 4),
    )
    entered = residual.sublayer_input(inputs)
    torch.testing.assert_close(entered, slowly(residual.norm, inputs))
    torch.testing.assert_close(residual.add_residual(inputs, entered.sin()), inputs + entered.sin())


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_after_the_sum_is_normalised(kind):
    residual, inputs = (
        SublayerConnection(norm(kind), norm_order="after", dropout=0.0),
        numbers(2, 3, 4),
    )
    assert residual.sublayer_input(inputs) is inputs
    left = residual.add_residual(inputs, inputs.sin())
    torch.testing.assert_close(left, slowly(residual.norm, inputs + inputs.sin()))


def test_dropout_is_on_what_is_added_alone():
    residual = SublayerConnection(torch.nn.Identity(), norm_order="before", dropout=0.5)
    inputs, changed = numbers(2, 30, 4), torch.ones(2, 30, 4, dtype=torch.double)
    added = residual.train().add_residual(inputs, changed) - inputs
    assert set(added.round(decimals=6).flatten().tolist()) == {0.0, 2.0}
    torch.testing.assert_close(residual.eval().add_residual(inputs, changed), inputs + changed)


def test_stochastic_depth_skips_whole_rows_and_keeps_the_mean():
    residual = SublayerConnection(
        torch.nn.Identity(), norm_order="before", dropout=0.0, drop_path=0.3
    )
    inputs, changed = torch.zeros(40_000, 2, 3), torch.randn(1, 2, 3)
    left = residual.train().add_residual(inputs, changed.expand(40_000, 2, 3))
    whole = changed / 0.7
    is_kept = (left == whole).all(dim=(1, 2))
    assert (left[~is_kept] == 0).all()
    # Four standard deviations of the mean of so many draws.
    assert is_kept.float().mean().item() == pytest.approx(0.7, abs=4 * math.sqrt(0.21 / 40_000))
    torch.testing.assert_close(left.mean(dim=0, keepdim=True), changed, rtol=0.02, atol=0)


def test_what_is_skipped_gets_no_gradient():
    residual = SublayerConnection(
        torch.nn.Identity(), norm_order="before", dropout=0.0, drop_path=0.5
    )
    inputs, changed = torch.zeros(20, 2, 3), torch.ones(20, 2, 3, requires_grad=True)
    left = residual.train().add_residual(inputs, changed)
    left.sum().backward()
    assert torch.equal(changed.grad, left)  # twice or not at all, like the rows themselves
    assert 0 < left.count_nonzero() < left.numel()


def test_in_use_nothing_is_skipped():
    residual = SublayerConnection(
        norm("layer"), norm_order="after", dropout=0.5, drop_path=0.9
    ).eval()
    inputs = numbers(8, 3, 4)
    torch.testing.assert_close(
        residual.add_residual(inputs, inputs), residual.norm(inputs + inputs)
    )


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_half_precision_stays_half(dtype):
    residual = SublayerConnection(
        norm("rms").to(dtype), norm_order="after", dropout=0.1, drop_path=0.2
    ).train()
    inputs = torch.randn(8, 3, 4).to(dtype)
    left = residual.add_residual(inputs, residual.sublayer_input(inputs))
    assert left.dtype == dtype
    assert left.isfinite().all()
