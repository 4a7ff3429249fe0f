"""Queue, batches and deadlines: the `Service` that all routes use.

A free worker gets the queued inputs of one model with one set of options, oldest first; an input
waits `max_wait_ms` at most for others. A request is admitted if the measured speed lets it be
answered in time. Invariants: a request that is given up (deadline, hang-up) is not predicted any
more, and no answer depends on the rest of its batch.
"""

import asyncio
import json
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from heedful.errors import choices_hint, did_you_mean
from heedful.serving.batch_speed import ITEM_COST, BatchKey, BatchSpeeds, input_cost
from heedful.serving.metrics import ServerMetrics
from heedful.serving.problems import ProblemError, to_problem
from heedful.serving.protocol import (
    Item,
    ItemError,
    ModelInfo,
    PredictCall,
    Result,
    StreamCall,
    StreamPart,
)
from heedful.serving.settings import ServerSettings
from heedful.serving.supervisor import WorkerLink, worker_lost

_ADMITTED_SHARE = 0.5  # of the time until the deadline that an estimate may fill
_MEASURED_BATCH = 8  # examples, besides one alone, that show the speed of a model

_item_ids = count(1)


@dataclass(eq=False)
class _Request:
    future: asyncio.Future[list[Result]]
    results: list[Any]
    num_missing: int = 0

    def add(self, index: int, result: Result) -> None:
        self.results[index] = result
        self.num_missing -= 1
        if not self.num_missing and not self.future.done():
            self.future.set_result(self.results)


@dataclass(eq=False)
class _Entry:
    """One input, and where its result goes."""

    item: Item
    request: _Request
    cost: int
    arrival: float
    link: WorkerLink | None = None  # while it is predicted
    batch: "Sequence[_Entry]" = ()

    @property
    def index(self) -> int:
        return self.item.number - 1

    @property
    def is_abandoned(self) -> bool:
        return self.request.future.done()


@dataclass(eq=False)
class _Group:
    """Inputs that may share a batch, in the order of their arrival."""

    options: Mapping[str, Any]
    entries: deque[_Entry] = field(default_factory=deque)
    num_items: int = 0  # without those that were given up
    cost: int = 0


