"""Queue, batches and deadlines: the `Service` that all routes use.

A free worker gets the queued inputs of one model with one set of options, oldest first; if the last
batch was that of several requests, it waits for as many: `max_wait_ms` at most, and while requests
come in a row. A request is admitted if the measured speed lets it be answered in time. Inputs whose
worker dies are predicted again by the next one, the second time each alone, so that one that kills
workers takes no other with it. Invariants: a request that is given up (deadline, hang-up) is not
predicted any more, and no answer depends on the rest of its batch.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from heedful.serving.batch_speed import ITEM_COST, BatchKey, BatchSpeeds, BatchTime, input_cost
from heedful.serving.metrics import ServerMetrics
from heedful.serving.problems import ProblemError, shutting_down, to_problem
from heedful.serving.protocol import (
    Item,
    ItemError,
    ModelInfo,
    PredictCall,
    Result,
    StreamCall,
    StreamPart,
)
from heedful.serving.queued_inputs import BatchGroup, QueuedInput, QueuedRequest
from heedful.serving.service import find_model
from heedful.serving.settings import ServerSettings
from heedful.serving.supervisor import WorkerLink

_ADMITTED_SHARE = 0.5  # of the time until the deadline that an estimate may fill
_ROW_SECONDS = 0.002  # between requests that come in a row: about what each costs this process
_MEASURED_BATCH = 8  # examples, besides one alone, that show the speed of a model
_DEADLY = ItemError(
    500, "the process that predicts ended each time with this input", "the log has the cause"
)

_item_ids = count(1)


class _SharedBatch(NamedTuple):
    """A batch beside which there were other requests."""

    num_items: int  # with those that waited when it ended
    end: float


class Scheduler:
    """The requests of a server and the workers that are ready; see `Service`."""

    def __init__(self, settings: ServerSettings, metrics: ServerMetrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._models: dict[str, ModelInfo] = {}
        self.links: list[WorkerLink] = []  # workers that are ready
        self._busy_until: dict[WorkerLink, float] = {}
        self._shared_batches: dict[str, _SharedBatch] = {}  # by model, if the last one was shared
        self._groups: dict[BatchKey, BatchGroup] = {}
        self._num_queued = 0
        self._speeds = BatchSpeeds()
        self._timer: asyncio.TimerHandle | None = None
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
        """Give a worker no more batches; without another, queued inputs wait for the next."""
        if link in self.links:
            self.links.remove(link)
        self._busy_until.pop(link, None)
        self._metrics.workers.set(len(self.links))

    async def drain_worker(self, link: WorkerLink) -> None:
        """Give a worker no more batches, and wait until it has finished those it has."""
        self.remove_worker(link)
        while not link.died.done() and (link.num_streams or not link.is_idle):
            await asyncio.sleep(0.01)

    async def measure(self, link: WorkerLink) -> None:
        """Predict the example of each new model, alone and in a batch, to learn its speed.

        The worker must not be in use yet.
        """
        loop = asyncio.get_running_loop()
        for model in link.ready.result():
            if model.example is None or model.name in self._speeds:  # None: too long to be shown
                continue
            examples = []
            for size in sorted({1, min(_MEASURED_BATCH, self._settings.max_batch)}):
                items = [Item(next(_item_ids), model.example) for _ in range(size)]
                start = loop.time()
                await link.predict(PredictCall(model.name, items, {}))
                time = BatchTime(link.answered_at - start, link.answer_time.cpu_seconds)
                examples.append((size * input_cost(model.example), time))
            self._speeds.set_examples(model.name, examples)

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
        seeds: Sequence[int] = (),
    ) -> Sequence[Result]:
        """Return a result or an error for each input, in order; see `Service`."""
        self._check_model(model)
        loop = asyncio.get_running_loop()
        now, deadline = loop.time(), self._deadline(timeout)
        key = BatchKey(model, json.dumps(options, sort_keys=True), need_layers, text_only)
        self._admit(key, inputs, deadline - now)
        request = QueuedRequest(loop.create_future(), [None] * len(inputs), len(inputs))
        group = self._groups.setdefault(key, BatchGroup(options))
        items = [
            Item(next(_item_ids), value, seed)
            for value, seed in zip(inputs, seeds or count(1), strict=bool(seeds))
        ]
        entries = [
            QueuedInput(item, request, index, group, input_cost(item.input), now)
            for index, item in enumerate(items)
        ]
        group.entries.extend(entries)
        self._count(entries, +1)
        try:
            self._send_batches()
            async with asyncio.timeout_at(deadline):
                return await request.future
        except TimeoutError:
            raise _too_late() from None
        finally:
            self._give_up(key, entries)

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

    def _check_model(self, name: str) -> None:
        """Raise ProblemError unless a worker can predict with this model now."""
        if self.is_draining:
            self._metrics.rejected.labels("draining").inc()
            raise shutting_down()
        if not self.links:
            self._metrics.rejected.labels("not_ready").inc()
            raise ProblemError(503, "no worker is ready", "try again", retry_after=1.0)
        find_model(self, name)

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
            self._speeds.seconds(other, total, math.ceil(items / self._settings.max_batch))
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
            waiting = [key for key, group in self._groups.items() if group.first()]
            if not waiting:
                return
            key = min(waiting, key=lambda key: self._groups[key].entries[0].arrival)
            group = self._groups[key]
            ripe_at = self._ripe_at(key, group)
            if ripe_at > loop.time():
                self._timer = loop.call_at(ripe_at, self._send_batches)
                return
            self._send(link, key, group)

    def _ripe_at(self, key: BatchKey, group: BatchGroup) -> float:
        """Return until when inputs wait for others: not at all, unless clients ask side by side.

        Those of the last batch may ask again as soon as they are answered; with as many inputs as
        there were then, nothing is left to wait for. While this process still reads what they ask,
        a worker that began with the first of them would leave the others for another batch.
        """
        last, most = self._shared_batches.get(key.model), self._settings.max_wait_ms / 1000
        if last is None or group.num_items >= min(last.num_items, self._settings.max_batch):
            return 0.0
        start = max(group.entries[0].arrival, last.end)
        return max(start + most, group.entries[-1].arrival + min(_ROW_SECONDS, most))

    def _send(self, link: WorkerLink, key: BatchKey, group: BatchGroup) -> None:
        loop = asyncio.get_running_loop()
        batch = group.take_batch(self._settings)
        for entry in batch:
            entry.link, entry.batch = link, batch
            self._metrics.queue_seconds.observe(loop.time() - entry.arrival)
        self._count(batch, -1)
        if not group.entries:
            del self._groups[key]
        items = [entry.item for entry in batch]
        call = PredictCall(key.model, items, group.options, key.need_layers, key.text_only)
        cost = sum(entry.cost for entry in batch)
        self._busy_until[link] = loop.time() + self._speeds.seconds(key, cost)
        answer = link.predict(call)
        answer.add_done_callback(partial(self._receive, link, key, batch, loop.time()))

    def _receive(
        self,
        link: WorkerLink,
        key: BatchKey,
        batch: Sequence[QueuedInput],
        start: float,
        answer: asyncio.Future[Sequence[Result]],
    ) -> None:
        self._busy_until.pop(link, None)
        self._note_shared(key, batch)
        for entry in batch:
            entry.link = None
        if answer.exception() is not None:
            self._retry(key, batch)
        else:
            seconds = link.answered_at - start
            cost = sum(entry.cost for entry in batch)
            self._metrics.batch_seconds.labels(key.model).observe(link.answer_time.seconds)
            self._metrics.batch_items.labels(key.model).observe(len(batch))
            self._metrics.characters.labels(key.model).inc(cost - ITEM_COST * len(batch))
            if not any(entry.is_abandoned for entry in batch):  # a batch cut short says nothing
                self._speeds.add(key, cost, BatchTime(seconds, link.answer_time.cpu_seconds))
            for entry, result in zip(batch, answer.result(), strict=True):
                entry.request.add(entry.index, result)
        self._send_batches()

    def _note_shared(self, key: BatchKey, batch: Sequence[QueuedInput]) -> None:
        """Note how many inputs there are at a time, if they are those of several requests."""
        waiting = self._groups[key].entries if key in self._groups else ()
        requests = {entry.request for entry in (*batch, *waiting)}
        self._shared_batches.pop(key.model, None)
        if len(requests) > 1:
            end = asyncio.get_running_loop().time()
            self._shared_batches[key.model] = _SharedBatch(len(batch) + len(waiting), end)

    def _retry(self, key: BatchKey, batch: Sequence[QueuedInput]) -> None:
        """Queue the inputs of a worker that died, before all others; fail one that was alone."""
        waiting = [entry for entry in batch if not entry.is_abandoned]
        retried = [entry for entry in waiting if not entry.is_suspect]
        for entry in waiting:
            if entry.is_suspect:
                entry.request.add(entry.index, _DEADLY)
        if retried:
            group = self._groups.setdefault(key, BatchGroup(batch[0].group.options))
            for entry in reversed(retried):
                entry.group, entry.batch = group, ()
                entry.num_deaths += 1
                group.entries.appendleft(entry)
            self._count(retried, +1)

    # ----- giving up

    def _give_up(self, key: BatchKey, entries: Sequence[QueuedInput]) -> None:
        """Forget the inputs of a request that has ended, and cancel those that are predicted."""
        request = entries[0].request
        if not request.num_missing:
            return
        request.future.cancel()
        missing = [entry for entry in entries if request.results[entry.index] is None]
        self._count([entry for entry in missing if not entry.batch], -1)
        group = self._groups.get(key)
        if group is not None and not group.first():
            del self._groups[key]
        self._metrics.canceled.inc(len(missing))
        for entry in missing:
            if (link := entry.link) is not None:
                self._cancel(link, entry.item.id, is_running=entry.is_batch_abandoned)

    def _cancel(self, link: WorkerLink, item_id: int, *, is_running: Callable[[], bool]) -> None:
        """Cancel an item in a worker; kill it if that still runs after `hang_timeout`."""
        link.cancel([item_id])

        def kill_if_running() -> None:
            if is_running() and not link.died.done():
                link.kill()

        asyncio.get_running_loop().call_later(self._settings.hang_timeout, kill_if_running)

    def _count(self, entries: Sequence[QueuedInput], sign: int) -> None:
        for entry in entries:
            entry.group.num_items += sign
            entry.group.cost += sign * entry.cost
        self._num_queued += sign * len(entries)
        self._metrics.queue_items.set(self._num_queued)


def _too_late() -> ProblemError:
    message, hint = "the answer was not ready in time", "send fewer or shorter inputs, or try again"
    return ProblemError(504, message, hint)
