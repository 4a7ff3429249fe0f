import math

import pytest
import torch
from torch import nn

from heedful.layers.convolution import GatedConvLayer, WeightNormConv1d, scale_gradient
from heedful.layers.initialization import UniformInitConfig
from heedful.training.optim import AdamWConfig

SIZES = [(4, 4), (3, 5)]


def layer(input_size=4, size=4, *, kernel_size=3, dropout=0.0):
    return GatedConvLayer(input_size, size, kernel_size=kernel_size, dropout=dropout).double()


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 5])
def test_convolution_same_as_explicit_windows(kernel_size):
    module = WeightNormConv1d(3, 2, kernel_size=kernel_size).double()
    nn.init.normal_(module.bias)
    inputs = torch.randn(2, 6, 3, dtype=torch.double)
    outputs = module(inputs)
    assert outputs.shape == (2, 7 - kernel_size, 2)
    for position in range(7 - kernel_size):
        window = inputs[:, position : position + kernel_size]  # (B, k, E)
        expected = torch.einsum("bke,dek->bd", window, module.weight) + module.bias
        torch.testing.assert_close(outputs[:, position], expected)


def test_row_norm_equals_gain():
    module = WeightNormConv1d(3, 2, kernel_size=2).double()
    with torch.no_grad():
        module.direction.mul_(7)
        module.gain.copy_(torch.tensor([0.5, -3.0]))
    lengths = module.weight.flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([0.5, 3.0], dtype=torch.double))


@pytest.mark.parametrize(("is_gated", "times"), [(False, 1), (True, 4)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_initial_weights_have_std_of_paper(is_gated, times, dropout):
    module = WeightNormConv1d(40, 500, kernel_size=3, dropout=dropout, is_gated=is_gated)
    expected = math.sqrt(times * (1 - dropout) / (3 * 40))
    assert module.weight.std().item() == pytest.approx(expected, rel=0.02)
    assert module.weight.mean().item() == pytest.approx(0, abs=0.02 * expected)


def test_zero_direction_returns_zero_weights_and_finite_gradients():
    module = WeightNormConv1d(3, 2)
    nn.init.zeros_(module.direction)
    module(torch.randn(1, 4, 3)).sum().backward()
    assert (module.weight == 0).all()
    assert all(weight.grad.isfinite().all() for weight in module.parameters())


def test_weight_decay_excludes_gains_and_biases():
    module = WeightNormConv1d(3, 2)
    decayed, spared = AdamWConfig(weight_decay=0.1).build(module).param_groups
    assert [weight is module.direction for weight in decayed["params"]] == [True]
    assert {id(each) for each in spared["params"]} == {id(module.gain), id(module.bias)}


def test_initialization_skips_weight_norm_layers():
    module = WeightNormConv1d(3, 2)
    before = module.weight.clone()
    UniformInitConfig(bound=0.5).initialize(module)
    assert torch.equal(module.weight, before)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kernel_size", [1, 2, 3])
@pytest.mark.parametrize("lengths", [(6,), (1,) * 6, (4, 1, 1), (2, 4)])
def test_causal_layer_in_pieces_same_as_whole_sequence(sizes, kernel_size, lengths):
    module, inputs = (
        layer(*sizes, kernel_size=kernel_size),
        torch.randn(2, 6, sizes[0], dtype=torch.double),
    )
    whole, last = module.forward_causal(inputs, module.initial_state(inputs))
    recent, pieces_out = module.initial_state(inputs), []
    for piece in inputs.split(lengths, dim=1):
        outputs, recent = module.forward_causal(piece, recent)
        pieces_out.append(outputs)
    torch.testing.assert_close(torch.cat(pieces_out, dim=1), whole)
    torch.testing.assert_close(recent, last)


def test_causal_layer_depends_on_current_and_earlier_positions():
    module = layer(kernel_size=3)
    inputs = torch.randn(1, 6, 4, dtype=torch.double, requires_grad=True)
    outputs, _ = module.forward_causal(inputs, module.initial_state(inputs))
    (gradient,) = torch.autograd.grad(outputs[0, 4].sum(), inputs)
    assert (gradient[0].abs().sum(dim=-1) > 0).tolist() == [False, False, True, True, True, False]


@pytest.mark.parametrize("sizes", SIZES)
def test_bidirectional_layer_ignores_padding_in_value_and_gradient(sizes):
    module = layer(*sizes)
    inputs = torch.randn(1, 6, sizes[0], dtype=torch.double, requires_grad=True)
    mask = torch.arange(6)[None] < 4
    wide = module.forward_bidirectional(inputs, mask)[:, :4]
    narrow = module.forward_bidirectional(inputs[:, :4], mask[:, :4])
    torch.testing.assert_close(wide, narrow)
    gradients = [torch.autograd.grad(each.sin().sum(), inputs)[0] for each in (wide, narrow)]
    torch.testing.assert_close(*gradients)
    assert (gradients[0][:, 4:] == 0).all()


def test_residual_is_projected_where_sizes_differ():
    assert isinstance(layer(4, 4).residual_projection, nn.Identity)
    module = layer(3, 5)
    inputs, changed = torch.randn(1, 2, 3).double(), torch.randn(1, 2, 5).double()
    torch.testing.assert_close(
        module.add_residual(inputs, changed),
        (module.residual_projection(inputs) + changed) * math.sqrt(0.5),
    )


def test_scale_gradient_changes_gradient_only():
    values = torch.randn(3, 4, requires_grad=True)
    shared = scale_gradient(values, 0.25)
    assert torch.equal(shared, values)
    shared.sin().sum().backward()
    torch.testing.assert_close(values.grad, 0.25 * values.detach().cos())
