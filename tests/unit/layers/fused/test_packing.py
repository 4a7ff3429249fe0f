"""Packing: a linear map by another layout gives the same, for as long as it stays the same."""

import pytest
import torch
from torch import nn

from heedful.layers.fused.packing import FEW, few_rows, made_of, may_pack, pack, weights_at_rest


@pytest.fixture
def linear():
    return nn.Linear(5, 7).double()


@pytest.mark.parametrize("leading", [(), (1,), (9,), (2, 4), (0,), (FEW + 1,)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_few_rows_are_mapped_as_the_map_does(leading, bias):
    linear = nn.Linear(5, 7, bias=bias).double()
    inputs = torch.randn(*leading, 5, dtype=torch.double)
    with torch.no_grad(), weights_at_rest():
        torch.testing.assert_close(few_rows(linear, inputs), linear(inputs))


def test_maps_side_by_side_give_what_each_gives():
    maps = [nn.Linear(5, size).double() for size in (2, 3, 4)]
    inputs = torch.randn(6, 5, dtype=torch.double)
    found = pack(maps)(inputs)
    torch.testing.assert_close(found, torch.cat([each(inputs) for each in maps], dim=1))


def test_what_is_made_is_made_once_and_forgotten_when_weights_may_change(linear):
    made = []

    def make():
        made.append(0)
        return len(made)

    for _ in range(2):
        with weights_at_rest():
            assert made_of(linear, make) == made_of(linear, make)
            with weights_at_rest():  # within another nothing begins anew
                assert made_of(linear, make) == len(made)
    assert len(made) == 2


def test_a_fused_optimizer_that_leaves_no_trace_does_no_harm(linear):
    inputs = torch.randn(9, 5, dtype=torch.double)
    optimizer = torch.optim.AdamW(linear.parameters(), fused=True)
    for _ in range(2):
        with torch.no_grad(), weights_at_rest():
            torch.testing.assert_close(few_rows(linear, inputs), linear(inputs))
        linear(inputs).sum().backward()
        optimizer.step()


def test_nothing_is_packed_but_at_rest_without_gradients_and_casts(linear):
    inputs = torch.randn(3, 5)
    with weights_at_rest():
        assert not may_pack(inputs)
        with torch.no_grad():
            assert may_pack(inputs)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert not may_pack(inputs)
    with torch.no_grad():
        assert not may_pack(inputs)


def test_what_is_to_be_learned_goes_through_the_map_itself(linear):
    inputs = torch.randn(3, 5, dtype=torch.double)
    with weights_at_rest():
        few_rows(linear, inputs).sum().backward()
    torch.testing.assert_close(linear.weight.grad, inputs.sum(dim=0).expand(7, 5))


def test_biases_are_all_there_or_none():
    with pytest.raises(AssertionError, match="some have none"):
        pack([nn.Linear(2, 2), nn.Linear(2, 2, bias=False)])
