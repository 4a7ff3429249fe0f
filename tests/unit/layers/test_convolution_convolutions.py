import math

import pytest
import torch
from torch import nn

from heedful.layers.convolution import (
    SQRT_HALF,
    GatedConvLayer,
    WeightNormConv1d,
    scale_gradient,
    scaled_sum,
)
from heedful.layers.initialization import UniformInitConfig
from heedful.storage.state_dict import load_weights, save_weights, unique_weights
from heedful.training.optim import AdamWConfig

SIZES = [(4, 4), (3, 5)]


def layer(input_size=4, size=4, *, kernel_size=3, dropout=0.0):
    return GatedConvLayer(input_size, size, kernel_size=kernel_size, dropout=dropout).double()


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 5])
def test_a_convolution_puts_neighbours_together(kernel_size):
    part = WeightNormConv1d(3, 2, kernel_size=kernel_size).double()
    nn.init.normal_(part.bias)
    inputs = torch.randn(2, 6, 3, dtype=torch.double)
    outputs = part(inputs)
    assert outputs.shape == (2, 7 - kernel_size, 2)
    for place in range(7 - kernel_size):
        window = inputs[:, place : place + kernel_size]  # (B, k, E)
        wanted = torch.einsum("bke,dek->bd", window, part.weight) + part.bias
        torch.testing.assert_close(outputs[:, place], wanted)


def test_a_row_is_as_long_as_its_gain_however_long_its_direction():
    part = WeightNormConv1d(3, 2, kernel_size=2).double()
    with torch.no_grad():
        part.direction.mul_(7)
        part.gain.copy_(torch.tensor([0.5, -3.0]))
    lengths = part.weight.flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([0.5, 3.0], dtype=torch.double))


def test_at_first_the_weights_are_those_that_were_drawn():
    part = WeightNormConv1d(3, 2, kernel_size=2)
    torch.testing.assert_close(part.weight, part.direction)
    assert (part.bias == 0).all()


@pytest.mark.parametrize(("is_gated", "times"), [(False, 1), (True, 4)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_first_weights_have_the_spread_of_the_paper(is_gated, times, dropout):
    part = WeightNormConv1d(40, 500, kernel_size=3, dropout=dropout, is_gated=is_gated)
    wanted = math.sqrt(times * (1 - dropout) / (3 * 40))
    assert part.weight.std().item() == pytest.approx(wanted, rel=0.02)
    assert part.weight.mean().item() == pytest.approx(0, abs=0.02 * wanted)


def test_a_direction_of_no_length_makes_no_weights_and_no_nan():
    part = WeightNormConv1d(3, 2)
    nn.init.zeros_(part.direction)
    part(torch.randn(1, 4, 3)).sum().backward()
    assert (part.weight == 0).all()
    assert all(weight.grad.isfinite().all() for weight in part.parameters())


def test_gains_are_not_decayed():
    part = WeightNormConv1d(3, 2)
    decayed, spared = AdamWConfig(weight_decay=0.1).build(part).param_groups
    assert [weight is part.direction for weight in decayed["params"]] == [True]
    assert {id(each) for each in spared["params"]} == {id(part.gain), id(part.bias)}


def test_normed_weights_are_saved_and_loaded(tmp_path):
    one, other = layer(3, 5), layer(3, 5)
    with torch.no_grad():
        one.convolution.gain.mul_(3)
    save_weights(unique_weights(one), tmp_path / "weights")
    load_weights(other, tmp_path / "weights")
    inputs, mask = torch.randn(1, 4, 3).double(), torch.ones(1, 4, dtype=torch.bool)
    assert torch.equal(
        one.forward_bidirectional(inputs, mask), other.forward_bidirectional(inputs, mask)
    )


def test_ways_of_beginning_leave_normed_weights_as_they_are():
    part = WeightNormConv1d(3, 2)
    before = part.weight.clone()
    UniformInitConfig(bound=0.5).initialize(part)
    assert torch.equal(part.weight, before)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kernel_size", [1, 2, 3])
@pytest.mark.parametrize("pieces", [(6,), (1,) * 6, (4, 1, 1), (2, 4)])
def test_read_back_piece_by_piece_is_read_whole(sizes, kernel_size, pieces):
    part, inputs = (
        layer(*sizes, kernel_size=kernel_size),
        torch.randn(2, 6, sizes[0], dtype=torch.double),
    )
    whole, last = part.forward_causal(inputs, part.initial_state(inputs))
    recent, found = part.initial_state(inputs), []
    for piece in inputs.split(pieces, dim=1):
        made, recent = part.forward_causal(piece, recent)
        found.append(made)
    torch.testing.assert_close(torch.cat(found, dim=1), whole)
    torch.testing.assert_close(recent, last)


def test_read_back_a_place_sees_itself_and_those_before():
    part = layer(kernel_size=3)
    inputs = torch.randn(1, 6, 4, dtype=torch.double, requires_grad=True)
    made, _ = part.forward_causal(inputs, part.initial_state(inputs))
    (gradient,) = torch.autograd.grad(made[0, 4].sum(), inputs)
    assert (gradient[0].abs().sum(dim=-1) > 0).tolist() == [False, False, True, True, True, False]


@pytest.mark.parametrize("sizes", SIZES)
def test_read_both_ways_padding_has_no_influence_in_value_and_gradient(sizes):
    part = layer(*sizes)
    inputs = torch.randn(1, 6, sizes[0], dtype=torch.double, requires_grad=True)
    mask = torch.arange(6)[None] < 4
    wide = part.forward_bidirectional(inputs, mask)[:, :4]
    narrow = part.forward_bidirectional(inputs[:, :4], mask[:, :4])
    torch.testing.assert_close(wide, narrow)
    gradients = [torch.autograd.grad(each.sin().sum(), inputs)[0] for each in (wide, narrow)]
    torch.testing.assert_close(*gradients)
    assert (gradients[0][:, 4:] == 0).all()


def test_what_goes_past_goes_through_a_matrix_where_widths_differ():
    assert isinstance(layer(4, 4).residual_projection, nn.Identity)
    part = layer(3, 5)
    inputs, changed = torch.randn(1, 2, 3).double(), torch.randn(1, 2, 5).double()
    torch.testing.assert_close(
        part.add_residual(inputs, changed),
        (part.residual_projection(inputs) + changed) * math.sqrt(0.5),
    )


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_variance_is_kept_through_many_layers(dropout):
    # From variances as small as those of embeddings, where a gate lets through a half.
    size, inputs = 256, 0.1 * torch.randn(4, 60, 256)
    mask = torch.ones(4, 60, dtype=torch.bool)
    outputs = unscaled = inputs
    with torch.no_grad():
        for _ in range(15):
            part = GatedConvLayer(size, size, kernel_size=3, dropout=dropout)
            outputs = part.forward_bidirectional(outputs, mask)
            unscaled = part.forward_bidirectional(unscaled, mask) / SQRT_HALF
    kept, grown = (each[:, 20:40].var() / inputs.var() for each in (outputs, unscaled))
    assert 0.7 < kept.item() < 1.5
    assert grown.item() > 2**14


def test_a_sum_of_two_unlike_things_keeps_their_variance():
    one, other = torch.randn(2, 100_000)
    assert scaled_sum(one, other).var().item() == pytest.approx(1, rel=0.02)


def test_a_shared_gradient_changes_no_value():
    values = torch.randn(3, 4, requires_grad=True)
    shared = scale_gradient(values, 0.25)
    assert torch.equal(shared, values)
    shared.sin().sum().backward()
    torch.testing.assert_close(values.grad, 0.25 * values.detach().cos())
