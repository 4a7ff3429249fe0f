"""What ranks do that needs no second process; those with one are in tests/faults/test_ranks.py."""

import socket
from datetime import timedelta
from threading import Thread

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed as dist
from torch import nn

from heedful.errors import ConfigError
from heedful.training.data_parallel import DDPContext, init_distributed
from heedful.training.distributed import (
    SINGLE_PROCESS,
    BatchShard,
    DistributedError,
    is_distributed,
)
from tests.catalogue import batch, store

CPU = torch.device("cpu")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def ranks(world_size, shared=None):
    return [DDPContext(rank, world_size, shared or dist.HashStore()) for rank in range(world_size)]


@pytest.fixture
def environment(monkeypatch):
    def tell(**values):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))

    return tell


@given(st.integers(1, 6), st.integers(1, 7))
def test_batch_shards_cover_every_row_once(world_size, num_rows):
    whole = batch(store(), list(range(num_rows)))
    portions = [each.shard_batch(whole) for each in ranks(world_size)]
    counted = [portion.batch for portion in portions if portion.weight == 1]
    rows = torch.cat([portion.targets for portion in counted])
    assert sorted(rows.tolist()) == sorted(whole.targets.tolist())
    assert sum(part.num_tokens for part in counted) == whole.num_tokens
    # Who has no row keeps in step with one that does not count.
    assert [portion.weight for portion in portions] == [
        float(n < num_rows) for n in range(world_size)
    ]
    assert all(len(portion.batch.targets) > 0 for portion in portions)


def test_main_process_first_runs_rank_zero_before_others():
    done, results = list[int](), dict[int, int]()

    def act(each):
        def action():
            done.append(each.rank)
            return each.rank

        results[each.rank] = each.main_process_first(action)

    threads = [Thread(target=act, args=(each,)) for each in reversed(ranks(3, dist.HashStore()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert done[0] == 0
    assert sorted(done) == [0, 1, 2]
    assert results == {0: 0, 1: 1, 2: 2}


def test_main_process_first_in_a_single_process_runs_at_once():
    assert SINGLE_PROCESS.main_process_first(lambda: "done") == "done"


@pytest.mark.parametrize("values", [{}, {"RANK": 0}, {"RANK": 0, "WORLD_SIZE": 1}])
def test_world_size_one_is_a_single_process(values, environment):
    environment(**values)
    assert not is_distributed()


def test_missing_master_addr_raises(environment):
    environment(RANK=1, WORLD_SIZE=2, LOCAL_RANK=1)
    assert is_distributed()
    with pytest.raises(ConfigError) as caught, init_distributed(CPU):
        pass
    assert str(caught.value) == (
        "MASTER_ADDR: not set, but RANK is 1 and WORLD_SIZE is 2\n"
        "  start with torchrun, which sets it, or unset RANK to train in one process"
    )


def test_mps_has_no_ranks(environment):
    environment(RANK=1, WORLD_SIZE=2, LOCAL_RANK=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=1)
    with pytest.raises(ConfigError) as caught, init_distributed(torch.device("mps")):
        pass
    assert str(caught.value) == (
        "--device: mps cannot train in multiple processes\n"
        "  train with --device cpu, or in one process"
    )


def test_rendezvous_failure_names_address_and_rank(environment):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment(RANK=1, WORLD_SIZE=2, LOCAL_RANK=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    with (
        pytest.raises(DistributedError) as caught,
        init_distributed(CPU, timeout=timedelta(seconds=1)),
    ):
        pass
    message = str(caught.value)
    assert message.startswith(f"127.0.0.1:{port}: rank 1 of 2 cannot reach the others (")
    assert message.endswith(
        "\n  check that all are started and that every machine can reach this address"
    )
    assert caught.value.exit_code == 1


def test_single_process_context_returns_inputs():
    model = nn.Linear(2, 3)
    assert SINGLE_PROCESS.is_main_process
    assert SINGLE_PROCESS.world_size == 1
    assert (
        SINGLE_PROCESS.prepare_model(model)
        is SINGLE_PROCESS.wrap_model(model)
        is SINGLE_PROCESS.inference_model(model)
        is model
    )
    assert SINGLE_PROCESS.shard_batch("a batch") == BatchShard("a batch", 1.0)
    assert SINGLE_PROCESS.all_reduce_any(True, False) == (True, False)
    numbers = torch.tensor([1.0, 2.0])
    assert SINGLE_PROCESS.all_reduce(numbers) is numbers
    assert SINGLE_PROCESS.gather_to_main({"cpu": numbers}) == [{"cpu": numbers}]
    assert SINGLE_PROCESS.full_state_dict(model).keys() == {"weight", "bias"}
    SINGLE_PROCESS.barrier()


def test_single_process_context_does_not_wrap_the_model():
    model = nn.Linear(2, 3)
    with SINGLE_PROCESS.no_sync(model), SINGLE_PROCESS.summon_full_params(model):
        model(torch.ones(1, 2)).sum().backward()
    assert (model.weight.grad == 1).all()
