"""The interface of data parallelism, and its trivial case of one process.

Every rank sees every batch and takes some of its rows. Invariant: sums over ranks are what one
process computes, so results do not depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.storage.state_dict import unique_weights


class BatchShard(NamedTuple):
    """The rows of a batch for one rank."""

    batch: Any
    weight: float  # 0 if there are fewer rows than ranks: the rank only keeps in step


class DistributedContext:
    """A single process; subclasses are several."""

    rank = 0
    world_size = 1
    is_sharded = False

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
        """Return the tensors of every rank on the main process, nothing on others."""
        return [tensors]

    def full_state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the unsharded parameters as they are saved; a collective operation."""
        return unique_weights(model)

    def barrier(self) -> None:
        """Wait for all ranks, without a time limit."""


SINGLE_PROCESS = DistributedContext()
