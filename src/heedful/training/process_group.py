"""Joining the process group of torchrun, which DDP and FSDP2 need.

Invariant: if one rank dies or fails, the others end with an error instead of waiting forever.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count

import torch
from torch import distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from heedful.errors import check
from heedful.training.distributed import (
    FAILURE_KEY,
    SINGLE_PROCESS,
    DistributedContext,
    DistributedError,
    DistributedStrategy,
)

_RENDEZVOUS_TIMEOUT = timedelta(minutes=5)  # torchrun starts all ranks together
# A dead rank is noticed sooner by its closed connection, and rank 0 may decode or save for long.
_COLLECTIVE_TIMEOUT = timedelta(minutes=60)
_RENDEZVOUS_COUNTER = count()  # the same on all ranks
# Groups are kept until the process ends: DDP's reducer would destroy the last reference while it
# holds the GIL, and join a gloo thread that may be waiting for the GIL to free its last tensors.
_KEPT_GROUPS: list[dist.ProcessGroup | None] = []


@contextmanager
def init_distributed(
    device: torch.device,
    strategy: DistributedStrategy = "ddp",
    *,
    timeout: timedelta = _RENDEZVOUS_TIMEOUT,
) -> Iterator[tuple[DistributedContext, torch.device]]:
    """Join the process group if there is one; yield its context and the device of this rank."""
    if "RANK" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        yield SINGLE_PROCESS, device
        return
    # Slow to import and rarely used.
    from heedful.training.data_parallel import DDPContext, FSDPContext

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        message = f"not set, but RANK is {rank} and WORLD_SIZE is {world_size}"
        hint = "start with torchrun, which sets it, or unset RANK to train in one process"
        check(name in os.environ, name, message, hint)
    hint = "train with --device cpu, or in one process"
    check(device.type != "mps", "--device", "mps cannot train in multiple processes", hint)
    if device.type == "cuda":
        device = _select_gpu(int(os.environ["LOCAL_RANK"]))
    try:
        store = _rendezvous(rank, world_size, device, timeout)
        try:
            context_class = DDPContext if strategy == "ddp" else FSDPContext
            yield context_class(rank, world_size, store), device
        except BaseException:
            with suppress(RuntimeError):  # the store may be gone
                store.add(FAILURE_KEY, 1)
            raise
        finally:
            _KEPT_GROUPS.append(dist.group.WORLD)
            dist.destroy_process_group()
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise DistributedError(
            f"rank {rank} of {world_size}",
            f"another rank has died or cannot be reached ({_reason(error)})",
            "see its messages; run the same command to resume from the last checkpoint",
        ) from error


def _select_gpu(local_rank: int) -> torch.device:
    num_gpus = torch.cuda.device_count()
    message = f"this is process {local_rank + 1} of its machine, but there are {num_gpus} GPUs"
    hint = "start one process per GPU, or train with --device cpu"
    check(local_rank < num_gpus, "--nproc-per-node", message, hint)
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)  # for NCCL and the random state
    return device


def _rendezvous(rank: int, world_size: int, device: torch.device, timeout: timedelta) -> Store:
    """Join the process group and return the store that its ranks share."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_master = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # all restart when one rank dies
    try:
        server = TCPStore(host, port, world_size, is_master=is_master, timeout=timeout)
        # A prefix per attempt: otherwise a rank may find the address of one that has ended.
        store = PrefixStore(f"attempt-{attempt}/{next(_RENDEZVOUS_COUNTER)}", server)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=PrefixStore("group", store),
            rank=rank,
            world_size=world_size,
            timeout=_COLLECTIVE_TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:
        raise DistributedError(
            f"{host}:{port}",
            f"rank {rank} of {world_size} cannot reach the others ({_reason(error)})",
            "check that all are started and that every machine can reach this address",
        ) from error
    return PrefixStore("ranks", store)


def _reason(error: Exception) -> str:
    """Return the first sentence of a message, without the source location that gloo prepends."""
    line = str(error).partition("\n")[0]
    return re.sub(r"^\[\S*\] ", "", line).partition(". ")[0]
