"""Packed linear maps give what the linear maps give."""

import pytest
import torch
from torch import nn

from heedful.acceleration.cpu.packed_linear import (
    PackedLinear,
    activate_inplace,
    can_pack,
    can_use_mkl,
)
from heedful.acceleration.tuning import MAX_PACKED_ROWS, MIN_REPEATS

each_bias = pytest.mark.parametrize("bias", [True, False])


@each_bias
@pytest.mark.parametrize("num_rows", [0, 1, 9, MAX_PACKED_ROWS + 1])
def test_packed_linear_equals_linear(num_rows, bias):
    linear = nn.Linear(5, 7, bias=bias).double()
    inputs = torch.randn(num_rows, 5, dtype=torch.double)
    torch.testing.assert_close(PackedLinear.from_linear(linear)(inputs), linear(inputs))


def test_concatenated_maps_equal_each_map():
    linears = [nn.Linear(5, size).double() for size in (2, 3, 4)]
    inputs = torch.randn(6, 5, dtype=torch.double)
    packed = PackedLinear.concatenate([PackedLinear.from_linear(linear) for linear in linears])
    expected = torch.cat([linear(inputs) for linear in linears], dim=1)
    torch.testing.assert_close(packed(inputs), expected)


def test_concatenating_maps_with_and_without_bias_fails():
    linears = [nn.Linear(2, 2), nn.Linear(2, 2, bias=False)]
    with pytest.raises(AssertionError, match="some have none"):
        PackedLinear.concatenate([PackedLinear.from_linear(linear) for linear in linears])


@each_bias
def test_packed_linear_adds_to_sums_and_maps_outputs(bias):
    linear = nn.Linear(5, 7, bias=bias).double()
    inputs, sums = torch.randn(3, 5).double(), torch.randn(3, 7).double()
    packed = PackedLinear.from_linear(linear)
    torch.testing.assert_close(packed.add_to(sums, inputs), sums + linear(inputs))
    halved = packed.map_outputs(lambda outputs: outputs / 2)
    torch.testing.assert_close(halved(inputs), linear(inputs) / 2)


def test_packing_needs_cpu_without_gradients_and_autocast():
    inputs = torch.randn(3, 5)
    assert not can_pack(inputs)
    with torch.no_grad():
        assert can_pack(inputs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not can_pack(inputs)


@each_bias
@torch.no_grad()
def test_mkl_layout_for_repeated_number_of_rows_returns_the_same_for_any(bias):
    linear = nn.Linear(48, 32, bias=bias)
    packed = PackedLinear.from_linear(linear)
    repeated, other = torch.randn(16, 48), torch.randn(9, 48)
    if not can_use_mkl(packed.weight, len(repeated)):
        pytest.skip("torch has no MKL here")
    for call in range(MIN_REPEATS + 2):
        assert (not packed.mkl_layouts) == (call < MIN_REPEATS)
        torch.testing.assert_close(packed(repeated), linear(repeated))
    sums = torch.randn(16, 32)
    torch.testing.assert_close(packed.add_to(sums, repeated), sums + linear(repeated))
    torch.testing.assert_close(packed(other), linear(other))
    assert [*packed.mkl_layouts] == [16]
    for inputs, kept in ((other, [16, 9]), (other[:5], [9, 5])):
        for _ in range(MIN_REPEATS):
            torch.testing.assert_close(packed(inputs), linear(inputs))
        assert [*packed.mkl_layouts] == kept


@torch.no_grad()
def test_mkl_layout_is_not_made_for_changing_numbers_of_rows():
    packed = PackedLinear.from_linear(nn.Linear(6, 4))
    for num_rows in (10, 11) * MIN_REPEATS:
        packed(torch.randn(num_rows, 6))
    assert not packed.mkl_layouts


@pytest.mark.parametrize(
    ("weight", "num_rows"),
    [(torch.ones(1).double(), 16), (torch.ones(1), 1), (torch.ones(1), MAX_PACKED_ROWS + 1)],
)
def test_mkl_layout_is_for_few_rows_in_float32(weight, num_rows):
    assert not can_use_mkl(weight, num_rows)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.GELU(), nn.SiLU()], ids=str)
@torch.no_grad()
def test_inplace_activation_equals_activation(activation):
    hidden = torch.randn(4, 6)
    expected = activation(hidden.clone())
    assert torch.equal(activate_inplace(activation, hidden), expected)