class Scheduler:
    """The requests of a server and the workers that are ready; see `Service`."""

    def __init__(self, settings: ServerSettings, metrics: ServerMetrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._models: dict[str, ModelInfo] = {}
        self.links: list[WorkerLink] = []  # workers that are ready
        self._busy_until: dict[WorkerLink, float] = {}
        self._groups: dict[BatchKey, _Group] = {}
        self._num_queued = self._num_active = 0
        self._speeds = BatchSpeeds()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_draining = False

    # ----- workers

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """The served runs by name, in the order of the command line."""
        return self._models

    @property
    def is_ready(self) -> bool:
        """Whether a worker accepts requests."""
        return bool(self.links) and not self.is_draining

    def add_worker(self, link: WorkerLink) -> None:
        """Use a worker that is ready."""
        self._models = {model.name: model for model in link.ready.result()}
        self._metrics.models.clear()
        for model in self._models.values():
            self._metrics.models.labels(model.name, model.task, str(model.step)).set(1)
        self.links.append(link)
        self._metrics.workers.set(len(self.links))
        self._send_batches()

    def remove_worker(self, link: WorkerLink) -> None:
        """Give a worker no more batches; without another, queued inputs fail."""
        if link in self.links:
            self.links.remove(link)
        self._busy_until.pop(link, None)
        self._metrics.workers.set(len(self.links))
        if not self.links:
            for group in self._groups.values():
                for entry in group.entries:
                    if not entry.is_abandoned:
                        entry.request.future.set_exception(worker_lost())

    async def drain_worker(self, link: WorkerLink) -> None:
        """Give a worker no more batches, and wait until it has finished those it has."""
        self.remove_worker(link)
        while not link.died.done() and (link.num_streams or not link.is_idle):
            await asyncio.sleep(0.01)

    async def measure(self, link: WorkerLink) -> None:
        """Predict the example of each model, alone and in a batch, to learn its speed."""
        loop = asyncio.get_running_loop()
        for model in link.ready.result():
            if model.example is None:  # too long to be shown
                continue
            examples = []
            for size in sorted({1, min(_MEASURED_BATCH, self._settings.max_batch)}):
                items = [Item(next(_item_ids), model.example) for _ in range(size)]
                start = loop.time()
                await link.predict(PredictCall(model.name, items, {}))
                examples.append((size * input_cost(model.example), loop.time() - start))
            self._speeds.set_examples(model.name, examples)

    async def drain(self) -> None:
        """Refuse new requests, and wait until those that were admitted are answered."""
        self.is_draining = True
        await self._idle.wait()

    # ----- requests

    async def predict(
        self,
        model: str,
        inputs: Sequence[Any],
        options: Mapping[str, Any],
        *,
        timeout: float | None = None,
        need_layers: bool = False,
        text_only: bool = False,
    ) -> Sequence[Result]:
        """Return a result or an error for each input, in order; see `Service`."""
        self._check_model(model)
        loop = asyncio.get_running_loop()
        deadline = self._deadline(timeout)
        key = BatchKey(model, json.dumps(options, sort_keys=True), need_layers, text_only)
        self._admit(key, inputs, deadline - loop.time())
        request = _Request(loop.create_future(), [None] * len(inputs), len(inputs))
        group = self._groups.setdefault(key, _Group(options))
        entries = [
            _Entry(Item(next(_item_ids), value, number), request, input_cost(value), loop.time())
            for number, value in enumerate(inputs, start=1)
        ]
        group.entries.extend(entries)
        self._count(group, entries, +1)
        self._begin()
        try:
            self._send_batches()
            async with asyncio.timeout_at(deadline):
                return await request.future
        except TimeoutError:
            raise _too_late() from None
        finally:
            self._give_up(key, group, entries)
            self._end()

    async def stream(
        self, model: str, value: Any, options: Mapping[str, Any], *, timeout: float | None = None
    ) -> AsyncIterator[StreamPart]:
        """Yield the result of an input as it grows; see `Service`."""
        self._check_model(model)
        deadline = self._deadline(timeout)
        link = min(self.links, key=lambda link: link.num_streams)
        if link.num_streams >= self._settings.max_streams:
            raise self._reject("streams", "too many answers are being streamed", 1.0)
        item = Item(next(_item_ids), value)
        queue = link.stream(StreamCall(model, item, options))
        self._begin()
        self._metrics.streams.inc()
        try:
            while True:
                async with asyncio.timeout_at(deadline):
                    part = await queue.get()
                match part:
                    case None:
                        return
                    case ProblemError():
                        raise part
                    case ItemError():
                        raise to_problem(part)
                yield part
        except TimeoutError:
            raise _too_late() from None
        finally:
            if link.has_stream(queue):
                self._cancel(link, item.id, is_running=lambda: link.has_stream(queue))
            self._metrics.streams.dec()
            self._end()

    def _check_model(self, name: str) -> None:
        """Raise ProblemError unless a worker can predict with this model now."""
        if self.is_draining:
            self._metrics.rejected.labels("draining").inc()
            raise ProblemError(503, "the server is shutting down", "try again", retry_after=5.0)
        if not self.links:
            self._metrics.rejected.labels("not ready").inc()
            raise ProblemError(503, "no worker is ready", "try again", retry_after=1.0)
        if name not in self._models:
            message = f"no model has this name{did_you_mean(name, self._models)}"
            raise ProblemError(404, message, choices_hint(self._models), field="model")

    def _deadline(self, timeout: float | None) -> float:
        limit = self._settings.timeout
        return asyncio.get_running_loop().time() + min(limit, timeout or limit)

    def _admit(self, key: BatchKey, inputs: Sequence[Any], timeout: float) -> None:
        """Raise ProblemError if the request would not be answered in time."""
        seconds = self._estimate(key, len(inputs), sum(map(input_cost, inputs)))
        if self._num_queued and self._num_queued + len(inputs) > self._settings.max_queue:
            raise self._reject("queue", "too many inputs wait", seconds)
        if self._num_queued and seconds > _ADMITTED_SHARE * timeout:
            raise self._reject("deadline", "it would not be answered in time", seconds)

    def _reject(self, reason: str, message: str, seconds: float) -> ProblemError:
        self._metrics.rejected.labels(reason).inc()
        hint = "try again later, as Retry-After says, or send fewer inputs"
        return ProblemError(429, message, hint, retry_after=max(1.0, seconds))

    def _estimate(self, key: BatchKey, num_items: int, cost: int) -> float:
        """Return the seconds until these inputs would be answered, after all that wait."""
        counts = {other: (group.num_items, group.cost) for other, group in self._groups.items()}
        before = counts.get(key, (0, 0))
        counts[key] = before[0] + num_items, before[1] + cost
        queued = sum(
            self._speeds[other].seconds(total, math.ceil(items / self._settings.max_batch))
            for other, (items, total) in counts.items()
            if items
        )
        now = asyncio.get_running_loop().time()
        running = sum(max(0.0, end - now) for end in self._busy_until.values())
        return (queued + running) / max(1, len(self.links))

    # ----- batches

    def _send_batches(self) -> None:
        """Give batches to the workers that are idle."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        for link in [link for link in self.links if link.is_idle]:
            waiting = [key for key, group in self._groups.items() if self._first(group)]
            if not waiting:
                return
            key = min(waiting, key=lambda key: self._groups[key].entries[0].arrival)
            group = self._groups[key]
            ripe_at = group.entries[0].arrival + self._settings.max_wait_ms / 1000
            if group.num_items < self._settings.max_batch and ripe_at > loop.time():
                self._timer = loop.call_at(ripe_at, self._send_batches)
                return
            self._send(link, key, group)

    @staticmethod
    def _first(group: _Group) -> _Entry | None:
        """Return the first entry that is still wanted."""
        while group.entries and group.entries[0].is_abandoned:
            group.entries.popleft()
        return group.entries[0] if group.entries else None

    def _send(self, link: WorkerLink, key: BatchKey, group: _Group) -> None:
        loop, limits = asyncio.get_running_loop(), self._settings
        batch: list[_Entry] = []
        longest = 0
        while (entry := self._first(group)) and len(batch) < limits.max_batch:
            longest = max(longest, entry.cost)
            if batch and longest * (len(batch) + 1) > limits.max_batch_characters:
                break
            batch.append(group.entries.popleft())
            entry.link, entry.batch = link, batch
            self._metrics.queue_seconds.observe(loop.time() - entry.arrival)
        self._count(group, batch, -1)
        if not group.entries:
            del self._groups[key]
        items = [entry.item for entry in batch]
        call = PredictCall(key.model, items, group.options, key.need_layers, key.text_only)
        cost = sum(entry.cost for entry in batch)
        self._busy_until[link] = loop.time() + self._speeds[key].seconds(cost, 1)
        self._metrics.batch_items.labels(key.model).observe(len(batch))
        self._metrics.characters.labels(key.model).inc(cost - ITEM_COST * len(batch))
        answer = link.predict(call)
        answer.add_done_callback(partial(self._receive, link, key, batch, loop.time()))

    def _receive(
        self,
        link: WorkerLink,
        key: BatchKey,
        batch: Sequence[_Entry],
        start: float,
        answer: asyncio.Future[Sequence[Result]],
    ) -> None:
        self._busy_until.pop(link, None)
        if answer.exception() is not None:
            for entry in batch:
                entry.link = None
                if not entry.is_abandoned:
                    entry.request.future.set_exception(worker_lost())
        else:
            seconds = asyncio.get_running_loop().time() - start
            self._metrics.batch_seconds.labels(key.model).observe(seconds)
            if not any(entry.is_abandoned for entry in batch):  # a batch cut short says nothing
                self._speeds.add(key, sum(entry.cost for entry in batch), seconds)
            for entry, result in zip(batch, answer.result(), strict=True):
                entry.link = None
                entry.request.add(entry.index, result)
        self._send_batches()

    # ----- giving up

    def _give_up(self, key: BatchKey, group: _Group, entries: Sequence[_Entry]) -> None:
        """Forget the inputs of a request that has ended, and cancel those that are predicted."""
        request = entries[0].request
        if not request.num_missing:
            return
        request.future.cancel()
        missing = [entry for entry in entries if request.results[entry.index] is None]
        self._count(group, [entry for entry in missing if not entry.batch], -1)
        if self._groups.get(key) is group and not self._first(group):
            del self._groups[key]
        self._metrics.canceled.inc(len(missing))
        for entry in missing:
            if (link := entry.link) is not None:
                self._cancel(link, entry.item.id, is_running=partial(_is_batch_abandoned, entry))

    def _cancel(self, link: WorkerLink, item_id: int, *, is_running: Callable[[], bool]) -> None:
        """Cancel an item in a worker; kill it if that still runs after `hang_timeout`."""
        link.cancel([item_id])

        def kill_if_running() -> None:
            if is_running() and not link.died.done():
                link.kill()

        asyncio.get_running_loop().call_later(self._settings.hang_timeout, kill_if_running)

    def _count(self, group: _Group, entries: Sequence[_Entry], sign: int) -> None:
        group.num_items += sign * len(entries)
        group.cost += sign * sum(entry.cost for entry in entries)
        self._num_queued += sign * len(entries)
        self._metrics.queue_items.set(self._num_queued)

    def _begin(self) -> None:
        self._num_active += 1
        self._idle.clear()

    def _end(self) -> None:
        self._num_active -= 1
        if not self._num_active:
            self._idle.set()


def _is_batch_abandoned(entry: _Entry) -> bool:
    """Return whether nobody waits any more for a batch that is still predicted."""
    return entry.link is not None and all(other.is_abandoned for other in entry.batch)


def _too_late() -> ProblemError:
    message, hint = "the answer was not ready in time", "send fewer or shorter inputs, or try again"
    return ProblemError(504, message, hint)
