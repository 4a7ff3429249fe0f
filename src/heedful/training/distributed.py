"""Distributed: how several ranks learn one model, each with all of its weights.

They are started by torchrun, which tells each who it is. Laws: every rank comes to the same weights
after every step, and, but for rounding and dropout, to those that one alone would have come to; a
rank that is lost ends the others.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from heedful.errors import ConfigError, HeedfulError
from heedful.nested import leaves, map_tensors
from heedful.training.ranks import ALONE, Portion, Ranks
from heedful.training.replica import Replica

Parallel = Literal["replicated", "sharded"]
Result = TypeVar("Result")

_TO_MEET = timedelta(minutes=5)
"""How long ranks look for one another; torchrun starts them together."""
_TO_ANSWER = timedelta(minutes=60)
"""How long a rank waits for what another computes: a lost one is noticed sooner in other ways, and
the first may long be busy with what it does for all, such as decoding or saving."""
_BETWEEN_LOOKS = 0.05  # seconds
_MEETINGS = count()
"""Of this process; all ranks meet equally often."""


class RankError(HeedfulError):
    """Ranks that cannot go on together."""

    exit_code = 1


@contextmanager
def joining(
    device: torch.device, parallel: Parallel = "replicated", *, patience: timedelta = _TO_MEET
) -> Iterator[tuple[Ranks, torch.device]]:
    """Join the other ranks while within, if there are any; give also the device that is ours."""
    place = _read_place(os.environ)
    if place is None:
        yield ALONE, device
        return
    own = _own_device(device, place.local_rank)
    with _explaining_losses(place):
        store = _meet(place, own, patience)
        try:
            yield _ranks(place, store, parallel), own
        finally:
            dist.destroy_process_group()


def in_turn(ranks: Ranks, action: Callable[[], Result]) -> Result:
    """Let the first rank do something, and once that is done the others; give each what it got."""
    if not ranks.is_first:
        ranks.wait()
    result = action()
    if ranks.is_first:
        ranks.wait()
    return result


def is_first_rank() -> bool:
    """Whether this process is alone or the first of several: the one that talks."""
    return os.environ.get("RANK", "0") == "0"


class Replicated(Ranks):
    """Several ranks, each with all weights; their gradients are added up."""

    def __init__(self, rank: int, world: int, store: Store) -> None:
        self.rank = rank
        self.world = world
        self._store = store
        self._num_waits = 0

    def spread(self, model: nn.Module) -> nn.Module:
        """Make of a model one that tells the other ranks its gradients."""
        return Replica(model, self)

    @contextmanager
    def apart(self, spread: nn.Module) -> Iterator[None]:
        """Add up gradients without telling the other ranks yet."""
        assert isinstance(spread, Replica), type(spread)
        with spread.apart():
            yield

    def portion(self, batch: Any) -> Portion:
        """Take every so manieth row; where there are too few, the first again, which counts not."""
        num_rows = len(next(leaves(batch)))
        rows = slice(self.rank, None, self.world) if self.rank < num_rows else slice(0, 1)
        own = map_tensors(lambda tensor: tensor[rows], batch)
        return Portion(own, 1.0 if self.rank < num_rows else 0.0)

    def total(self, numbers: Tensor) -> Tensor:
        """Add up numbers over all ranks."""
        sums = numbers.detach().clone()
        dist.all_reduce(sums)
        return sums

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Whether the answer of any rank is yes, for each of some questions."""
        return tuple(number > 0 for number in self.total(torch.tensor(flags, dtype=torch.int)))

    def gather(self, tensors: Mapping[str, Tensor]) -> list[Mapping[str, Tensor]]:
        """Give the first rank what every rank has, in their order; the others get nothing."""
        everyone: list[dict[str, Tensor]] = [{} for _ in range(self.world * self.is_first)]
        for name, tensor in tensors.items():
            found = [torch.empty_like(tensor) for _ in everyone] if self.is_first else None
            dist.gather(tensor, found, dst=0)
            for own, each in zip(everyone, found or [], strict=True):
                own[name] = each
        return list(everyone)

    def wait(self) -> None:
        """Wait until every rank has come here, however long that takes."""
        self._num_waits += 1
        key = f"wait-{self._num_waits}"
        self._store.add(key, 1)
        # Not a collective operation: those give up, and building a large corpus takes hours.
        while self._store.add(key, 0) < self.world:
            time.sleep(_BETWEEN_LOOKS)


class _Place(NamedTuple):
    """Which of the ranks this process is, and where they meet."""

    rank: int
    world: int
    local_rank: int
    host: str
    port: int
    attempt: str  # torchrun starts all ranks again when one is lost
    is_met: bool  # torchrun itself keeps the store that ranks meet at

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def _read_place(names: Mapping[str, str]) -> _Place | None:
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
    return _Place(
        int(names["RANK"]),
        int(names["WORLD_SIZE"]),
        int(names["LOCAL_RANK"]),
        names["MASTER_ADDR"],
        int(names["MASTER_PORT"]),
        names.get("TORCHELASTIC_RESTART_COUNT", "0"),
        names.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _own_device(device: torch.device, local_rank: int) -> torch.device:
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


def _meet(place: _Place, device: torch.device, patience: timedelta) -> Store:
    """Find the other ranks; give the store that they share."""
    try:
        server = TCPStore(
            place.host,
            place.port,
            place.world,
            is_master=place.rank == 0 and not place.is_met,
            timeout=patience,
        )
        # Without a prefix for each time a rank may find the address of one that is no more.
        store = PrefixStore(f"attempt-{place.attempt}/{next(_MEETINGS)}", server)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=PrefixStore("group", store),
            rank=place.rank,
            world_size=place.world,
            timeout=_TO_ANSWER,
        )
    except (RuntimeError, ValueError) as error:
        raise RankError(
            place.address,
            f"rank {place.rank} of {place.world} does not find the others ({_reason(error)})",
            "see that all are started and that every machine can reach this address",
        ) from error
    return PrefixStore("ranks", store)


def _ranks(place: _Place, store: Store, parallel: Parallel) -> Ranks:
    if parallel == "replicated":
        return Replicated(place.rank, place.world, store)
    # What shards is slow to import, and few need it.
    from heedful.training.sharded import Sharded

    return Sharded(place.rank, place.world, store)


@contextmanager
def _explaining_losses(place: _Place) -> Iterator[None]:
    """Say in words that another rank is gone: gloo and NCCL name only a connection."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise RankError(
            f"rank {place.rank} of {place.world}",
            f"another rank has ended or cannot be reached ({_reason(error)})",
            "see what that one said; the same command goes on from the last checkpoint",
        ) from error


def _reason(error: Exception) -> str:
    """The first sentence of a message, without the place in the source of gloo that it names."""
    line = str(error).partition("\n")[0]
    return re.sub(r"^\[\S*\] ", "", line).partition(". ")[0]
