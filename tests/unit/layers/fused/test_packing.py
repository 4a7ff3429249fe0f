"""Packing: a linear map by another layout gives the same, and notices when it has changed."""

import gc

import pytest
import torch
from torch import nn

from heedful.layers.fused.packing import _KNOWN, FEW, few_rows, made_of, pack


@pytest.fixture
def linear():
    return nn.Linear(5, 7).double()


@pytest.mark.parametrize("leading", [(), (1,), (3,), (2, 4), (0,), (FEW + 1,)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_few_rows_are_mapped_as_the_map_does(leading, bias):
    linear = nn.Linear(5, 7, bias=bias).double()
    inputs = torch.randn(*leading, 5, dtype=torch.double)
    with torch.no_grad():
        torch.testing.assert_close(few_rows(linear, inputs), linear(inputs))


def test_maps_side_by_side_give_what_each_gives():
    maps = [nn.Linear(5, size).double() for size in (2, 3, 4)]
    inputs = torch.randn(6, 5, dtype=torch.double)
    found = pack(maps)(inputs)
    torch.testing.assert_close(found, torch.cat([each(inputs) for each in maps], dim=1))


def _double(linear):
    with torch.no_grad():
        linear.weight.mul_(2)


def _shift(linear):
    with torch.no_grad():
        linear.bias += 1


def _load(linear):
    linear.load_state_dict(nn.Linear(5, 7).double().state_dict())


def _replace(linear):
    linear.weight = nn.Parameter(torch.randn(7, 5, dtype=torch.double))


def _assign(linear):
    linear.weight.data = torch.randn(7, 5, dtype=torch.double)


@pytest.mark.parametrize("change", [_double, _shift, _load, _replace, _assign])
def test_a_map_that_has_changed_is_noticed(linear, change):
    inputs = torch.randn(3, 5, dtype=torch.double)
    with torch.no_grad():
        before = few_rows(linear, inputs)
        change(linear)
        after = few_rows(linear, inputs)
        torch.testing.assert_close(after, linear(inputs))
    assert not torch.equal(before, after)


def test_a_map_of_another_precision_is_laid_out_anew(linear):
    inputs = torch.randn(3, 5)
    with torch.no_grad():
        few_rows(linear, inputs.double())
        torch.testing.assert_close(few_rows(linear.float(), inputs), linear(inputs))


def test_what_is_to_be_learned_goes_through_the_map_itself(linear):
    inputs = torch.randn(3, 5, dtype=torch.double)
    few_rows(linear, inputs).sum().backward()
    torch.testing.assert_close(linear.weight.grad, inputs.sum(dim=0).expand(7, 5))


def test_what_was_made_is_kept_until_it_is_stale_and_forgotten_with_its_owner(linear):
    made = []
    for _ in range(3):
        made_of(linear, [linear], lambda: made.append(0))
    _double(linear)
    made_of(linear, [linear], lambda: made.append(0))
    assert len(made) == 2
    before = len(_KNOWN)
    del linear
    gc.collect()
    assert len(_KNOWN) <= before


def test_biases_are_all_there_or_none():
    with pytest.raises(AssertionError, match="some have none"):
        pack([nn.Linear(2, 2), nn.Linear(2, 2, bias=False)])
