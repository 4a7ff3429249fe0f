"""Distributed: how several ranks learn one model, each with all of its weights.

They are started by torchrun, which tells each who it is. Laws: every rank comes to the same weights
after every step, and, but for rounding and dropout, to those that one alone would have come to; a
rank that is lost ends the others.
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

from heedful.errors import ConfigError, HeedfulError
from heedful.training.data_parallel import DDPContext
from heedful.training.distributed import SINGLE_PROCESS, DistributedContext

DistributedStrategy = Literal["ddp", "fsdp"]


Result = TypeVar("Result")


_RENDEZVOUS_TIMEOUT = timedelta(minutes=5)
"""How long ranks look for one another; torchrun starts them together."""


_COLLECTIVE_TIMEOUT = timedelta(minutes=60)
"""How long a rank waits for what another computes: a lost one is noticed sooner in other ways, and
the first may long be busy with what it does for all, such as decoding or saving."""


_RENDEZVOUS_COUNTER = count()
"""Of this process; all ranks meet equally often."""


class DistributedError(HeedfulError):
    """Ranks that cannot go on together."""

    exit_code = 1


@contextmanager
def init_distributed(
    device: torch.device,
    strategy: DistributedStrategy = "ddp",
    *,
    timeout: timedelta = _RENDEZVOUS_TIMEOUT,
) -> Iterator[tuple[DistributedContext, torch.device]]:
    """Join the other ranks while within, if there are any; give also the device that is ours."""
    place = _read_process_info(os.environ)
    if place is None:
        yield SINGLE_PROCESS, device
        return
    own = _local_device(device, place.local_rank)
    with _explain_connection_errors(place):
        store = _rendezvous(place, own, timeout)
        try:
            yield _make_context(place, store, strategy), own
        finally:
            dist.destroy_process_group()


def main_process_first(dist_context: DistributedContext, action: Callable[[], Result]) -> Result:
    """Let the first rank do something, and once that is done the others; give each what it got."""
    if not dist_context.is_main_process:
        dist_context.barrier()
    result = action()
    if dist_context.is_main_process:
        dist_context.barrier()
    return result


def is_rank_zero() -> bool:
    """Whether this process is alone or the first of several: the one that talks."""
    return os.environ.get("RANK", "0") == "0"


class _ProcessInfo(NamedTuple):
    """Which of the ranks this process is, and where they meet."""

    rank: int
    world_size: int
    local_rank: int
    host: str
    port: int
    restart_id: str  # torchrun starts all ranks again when one is lost
    is_initialized: bool  # torchrun itself keeps the store that ranks meet at

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def _read_process_info(names: Mapping[str, str]) -> _ProcessInfo | None:
    """Read what torchrun says; nothing where there is no other rank."""
    if "RANK" not in names or names.get("WORLD_SIZE", "1") == "1":
        return None
    for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        if name not in names:
            raise ConfigError(
                name,
                f"this is rank {names['RANK']} of {names['WORLD_SIZE']}, and {name} is not set",
                "start with torchrun, which sets it, or unset RANK to train alone",
            )
    return _ProcessInfo(
        int(names["RANK"]),
        int(names["WORLD_SIZE"]),
        int(names["LOCAL_RANK"]),
        names["MASTER_ADDR"],
        int(names["MASTER_PORT"]),
        names.get("TORCHELASTIC_RESTART_COUNT", "0"),
        names.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _local_device(device: torch.device, local_rank: int) -> torch.device:
    if device.type != "cuda":
        return device
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            "--nproc-per-node",
            f"this is process {local_rank + 1} of its machine, and there are "
            f"{torch.cuda.device_count()} GPUs",
            "start as many processes as there are GPUs, or train with --device cpu",
        )
    own = torch.device("cuda", local_rank)
    torch.cuda.set_device(own)  # whose random numbers are kept, and that NCCL takes
    return own


def _rendezvous(process_info: _ProcessInfo, device: torch.device, timeout: timedelta) -> Store:
    """Find the other ranks; give the store that they share."""
    try:
        server = TCPStore(
            process_info.host,
            process_info.port,
            process_info.world_size,
            is_master=process_info.rank == 0 and not process_info.is_initialized,
            timeout=timeout,
        )
        # Without a prefix for each time a rank may find the address of one that is no more.
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
            f"rank {process_info.rank} of {process_info.world_size} does not find the others ({_reason(error)})",
            "see that all are started and that every machine can reach this address",
        ) from error
    return PrefixStore("ranks", store)


def _make_context(
    process_info: _ProcessInfo, store: Store, strategy: DistributedStrategy
) -> DistributedContext:
    if strategy == "ddp":
        return DDPContext(process_info.rank, process_info.world_size, store)
    # What shards is slow to import, and few need it.
    from heedful.training.data_parallel import FSDPContext

    return FSDPContext(process_info.rank, process_info.world_size, store)


@contextmanager
def _explain_connection_errors(process_info: _ProcessInfo) -> Iterator[None]:
    """Say in words that another rank is gone: gloo and NCCL name only a connection."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise DistributedError(
            f"rank {process_info.rank} of {process_info.world_size}",
            f"another rank has ended or cannot be reached ({_reason(error)})",
            "see what that one said; the same command goes on from the last checkpoint",
        ) from error


def _reason(error: Exception) -> str:
    """The first sentence of a message, without the place in the source of gloo that it names."""
    line = str(error).partition("\n")[0]
    return re.sub(r"^\[\S*\] ", "", line).partition(". ")[0]
