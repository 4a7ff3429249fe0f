"""Parts, in a group of one: what is parted is then whole, and written as if it were not."""

import pytest
import torch
from torch import distributed as dist
from torch import nn

from heedful.errors import ConfigError, DiskFullError
from heedful.storage.state_dict import is_sharded, load_into_model, shard_like
from heedful.training.data_parallel import FSDPContext
from heedful.training.distributed import SINGLE_PROCESS
from heedful.training.state import load_sharded_tensors, save_sharded_tensors


@pytest.fixture
def group():
    shared = dist.HashStore()
    dist.init_process_group("gloo", store=shared, rank=0, world_size=1)
    yield FSDPContext(0, 1, shared)
    dist.destroy_process_group()


def test_sharded_tensors_load_sharded_or_whole(group, tmp_path):
    whole = torch.arange(6.0).view(3, 2)
    model = group.prepare_model(nn.Linear(2, 3, bias=False))
    part = shard_like(whole, model.weight)
    assert is_sharded(part)
    save_sharded_tensors({"ema.weight": part}, tmp_path / "shards", group)
    save_sharded_tensors({"ema.weight": part}, tmp_path / "shards", group)  # what lay there is gone
    again = load_sharded_tensors(tmp_path / "shards", lambda name: model.weight)
    assert torch.equal(again["ema.weight"].full_tensor(), whole)
    plain = load_sharded_tensors(tmp_path / "shards", lambda name: torch.zeros(3, 2))
    assert torch.equal(plain["ema.weight"], whole)


def test_shards_that_do_not_fit_not_written(tmp_path):
    huge = torch.empty(1 << 50, device="meta")
    with pytest.raises(DiskFullError, match="needs"):
        save_sharded_tensors({"huge": huge}, tmp_path / "shards", SINGLE_PROCESS)
    assert not (tmp_path / "shards").exists()


def test_fsdp_inference_model_has_full_parameters_inside_the_context(group):
    model = group.prepare_model(nn.Linear(2, 3))
    weights = {"weight": torch.arange(6.0).view(3, 2), "bias": torch.ones(3)}
    load_into_model(model, weights, location="here")
    for name, weight in group.full_state_dict(model).items():
        assert torch.equal(weight, weights[name])
    twin = group.inference_model(model)
    assert sum(weight.numel() for weight in twin.parameters()) == 0
    with group.summon_full_params(model):
        assert twin(torch.tensor([1.0, 0.0])).tolist() == [1.0, 3.0, 5.0]
    assert sum(weight.numel() for weight in twin.parameters()) == 0


def test_scalar_parameter_raises_with_fsdp(group):
    model = nn.Linear(2, 3)
    model.gain = nn.Parameter(torch.ones(()))
    with pytest.raises(ConfigError) as caught:
        group.prepare_model(model)
    assert str(caught.value) == (
        "training.distributed_strategy: gain is a scalar and cannot be sharded\n"
        "  set training.distributed_strategy=ddp, or choose a model without it"
    )
