"""Start and end of a process group, from the environment variables of torchrun.

Invariant: if one rank dies, the others end with an error instead of waiting forever.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from heedful.errors import HeedfulError, check
from heedful.training.data_parallel import DDPContext
from heedful.training.distributed import SINGLE_PROCESS, DistributedContext

DistributedStrategy = Literal["ddp", "fsdp"]
Result = TypeVar("Result")

_RENDEZVOUS_TIMEOUT = timedelta(minutes=5)  # torchrun starts all ranks together
# A dead rank is noticed sooner by its closed connection, and rank 0 may decode or save for long.
_COLLECTIVE_TIMEOUT = timedelta(minutes=60)
_RENDEZVOUS_COUNTER = count()  # the same on all ranks


class DistributedError(HeedfulError):
    """Ranks that cannot reach one another."""

    exit_code = 1


@contextmanager
def init_distributed(
    device: torch.device,
    strategy: DistributedStrategy = "ddp",
    *,
    timeout: timedelta = _RENDEZVOUS_TIMEOUT,
) -> Iterator[tuple[DistributedContext, torch.device]]:
    """Join the process group if there is one; yield its context and the device of this rank."""
    process_info = _read_process_info(os.environ)
    if process_info is None:
        yield SINGLE_PROCESS, device
        return
    local_device = _local_device(device, process_info.local_rank)
    with _explain_connection_errors(process_info):
        store = _rendezvous(process_info, local_device, timeout)
        try:
            yield _build_context(process_info, store, strategy), local_device
        finally:
            dist.destroy_process_group()


def main_process_first(dist_context: DistributedContext, action: Callable[[], Result]) -> Result:
    """Run an action on the main process, then on the others; return its result on each."""
    if not dist_context.is_main_process:
        dist_context.barrier()
    result = action()
    if dist_context.is_main_process:
        dist_context.barrier()
    return result


def is_rank_zero() -> bool:
    """Return whether this process is rank 0 or the only one."""
    return os.environ.get("RANK", "0") == "0"


class _ProcessInfo(NamedTuple):
    """The environment variables of torchrun."""

    rank: int
    world_size: int
    local_rank: int
    host: str
    port: int
    restart_id: str  # torchrun restarts all ranks when one dies
    has_agent_store: bool  # torchrun itself runs the store

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def _read_process_info(environment: Mapping[str, str]) -> _ProcessInfo | None:
    """Return what torchrun says; None if there is no other rank."""
    if "RANK" not in environment or environment.get("WORLD_SIZE", "1") == "1":
        return None
    for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        check(
            name in environment,
            name,
            f"not set, but RANK is {environment['RANK']} and WORLD_SIZE is "
            f"{environment['WORLD_SIZE']}",
            "start with torchrun, which sets it, or unset RANK to train in one process",
        )
    return _ProcessInfo(
        int(environment["RANK"]),
        int(environment["WORLD_SIZE"]),
        int(environment["LOCAL_RANK"]),
        environment["MASTER_ADDR"],
        int(environment["MASTER_PORT"]),
        environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
        environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _local_device(device: torch.device, local_rank: int) -> torch.device:
    if device.type != "cuda":
        return device
    num_gpus = torch.cuda.device_count()
    check(
        local_rank < num_gpus,
        "--nproc-per-node",
        f"this is process {local_rank + 1} of its machine, but there are {num_gpus} GPUs",
        "start one process per GPU, or train with --device cpu",
    )
    local_device = torch.device("cuda", local_rank)
    torch.cuda.set_device(local_device)  # for NCCL and the random state
    return local_device


def _rendezvous(process_info: _ProcessInfo, device: torch.device, timeout: timedelta) -> Store:
    """Join the process group and return the store that its ranks share."""
    try:
        server = TCPStore(
            process_info.host,
            process_info.port,
            process_info.world_size,
            is_master=process_info.rank == 0 and not process_info.has_agent_store,
            timeout=timeout,
        )
        # A prefix per attempt: otherwise a rank may find the address of one that has ended.
        store = PrefixStore(
            f"attempt-{process_info.restart_id}/{next(_RENDEZVOUS_COUNTER)}", server
        )
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=PrefixStore("group", store),
            rank=process_info.rank,
            world_size=process_info.world_size,
            timeout=_COLLECTIVE_TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:
        raise DistributedError(
            process_info.address,
            f"rank {process_info.rank} of {process_info.world_size} cannot reach the others "
            f"({_reason(error)})",
            "check that all are started and that every machine can reach this address",
        ) from error
    return PrefixStore("ranks", store)


def _build_context(
    process_info: _ProcessInfo, store: Store, strategy: DistributedStrategy
) -> DistributedContext:
    if strategy == "ddp":
        return DDPContext(process_info.rank, process_info.world_size, store)
    # Slow to import and rarely used.
    from heedful.training.data_parallel import FSDPContext

    return FSDPContext(process_info.rank, process_info.world_size, store)


@contextmanager
def _explain_connection_errors(process_info: _ProcessInfo) -> Iterator[None]:
    """Turn connection errors of gloo and NCCL into one that names the rank."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise DistributedError(
            f"rank {process_info.rank} of {process_info.world_size}",
            f"another rank has died or cannot be reached ({_reason(error)})",
            "see its messages; run the same command to resume from the last checkpoint",
        ) from error


def _reason(error: Exception) -> str:
    """Return the first sentence of a message, without the source location that gloo prepends."""
    line = str(error).partition("\n")[0]
    return re.sub(r"^\[\S*\] ", "", line).partition(". ")[0]
