"""Parts, in a group of one: what is parted is then whole, and written as if it were not."""

import pytest
import torch
from torch import distributed as dist
from torch import nn

from heedful.errors import ConfigError, DiskFullError
from heedful.training.parts import read_parts, write_parts
from heedful.training.ranks import ALONE
from heedful.training.sharded import Sharded
from heedful.weights import is_parted, part_like, put_weights


@pytest.fixture
def group():
    shared = dist.HashStore()
    dist.init_process_group("gloo", store=shared, rank=0, world_size=1)
    yield Sharded(0, 1, shared)
    dist.destroy_process_group()


def test_parts_are_read_as_they_are_wanted(group, tmp_path):
    whole = torch.arange(6.0).view(3, 2)
    model = group.place(nn.Linear(2, 3, bias=False))
    part = part_like(whole, model.weight)
    assert is_parted(part)
    write_parts({"average.weight": part}, tmp_path / "parts", group)
    write_parts({"average.weight": part}, tmp_path / "parts", group)  # what lay there is gone
    again = read_parts(tmp_path / "parts", lambda name: model.weight)
    assert torch.equal(again["average.weight"].full_tensor(), whole)
    plain = read_parts(tmp_path / "parts", lambda name: torch.zeros(3, 2))
    assert torch.equal(plain["average.weight"], whole)


def test_parts_that_will_not_fit_are_not_begun(tmp_path):
    huge = torch.empty(1 << 50, device="meta")
    with pytest.raises(DiskFullError, match="needs"):
        write_parts({"huge": huge}, tmp_path / "parts", ALONE)
    assert not (tmp_path / "parts").exists()


def test_weights_are_put_into_parts_and_asked_of_a_twin(group):
    model = group.place(nn.Linear(2, 3))
    weights = {"weight": torch.arange(6.0).view(3, 2), "bias": torch.ones(3)}
    put_weights(model, weights, at="here")
    for name, weight in group.weights(model).items():
        assert torch.equal(weight, weights[name])
    twin = group.asked(model)
    assert sum(weight.numel() for weight in twin.parameters()) == 0
    with group.whole(model):
        assert twin(torch.tensor([1.0, 0.0])).tolist() == [1.0, 3.0, 5.0]
    assert sum(weight.numel() for weight in twin.parameters()) == 0


def test_a_weight_that_is_a_single_number_is_refused(group):
    model = nn.Linear(2, 3)
    model.gain = nn.Parameter(torch.ones(()))
    with pytest.raises(ConfigError) as caught:
        group.place(model)
    assert str(caught.value) == (
        "training.parallel: gain is a single number, and cannot be parted among ranks\n"
        "  set training.parallel=replicated, or choose a model without it"
    )
