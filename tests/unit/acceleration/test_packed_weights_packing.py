"""Packing: a linear map by another layout gives the same, for as long as it stays the same."""

import pytest
import torch
from torch import nn

from heedful.acceleration.packed_weights import (
    MAX_PACKED_ROWS,
    MIN_REPEATS,
    assume_constant_parameters,
    cached_pack,
    can_pack,
    can_use_mkl,
    concat_linears,
    pack,
    packed_linear,
)


@pytest.fixture
def linear():
    return nn.Linear(5, 7).double()


@pytest.mark.parametrize("leading", [(), (1,), (9,), (2, 4), (0,), (MAX_PACKED_ROWS + 1,)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_few_rows_are_mapped_as_the_map_does(leading, bias):
    linear = nn.Linear(5, 7, bias=bias).double()
    inputs = torch.randn(*leading, 5, dtype=torch.double)
    with torch.no_grad(), assume_constant_parameters():
        torch.testing.assert_close(packed_linear(linear, inputs), linear(inputs))


def test_maps_side_by_side_give_what_each_gives():
    maps = [nn.Linear(5, size).double() for size in (2, 3, 4)]
    inputs = torch.randn(6, 5, dtype=torch.double)
    found = concat_linears([pack(each) for each in maps])(inputs)
    torch.testing.assert_close(found, torch.cat([each(inputs) for each in maps], dim=1))


def test_what_is_made_is_made_once_and_forgotten_when_weights_may_change(linear):
    made = []

    def make():
        made.append(0)
        return len(made)

    for _ in range(2):
        with assume_constant_parameters():
            assert cached_pack(linear, make) == cached_pack(linear, make)
            with assume_constant_parameters():  # within another nothing begins anew
                assert cached_pack(linear, make) == len(made)
    assert len(made) == 2


def test_a_fused_optimizer_that_leaves_no_trace_does_no_harm(linear):
    inputs = torch.randn(9, 5, dtype=torch.double)
    optimizer = torch.optim.AdamW(linear.parameters(), fused=True)
    for _ in range(2):
        with torch.no_grad(), assume_constant_parameters():
            torch.testing.assert_close(packed_linear(linear, inputs), linear(inputs))
        linear(inputs).sum().backward()
        optimizer.step()


def test_nothing_is_packed_but_at_rest_without_gradients_and_casts(linear):
    inputs = torch.randn(3, 5)
    with assume_constant_parameters():
        assert not can_pack(inputs)
        with torch.no_grad():
            assert can_pack(inputs)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert not can_pack(inputs)
    with torch.no_grad():
        assert not can_pack(inputs)


def test_what_is_to_be_learned_goes_through_the_map_itself(linear):
    inputs = torch.randn(3, 5, dtype=torch.double)
    with assume_constant_parameters():
        packed_linear(linear, inputs).sum().backward()
    torch.testing.assert_close(linear.weight.grad, inputs.sum(dim=0).expand(7, 5))


def test_biases_are_all_there_or_none():
    with pytest.raises(AssertionError, match="some have none"):
        concat_linears([pack(nn.Linear(2, 2)), pack(nn.Linear(2, 2, bias=False))])


@pytest.mark.parametrize("bias", [True, False])
def test_a_map_can_be_added_to_sums_and_changed(bias):
    linear = nn.Linear(5, 7, bias=bias).double()
    inputs, sums = torch.randn(3, 5).double(), torch.randn(3, 7).double()
    packed = pack(linear)
    torch.testing.assert_close(packed.add_to(sums, inputs), sums + linear(inputs))
    torch.testing.assert_close(packed.transform(lambda each: each / 3)(inputs), linear(inputs) / 3)


@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_a_map_fitted_to_the_rows_that_usually_come_gives_the_same_for_any(bias):
    linear = nn.Linear(48, 32, bias=bias)
    packed, usual, other = pack(linear), torch.randn(16, 48), torch.randn(9, 48)
    if not can_use_mkl(packed.weight, len(usual)):
        pytest.skip("torch has no MKL here")
    for time in range(MIN_REPEATS + 2):
        assert (packed._mkl_layer is None) == (time < MIN_REPEATS)
        torch.testing.assert_close(packed(usual), linear(usual))
    sums = torch.randn(16, 32)
    torch.testing.assert_close(packed.add_to(sums, usual), sums + linear(usual))
    torch.testing.assert_close(packed(other), linear(other))
    assert packed._mkl_layer.num_rows == 16
    for _ in range(MIN_REPEATS):
        torch.testing.assert_close(packed(other), linear(other))
    assert packed._mkl_layer.num_rows == 9


@torch.no_grad()
def test_rows_that_come_and_go_are_not_worth_a_fit():
    packed = pack(nn.Linear(6, 4))
    for _ in range(MIN_REPEATS):
        for count in (10, 11):
            packed(torch.randn(count, 6))
    assert packed._mkl_layer is None


@pytest.mark.parametrize(
    ("weight", "count"),
    [(torch.ones(2, 2).double(), 16), (torch.ones(2, 2), 1), (torch.ones(2, 2), MAX_PACKED_ROWS)],
)
def test_only_some_rows_in_single_precision_are_fitted(weight, count):
    assert not can_use_mkl(weight, count)
