"""Ranks on the cores of one machine, whose parameters and gradients are in shared memory.

All ranks have the same parameters. Each writes the gradient of its rows into memory of its own,
sums a slice of all gradients, and updates that slice of the parameters with its own share of the
optimizer. Invariants: sums are in the order of ranks, so that a run repeats bit by bit; a rank
waits for no other that has died or failed; the memory has no name, so nothing is left behind.
"""

import json
import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import override

from heedful.training.distributed import (
    BatchShard,
    DistributedContext,
    DistributedError,
    shard_rows,
)

_LINE = 64  # bytes of a cache line: ranks write to lines of their own
_SLOT = 4096  # bytes that a rank passes on at a time
_SPIN_SECONDS = 2e-3  # a rank waits this long for others before it sleeps
_SLEEP_SECONDS = 1e-4
_MAX_SLEEP_SECONDS = 1e-2
_PAGE = 4096
_ALIGNMENT = 16  # elements: 64 bytes


class SharedBarrier:
    """What ranks tell one another: who has arrived, who has failed, and small values.

    Each rank counts its arrivals in a cache line that only it writes; the others poll it.
    """

    def __init__(
        self,
        descriptor: int,
        rank: int,
        world_size: int,
        *,
        raise_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`descriptor` is that of `create_shared_file`, in every rank.

        `raise_failure` raises the error of another rank where it is known.
        """
        self.rank, self.world_size = rank, world_size
        self._raise_failure = raise_failure
        self._memory = mmap.mmap(descriptor, control_size(world_size))
        counters = np.frombuffer(self._memory, np.int64, world_size * _LINE // 8)
        self._arrivals = counters[:: _LINE // 8]
        self._failed = np.frombuffer(self._memory, np.int64, 1, offset=world_size * _LINE)
        offset = (world_size + 1) * _LINE
        slots = np.frombuffer(self._memory, np.uint8, 2 * world_size * _SLOT, offset)
        self._slots = slots.reshape(2, world_size, _SLOT)  # those of the last barrier stay
        self._count = 0

    def fail(self) -> None:
        """Let all ranks that wait, or will, raise an error."""
        self._failed[0] = 1

    @property
    def has_failed(self) -> bool:
        """Whether a rank has failed."""
        return bool(self._failed[0])

    def wait(self) -> None:
        """Wait until all ranks have called this as often."""
        self._count += 1
        # The scheduler orders what was written before with what follows: a processor may not.
        os.sched_yield()
        self._arrivals[self.rank] = self._count
        start = time.monotonic()
        while (self._arrivals < self._count).any():
            waited = time.monotonic() - start
            if waited < _SPIN_SECONDS:
                os.sched_yield()
                continue
            if self.has_failed:
                self._raise_failure()
                location, hint = f"rank {self.rank} of {self.world_size}", "see its messages"
                raise DistributedError(location, "another rank has failed", hint)
            time.sleep(min(_MAX_SLEEP_SECONDS, max(_SLEEP_SECONDS, waited / 100)))
        os.sched_yield()

    def exchange(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of all ranks, which are flat and alike in type and size."""
        size, parts = _SLOT // values.itemsize, []
        for start in range(0, len(values), size):
            part = values[start : start + size]
            slots = self._slots[(self._count + 1) % 2].view(values.dtype)[:, : len(part)]
            slots[self.rank] = part
            self.wait()
            parts.append(slots.copy())
        return np.concatenate(parts, axis=1)


def create_shared_file(world_size: int) -> int:
    """Return the descriptor of memory that ranks share: they inherit it."""
    descriptor = os.memfd_create("heedful", 0)
    os.ftruncate(descriptor, control_size(world_size))
    return descriptor


def control_size(world_size: int) -> int:
    """Return the bytes before the parameters: what ranks tell one another."""
    size = (world_size + 1) * _LINE + 2 * world_size * _SLOT
    return -(-size // _PAGE) * _PAGE


class _ParameterSlice(NamedTuple):
    """The part of a parameter that a rank updates, and where its gradients are."""

    parameter: nn.Parameter
    offset: int  # in shared memory
    start: int  # in the flat parameter
    stop: int
    shard: nn.Parameter  # this part
    shard_gradient: Tensor  # of all ranks
    local_gradient: Tensor  # of the whole parameter, for the rows of this rank

    @property
    def shared_range(self) -> slice:
        """The part in shared memory."""
        return slice(self.offset + self.start, self.offset + self.stop)


class SharedMemoryContext(DistributedContext):
    """Ranks that share all parameters, and update a slice of them each."""

    shares_parameters = True

    def __init__(self, barrier: SharedBarrier, descriptor: int) -> None:
        """`descriptor` is that of `create_shared_file`, as for the barrier."""
        self.rank, self.world_size = barrier.rank, barrier.world_size
        self._barrier, self._descriptor = barrier, descriptor
        self._slices: dict[nn.Parameter, _ParameterSlice] = {}

    @override
    @torch.no_grad()
    def prepare_model(self, model: nn.Module) -> nn.Module:
        """Move the parameters into shared memory, with the values of rank 0."""
        parameters = list(model.parameters())
        sizes = [-(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT for parameter in parameters]
        offsets = list(accumulate(sizes, initial=0))
        values, self._gradients = self._map_tensors(offsets[-1])
        bounds = [
            offsets[-1] * rank // self.world_size // _ALIGNMENT * _ALIGNMENT
            for rank in (self.rank, self.rank + 1)
        ]
        if self.rank + 1 == self.world_size:
            bounds[1] = offsets[-1]
        self._local = slice(*bounds)
        self._summed = torch.zeros(bounds[1] - bounds[0])
        for parameter, offset in zip(parameters, offsets[:-1], strict=True):
            assert parameter.dtype == torch.float32, parameter.dtype
            whole = slice(offset, offset + parameter.numel())
            if self.is_main_process:
                values[whole] = parameter.flatten()
            parameter.data = values[whole].view(parameter.shape)
            start, stop = (min(max(bound, whole.start), whole.stop) for bound in bounds)
            summed = self._summed[max(0, start - bounds[0]) :][: stop - start]
            local_gradient = self._gradients[self.rank, whole].view(parameter.shape)
            shard = nn.Parameter(values[start:stop], parameter.requires_grad)
            self._slices[parameter] = _ParameterSlice(
                parameter, offset, start - offset, stop - offset, shard, summed, local_gradient
            )
        self.barrier()
        return model

    def _map_tensors(self, num_values: int) -> tuple[Tensor, Tensor]:
        """Return the parameters and the gradients of all ranks, flat."""
        control = control_size(self.world_size)
        size = control + 4 * num_values * (1 + self.world_size)
        os.ftruncate(self._descriptor, size)  # alike in all ranks
        memory = mmap.mmap(self._descriptor, size)
        shared = torch.frombuffer(memory, dtype=torch.float32, offset=control)
        values, *_ = shared = shared.view(1 + self.world_size, num_values)
        return values, shared[1:]

    @override
    def shard_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Let the optimizer update the slice of this rank, and wait for the others."""
        for group in optimizer.param_groups:
            group["params"] = [self._slices[parameter].shard for parameter in group["params"]]
        optimizer.register_step_post_hook(lambda *_: self.barrier())
        return optimizer

    @override
    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        slices = [self._slices[parameter] for parameter in parameters]
        pairs = [(part.local_gradient, part.parameter.grad) for part in slices]
        present = [(local, gradient) for local, gradient in pairs if gradient is not None]
        torch._foreach_copy_([local for local, _ in present], [gradient for _, gradient in present])
        for local, gradient in pairs:
            if gradient is None:
                local.zero_()
        has_gradient = self.all_reduce_any(*(part.parameter.grad is not None for part in slices))
        torch.sum(self._gradients[:, self._local], dim=0, out=self._summed)
        for part, is_present in zip(slices, has_gradient, strict=True):
            part.shard.grad = part.shard_gradient if is_present else None
        return [part.shard for part in slices]

    @override
    def total_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        return self.all_reduce(super().total_norm(gradients).double().square()).sqrt().float()

    @override
    def shard_batch(self, batch: Any) -> BatchShard:
        return shard_rows(batch, self.rank, self.world_size)

    @override
    def all_reduce(self, tensor: Tensor) -> Tensor:
        by_rank = self._barrier.exchange(tensor.detach().numpy().reshape(-1))
        return torch.from_numpy(by_rank.sum(axis=0, dtype=by_rank.dtype)).view(tensor.shape)

    @override
    def all_reduce_any(self, *flags: bool) -> tuple[bool, ...]:
        by_rank = self._barrier.exchange(np.array(flags, np.uint8))
        return tuple(bool(column.any()) for column in by_rank.T)

    @override
    def gather_to_main(self, tensors: Mapping[str, Tensor]) -> list[Mapping[str, Tensor]]:
        by_name = {
            name: torch.from_numpy(self._barrier.exchange(tensor.numpy()))
            for name, tensor in tensors.items()
        }
        num_ranks = self.world_size if self.is_main_process else 0
        return [{name: rows[rank] for name, rows in by_name.items()} for rank in range(num_ranks)]

    @override
    def gather_rows(self, texts: Sequence[str]) -> list[str]:
        data = np.frombuffer(json.dumps(list(texts)).encode(), np.uint8)
        sizes = self._barrier.exchange(np.array([len(data)]))[:, 0]
        padded = np.zeros(sizes.max(), np.uint8)
        padded[: len(data)] = data
        rows = zip(self._barrier.exchange(padded), sizes, strict=True)
        by_rank = [json.loads(row[:size].tobytes()) for row, size in rows]
        gathered = [text for row in zip_longest(*by_rank) for text in row]
        return gathered[: sum(map(len, by_rank))]

    @override
    def full_optimizer_state(self, optimizer: Optimizer) -> dict[int, dict[str, Any]]:
        """Return the state of whole parameters on the main process, by way of shared memory."""
        shards = [shard for group in optimizer.param_groups for shard in group["params"]]
        by_shard = {part.shard: part for part in self._slices.values()}
        state = {index: optimizer.state[shard] for index, shard in enumerate(shards)}
        sharded = {
            name
            for index, values in state.items()
            for name, value in values.items()
            if _is_sharded(value, shards[index])
        }
        full = {index: dict(values) for index, values in state.items() if values}
        for name in sorted(sharded):
            for index, values in full.items():
                self._gradients[0, by_shard[shards[index]].shared_range] = values[name]
            self.barrier()
            gathered = self._gradients[0].clone() if self.is_main_process else self._gradients[0]
            for index, values in full.items():
                part = by_shard[shards[index]]
                flat = gathered[part.offset :][: part.parameter.numel()]
                values[name] = flat.view(part.parameter.shape)
            self.barrier()
        return full

    @override
    def shard_like(self, full_tensor: Tensor, reference: Tensor) -> Tensor:
        parts = (part for part in self._slices.values() if part.shard is reference)
        part = next(parts, None)
        if part is None or full_tensor.shape != part.parameter.shape:
            return full_tensor
        return full_tensor.flatten()[part.start : part.stop]

    @override
    def barrier(self) -> None:
        self._barrier.wait()


def _is_sharded(value: Any, shard: Tensor) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.shape == shard.shape
