"""Ranks: the processes that learn one model together.

Every rank sees every batch and takes its share of the rows, so what all of them find, added up,
is what one alone would have found: results do not depend on how many there are. This module is
about one rank alone; what several do is in `distributed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.storage.state_dict import unique_weights


class BatchShard(NamedTuple):
    """What one rank takes of a batch."""

    batch: Any
    weight: float  # 0 where the rank has no row of its own and only keeps in step with the others


class DistributedContext:
    """One rank alone."""

    rank = 0
    world_size = 1
    is_sharded = False  # then weights are whole only while a model computes

    @property
    def is_main_process(self) -> bool:
        """Whether this rank is the one that talks and writes."""
        return self.rank == 0

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """Put a model where it is to be trained, before it has an optimizer."""
        return model

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Make of a model what is called to learn."""
        return model

    def no_sync(self, wrapped_model: nn.Module) -> AbstractContextManager[None]:
        """Add up gradients without telling the other ranks yet."""
        del wrapped_model
        return nullcontext()

    def inference_model(self, model: nn.Module) -> nn.Module:
        """Give what stands for a model where it is not to learn but to be asked."""
        return model

    def summon_full_params(self, model: nn.Module) -> AbstractContextManager[None]:
        """Let what is asked for a model have its weights while within; all ranks must come."""
        del model
        return nullcontext()

    def shard_batch(self, batch: Any) -> BatchShard:
        """Take this rank's rows of a batch."""
        return BatchShard(batch, 1.0)

    def all_reduce(self, numbers: Tensor) -> Tensor:
        """Add up numbers over all ranks."""
        return numbers

    def all_reduce_any(self, *flags: bool) -> tuple[bool, ...]:
        """Whether the answer of any rank is yes, for each of some questions."""
        return flags

    def gather_to_main(self, tensors: Mapping[str, Tensor]) -> list[Mapping[str, Tensor]]:
        """Give the first rank what every rank has, in their order; the others get nothing."""
        return [tensors]

    def full_state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """The weights of a model, whole, as they are saved; only the first rank gets them all."""
        return unique_weights(model)

    def barrier(self) -> None:
        """Wait until every rank has come here, however long that takes."""


SINGLE_PROCESS = DistributedContext()
