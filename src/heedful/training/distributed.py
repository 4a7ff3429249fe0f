"""Data parallelism: its interface, and the case of one process; its random states.

Each rank sees every batch and takes some of its rows. Invariants: results do not depend on the
number of ranks; if one rank dies or fails, the others end with an error instead of waiting forever.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from heedful.errors import HeedfulError
from heedful.pytree import map_tensors, tensors_of
from heedful.storage.state_dict import shard_like, unique_weights

DistributedStrategy = Literal["ddp", "fsdp"]
Result = TypeVar("Result")

FAILURE_KEY = "failed"  # of the store: how many ranks have failed


class DistributedError(HeedfulError):
    """Ranks that cannot reach one another."""

    exit_code = 1


class BatchShard(NamedTuple):
    """The rows of a batch for one rank."""

    batch: Any
    weight: float  # 0 if there are fewer rows than ranks: the rank only keeps in step


class DistributedContext:
    """A single process; subclasses are several."""

    rank = 0
    world_size = 1
    is_sharded = False
    shares_parameters = False
    """Whether the ranks have the same parameters in the same memory."""
    loss_factor = 1.0
    """By which a loss is multiplied, so that its gradients are summed over ranks."""

    @property
    def is_main_process(self) -> bool:
        """Whether this process logs and writes."""
        return self.rank == 0

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """Shard a model if need be, before its optimizer is built."""
        return model

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Return the module to call in training."""
        return model

    def no_sync(self, wrapped_model: nn.Module) -> AbstractContextManager[None]:
        """Accumulate gradients without all-reducing them (DDP's `no_sync`)."""
        del wrapped_model
        return nullcontext()

    def shard_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Let a new optimizer update the part of the parameters that is for this rank."""
        return optimizer

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> Sequence[nn.Parameter]:
        """Sum gradients over ranks, if that is still to be done; return what is updated here."""
        return parameters

    @torch.no_grad()
    def total_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the norm of all gradients, of which a rank may have a part."""
        return get_total_norm(list(gradients))

    def inference_model(self, model: nn.Module) -> nn.Module:
        """Return the module to validate and decode with."""
        return model

    def summon_full_params(self, model: nn.Module) -> AbstractContextManager[None]:
        """Give the inference model its parameters; a collective operation."""
        del model
        return nullcontext()

    def shard_batch(self, batch: Any) -> BatchShard:
        """Return the rows of a batch for this rank."""
        return BatchShard(batch, 1.0)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks."""
        return tensor

    def all_reduce_any(self, *flags: bool) -> tuple[bool, ...]:
        """Return for each flag whether it is set on any rank."""
        return flags

    def gather_to_main(self, tensors: Mapping[str, Tensor]) -> list[Mapping[str, Tensor]]:
        """Return the tensors of each rank on the main process, nothing on others."""
        return [tensors]

    def gather_rows(self, texts: Sequence[str]) -> list[str]:
        """Return the texts of all ranks, each of which has those of its rows: see `shard_rows`."""
        return list(texts)

    def full_state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the unsharded parameters as they are saved; a collective operation."""
        return unique_weights(model)

    def full_optimizer_state(self, optimizer: Optimizer) -> dict[int, dict[str, Any]]:
        """Return the state by the index of a parameter, as it is saved; a collective operation."""
        state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
        return state

    def shard_like(self, full_tensor: Tensor, reference: Tensor) -> Tensor:
        """Return the part of a saved tensor that belongs to a parameter as the optimizer has it."""
        is_alike = full_tensor.shape == reference.shape
        return shard_like(full_tensor, reference) if is_alike else full_tensor

    def barrier(self) -> None:
        """Wait for all ranks, without a time limit."""

    def main_process_first(self, action: Callable[[], Result]) -> Result:
        """Run an action on the main process, then on the others; return its result on each."""
        if not self.is_main_process:
            self.barrier()
        result = action()
        if self.is_main_process:
            self.barrier()
        return result


SINGLE_PROCESS = DistributedContext()


def shard_rows(batch: Any, rank: int, world_size: int) -> BatchShard:
    """Return every `world_size`-th row; without one, the first row with weight 0."""
    num_rows = len(next(tensors_of(batch)))
    rows = slice(rank, None, world_size) if rank < num_rows else slice(0, 1)
    shard = map_tensors(lambda tensor: tensor[rows], batch)
    return BatchShard(shard, 1.0 if rank < num_rows else 0.0)


def is_distributed() -> bool:
    """Whether torchrun, or another launcher, has started this process as one of several."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def is_rank_zero() -> bool:
    """Return whether this process is rank 0 or the only one."""
    return os.environ.get("RANK", "0") == "0"


def get_rng_states() -> dict[str, Tensor]:
    """Return the states of torch's random generators: CPU, and the current GPU if there is one."""
    states = {name: module.get_rng_state() for name, module in _gpu_modules().items()}
    return {"cpu": torch.get_rng_state(), **states}


def set_rng_states(states: Mapping[str, Tensor]) -> None:
    """Restore states returned by `get_rng_states`."""
    torch.set_rng_state(states["cpu"])
    for name, module in _gpu_modules().items():
        if name in states:
            module.set_rng_state(states[name])


def _gpu_modules() -> dict[str, ModuleType]:
    modules = {"cuda": torch.cuda, "mps": torch.mps}
    return {name: module for name, module in modules.items() if module.is_available()}
