"""Inputs that wait for a worker: their requests, and the groups that may share a batch."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heedful.serving.protocol import Item, Result
from heedful.serving.settings import ServerSettings
from heedful.serving.supervisor import WorkerLink

_MAX_SHARED_DEATHS = 2  # of workers, before the inputs of their batch are predicted alone


@dataclass(eq=False)
class QueuedRequest:
    """Results of the inputs of a request; `future` has them once all are there."""

    future: asyncio.Future[list[Result]]
    results: list[Any]
    num_missing: int = 0

    def add(self, index: int, result: Result) -> None:
        """Set the result of an input."""
        self.results[index] = result
        self.num_missing -= 1
        if not self.num_missing and not self.future.done():
            self.future.set_result(self.results)


@dataclass(eq=False)
class QueuedInput:
    """One input, and where its result goes."""

    item: Item
    request: QueuedRequest
    index: int  # in its request
    group: "BatchGroup"
    cost: int
    arrival: float
    link: WorkerLink | None = None  # while it is predicted
    batch: "Sequence[QueuedInput]" = ()
    num_deaths: int = 0  # of workers that predicted it

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for its result."""
        return self.request.future.done()

    @property
    def is_suspect(self) -> bool:
        """Whether it is predicted alone, as it may be what its workers died of."""
        return self.num_deaths >= _MAX_SHARED_DEATHS

    def is_batch_abandoned(self) -> bool:
        """Return whether nobody waits any more for its batch, which is still predicted."""
        return self.link is not None and all(other.is_abandoned for other in self.batch)


@dataclass(eq=False)
class BatchGroup:
    """Inputs that may share a batch, in the order of their arrival."""

    options: Mapping[str, Any]
    entries: deque[QueuedInput] = field(default_factory=deque)
    num_items: int = 0  # without those that were given up
    cost: int = 0

    def first(self) -> QueuedInput | None:
        """Return the oldest input for which somebody waits."""
        while self.entries and self.entries[0].is_abandoned:
            self.entries.popleft()
        return self.entries[0] if self.entries else None

    def take_batch(self, limits: ServerSettings) -> list[QueuedInput]:
        """Remove and return the oldest inputs that fit into a batch."""
        batch: list[QueuedInput] = []
        longest = 0
        while (entry := self.first()) and len(batch) < limits.max_batch:
            longest = max(longest, entry.cost)
            is_full = longest * (len(batch) + 1) > limits.max_batch_characters
            if batch and (is_full or entry.is_suspect or batch[0].is_suspect):
                break
            batch.append(self.entries.popleft())
        return batch
