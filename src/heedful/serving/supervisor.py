"""Worker processes of one device: started, warmed up, replaced when they die or hang.

A `WorkerLink` is a worker process seen from the event loop. Invariant: every future of a link is
done once its process has ended.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from io import StringIO
from itertools import count
from typing import Any

from heedful.errors import HeedfulError
from heedful.serving.batch_speed import BatchTime
from heedful.serving.problems import ProblemError
from heedful.serving.protocol import (
    ExplainCall,
    ItemError,
    ModelInfo,
    PredictCall,
    Result,
    StreamCall,
    StreamPart,
    TraceCall,
)
from heedful.serving.worker import ServingJob, ServingWorker

_BACK_OFF_SECONDS = (0.1, 10.0)  # after the first death, and at most
_call_ids = count(1)


class StreamQueue:
    """What a client has not read yet of a stream; it never holds more than the whole result.

    Parts that wait are joined. None is the end.
    """

    def __init__(self) -> None:
        self._text, self._arrival = StringIO(), asyncio.Event()
        self._ends: deque[StreamPart | ItemError | ProblemError | None] = deque()

    def put_nowait(self, part: StreamPart | ItemError | ProblemError | None) -> None:
        """Add a part."""
        if isinstance(part, StreamPart) and part.result is None:
            self._text.write(part.text)
        else:
            self._ends.append(part)
        self._arrival.set()

    async def get(self) -> StreamPart | ItemError | ProblemError | None:
        """Wait for a part, and remove it."""
        await self._arrival.wait()
        text, self._text = self._text.getvalue(), StringIO()
        part = StreamPart(text) if text else self._ends.popleft()
        if not self._ends:
            self._arrival.clear()
        return part


class WorkerLink:
    """A worker process: calls become futures and queues of the event loop."""

    def __init__(
        self, job: ServingJob, name: str, on_steps: Callable[[int], object] = lambda count: None
    ) -> None:
        """`on_steps` is called with decoding steps that the worker has made."""
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[Sequence[ModelInfo]] = self._loop.create_future()
        self.died: asyncio.Future[HeedfulError] = self._loop.create_future()
        self.has_answered = False
        self.answered_at = 0.0
        """Time of the last answer; the event loop may get to it later, when it is busy."""
        self.answer_time = BatchTime(0.0, 0.0)
        """Of the last answer, in the worker."""
        self._on_steps = on_steps
        self._calls: dict[int, asyncio.Future[Sequence[Result]]] = {}
        self._streams: dict[int, StreamQueue] = {}
        self._worker = ServingWorker(job, self._receive, name)
        self._worker.start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._worker.pid

    @property
    def is_idle(self) -> bool:
        """Whether no batch is being predicted."""
        return not self._calls

    @property
    def num_streams(self) -> int:
        """Number of streams that have not ended."""
        return len(self._streams)

    def predict(
        self, call: PredictCall | ExplainCall | TraceCall
    ) -> asyncio.Future[Sequence[Result]]:
        """Send a batch; the future raises the error of a worker that dies."""
        call_id, future = next(_call_ids), self._loop.create_future()
        self._calls[call_id] = future
        self._worker.send(call_id, call)
        return future

    def stream(self, call: StreamCall) -> StreamQueue:
        """Start a stream."""
        call_id, queue = next(_call_ids), StreamQueue()
        self._streams[call_id] = queue
        self._worker.send(call_id, call)
        return queue

    def has_stream(self, queue: StreamQueue) -> bool:
        """Return whether a stream has not ended."""
        return any(queue is other for other in self._streams.values())

    def cancel(self, item_ids: Sequence[int]) -> None:
        """Cancel items that were sent."""
        self._worker.cancel(item_ids)

    def kill(self) -> None:
        """Kill the process."""
        self._worker.kill()

    def _receive(self, message: tuple[Any, ...]) -> None:
        """Pass a message on to the event loop; called in a thread."""
        try:
            self._loop.call_soon_threadsafe(self._handle, message, self._loop.time())
        except RuntimeError:  # the loop has ended
            return

    def _handle(self, message: tuple[Any, ...], now: float) -> None:
        match message:
            case ("ready", models):
                self.ready.set_result(models)
            case ("failed", error):
                self._fail(error)
                self.kill()
            case ("result", call_id, results, time):
                self.has_answered, self.answered_at, self.answer_time = True, now, time
                self._end_call(call_id, results)
            case ("part", call_id, part):
                self._streams[call_id].put_nowait(part)
            case ("steps", count):
                self._on_steps(count)
            case ("end", call_id):
                self._streams.pop(call_id).put_nowait(None)
            case ("died", error):
                self._fail(error)

    def _end_call(self, call_id: int, answer: Sequence[Result] | HeedfulError) -> None:
        call = self._calls.pop(call_id)
        if call.done():  # cancelled: whoever waited has given up
            return
        if isinstance(answer, HeedfulError):
            call.set_exception(answer)
        else:
            call.set_result(answer)

    def _fail(self, error: HeedfulError) -> None:
        if self.died.done():
            return
        self.died.set_result(error)
        if not self.ready.done():
            self.ready.set_exception(error)
        for call_id in list(self._calls):
            self._end_call(call_id, error)
        for queue in self._streams.values():
            queue.put_nowait(worker_lost())
        self._streams.clear()


def worker_lost() -> ProblemError:
    """Return the error of requests whose worker died."""
    message, hint = "the process that predicts has ended; it is being restarted", "try again"
    return ProblemError(503, message, hint, retry_after=1.0)


class Supervisor:
    """Keeps a worker of one device ready."""

    def __init__(
        self,
        job: ServingJob,
        name: str,
        *,
        on_ready: Callable[[WorkerLink], Awaitable[None]],
        on_lost: Callable[[WorkerLink], None],
        on_steps: Callable[[int], object] = lambda count: None,
        report: Callable[[str], None],
        max_restarts: int = 0,
    ) -> None:
        """`report` prints a line; `max_restarts` without an answer, 0 for any number."""
        self._job, self._name, self._report, self._on_steps = job, name, report, on_steps
        self._on_ready, self._on_lost, self._max_restarts = on_ready, on_lost, max_restarts
        self._link: WorkerLink | None = None  # the last that was ready
        self._links: set[WorkerLink] = set()  # all that have not died
        self._death = asyncio.Event()
        self._lock = asyncio.Lock()  # of a worker that starts

    async def start(self) -> None:
        """Start a worker and use it once it is ready; raises HeedfulError if it does not get so."""
        link = WorkerLink(self._job, self._name, self._on_steps)
        self._links.add(link)
        link.died.add_done_callback(lambda _: self._links.discard(link))
        try:
            await link.ready
            await self._on_ready(link)
        except BaseException:
            link.kill()
            raise
        self._link = link
        link.died.add_done_callback(lambda _: self._lose(link))

    def _lose(self, link: WorkerLink) -> None:
        self._on_lost(link)
        self._death.set()

    async def reload(self, drain: Callable[[WorkerLink], Any]) -> None:
        """Load the runs again in a new worker, then let the old one finish; raises as `start`."""
        async with self._lock:
            old = self._link
            await self.start()
        if old is not None:
            await drain(old)
            old.kill()

    async def keep_alive(self) -> None:
        """Replace a worker that dies, for ever; raises HeedfulError after too many in a row."""
        num_deaths = 0
        while await self._death.wait():
            self._death.clear()
            async with self._lock:
                link = self._link
                if link is None or not link.died.done():  # another one was replaced, and killed
                    continue
                num_deaths, error = 0 if link.has_answered else num_deaths, link.died.result()
                hint = "it is started again; if memory ran out, lower --max-batch"
                self._report(f"{error.location}: {error.message}\n  {hint}")
                while self._link is link:
                    num_deaths += 1
                    if self._max_restarts and num_deaths > self._max_restarts:
                        raise error
                    first, most = _BACK_OFF_SECONDS
                    await asyncio.sleep(min(first * 2 ** (num_deaths - 1), most))
                    try:
                        await self.start()
                        self._report(f"{self._name}: ready again")
                    except HeedfulError as failure:
                        error = failure
                        self._report(f"{error}")

    def kill(self) -> list[WorkerLink]:
        """Kill all processes, and return them."""
        for link in self._links:
            link.kill()
        return list(self._links)
