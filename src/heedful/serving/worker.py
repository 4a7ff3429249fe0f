"""A worker process as the front process sees it; imports no torch.

The process loads the runs, makes one real prediction with each, and then answers calls. Invariant:
a message is about the worker, or about a call that was sent and has not ended.
"""

import os
from collections.abc import Callable, Generator, Sequence
from queue import SimpleQueue
from threading import Thread
from time import perf_counter, process_time
from typing import Any, NamedTuple

from heedful.errors import HeedfulError
from heedful.parallel import Answer, WorkerDiedError, WorkerProcess
from heedful.serving.batch_speed import BatchTime
from heedful.serving.protocol import Call, ServedRun

_READY_ID = 0
_Call = Call | None  # None asks for the models


class _Counted(NamedTuple):
    """An answer, or a part of a stream, and what was spent on it."""

    value: Any
    num_steps: int = 0
    time: BatchTime = BatchTime(0.0, 0.0)  # of an answer


class ServingJob(NamedTuple):
    """Loads runs and answers calls; the work of a worker process."""

    runs: Sequence[ServedRun]
    device: str = "auto"
    settings: Sequence[str] = ()
    dtype: str = "fp32"
    num_threads: int | None = None
    niceness: int = 0
    """By how much the process gives way to others."""

    def setup(self, *, is_shared: bool) -> Callable[[_Call], Any]:
        """Load the runs and warm them up."""
        import torch

        from heedful.serving.served_models import ServedModels

        if self.niceness and hasattr(os, "nice"):
            os.nice(self.niceness)
        if self.num_threads:
            torch.set_num_threads(self.num_threads)
        options = {"device": self.device, "settings": self.settings, "dtype": self.dtype}
        models = ServedModels(self.runs, options)
        models.take_steps()  # of the warm-up

        def count_parts(parts: Generator[Any]) -> Generator[_Counted | None]:
            for part in parts:
                yield None if part is None else _Counted(part, models.take_steps())

        def answer(call: _Call) -> Any:
            start, cpu_start = perf_counter(), process_time()
            value = models.answer(call)
            if isinstance(value, Generator):
                return count_parts(value)
            time = BatchTime(perf_counter() - start, process_time() - cpu_start)
            return _Counted(value, models.take_steps(), time)

        return answer


class ServingWorker:
    """A process that predicts with runs, and two threads that exchange messages with it.

    `on_message` is called in a thread with one of
    ("ready", [ModelInfo, ...]): the runs are loaded, and each has made a prediction;
    ("failed", HeedfulError): a run cannot be loaded; "died" follows after `kill`;
    ("result", call_id, [Result, ...], BatchTime): the answer to a call but StreamCall;
    ("part", call_id, StreamPart | ItemError) and ("end", call_id): of a StreamCall;
    ("steps", count): hypotheses have made so many decoding steps since the last such message;
    ("died", WorkerDiedError): the last message.
    """

    def __init__(
        self, job: ServingJob, on_message: Callable[[tuple[Any, ...]], None], name: str = "worker"
    ) -> None:
        self._job, self._on_message, self._name = job, on_message, name
        self._outgoing: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._process: WorkerProcess[_Call, Any]

    def start(self) -> None:
        """Start the process; "ready" comes once it has loaded the runs."""
        self._process = WorkerProcess(self._job, name=self._name)
        self._put(lambda: self._process.send(_READY_ID, None))
        Thread(target=self._write, name=f"{self._name} write", daemon=True).start()
        Thread(target=self._read, name=f"{self._name} read", daemon=True).start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def send(self, call_id: int, call: Call) -> None:
        """Send a call, whose id is above 0; never blocks."""
        self._put(lambda: self._process.send(call_id, call))

    def cancel(self, item_ids: Sequence[int]) -> None:
        """Cancel items of calls that were sent; they, too, get a result, of no use."""
        self._put(lambda: self._process.cancel(item_ids))

    def kill(self) -> None:
        """Kill the process: it has nothing that could be lost."""
        self._process.kill()

    def _put(self, action: Callable[[], None]) -> None:
        self._outgoing.put(action)

    def _write(self) -> None:
        """Send messages; a process that stands still must not stop whoever sends to it."""
        for action in iter(self._outgoing.get, None):
            try:
                action()
            except WorkerDiedError:  # `_read` reports it
                return

    def _read(self) -> None:
        try:
            while True:
                self._handle(self._process.receive())
        except WorkerDiedError as error:
            self._outgoing.put(None)
            self._on_message(("died", error))
        finally:
            self._process.stop()

    def _handle(self, answer: Answer) -> None:
        try:
            value, num_steps, time = answer.result() or _Counted(None)
        except HeedfulError as error:
            self._on_message(("failed", error))
        except RuntimeError as error:  # a bug of ours; the traceback is in the message
            self._on_message(("failed", HeedfulError(self._name, str(error), "report this bug")))
        else:
            if num_steps:
                self._on_message(("steps", num_steps))
            is_ready = answer.task_id == _READY_ID
            kind, call_id = answer.kind, answer.task_id
            if is_ready:
                self._on_message(("ready", value))
                return
            fields = {"result": (value, time), "part": (value,), "end": ()}
            self._on_message((kind, call_id, *fields[kind]))
