import torch
from torch import nn

from heedful.training.distributed import SINGLE_PROCESS, BatchShard


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
