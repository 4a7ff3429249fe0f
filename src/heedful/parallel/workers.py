"""Workers: how do several processes share the work of one?

Tasks go out as workers become free and answers come back in the order of the tasks, whoever was
faster; how many are under way is bounded. A worker that is lost ends the work at once, and nothing
is left running when the work ends, however it ends.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from threading import Thread
from typing import Any, Generic

from heedful.errors import HeedfulError
from heedful.parallel.desk import Desk
from heedful.parallel.worker import Answer, Job, Task, serve

_TASKS_FOR_EACH = 2  # under way for each worker: one that it does, one for whoever is faster


class WorkerLostError(HeedfulError):
    """A worker that ended before its work was done."""

    exit_code = 1


@contextmanager
def working(
    job: Job[Task, Answer], tasks: Iterable[Task], *, count: int
) -> Iterator[Iterator[Answer]]:
    """Give the answers to tasks, in order, made by `count` processes; one is this process."""
    if count == 1:
        yield map(job.begin(is_shared=False), tasks)
        return
    workers = _start(job, count)
    desk: Desk[Task, Answer] = Desk(tasks, most_open=_TASKS_FOR_EACH * count)
    try:
        for worker in workers:
            Thread(target=worker.work_through, args=(desk,), daemon=True).start()
        Thread(target=_watch, args=(workers, desk), daemon=True).start()
        yield desk.answers()
    finally:
        desk.close()
        for worker in workers:
            worker.stop()


class _Worker(Generic[Task, Answer]):
    """A process that answers tasks, as it is seen from here."""

    def __init__(self, job: Job[Task, Answer], number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.number = number
        self._connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(job, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def work_through(self, desk: Desk[Task, Answer]) -> None:
        """Take tasks and put back answers until there are none; runs in a thread of its own."""
        try:
            while (taken := desk.take()) is not None:
                self._connection.send(taken.task)
                desk.put(taken.number, self._connection.recv())
        except (EOFError, OSError):
            pass  # the process is gone; whoever watches the processes says so

    def stop(self) -> None:
        """End the process, in the middle of anything: it holds nothing that could be lost."""
        self.process.kill()
        self.process.join()
        self._connection.close()

    def lost(self) -> WorkerLostError:
        """The error that says how the process ended."""
        return WorkerLostError(
            f"worker {self.number}",
            f"the process ended before its work was done ({_ending(self.process.exitcode)})",
            "if memory ran out, give fewer --workers; what was written so far is complete lines",
        )


def _start(job: Job[Task, Answer], count: int) -> list[_Worker[Task, Answer]]:
    with _uninterrupted():
        return [_Worker(job, number) for number in range(1, count + 1)]


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Start processes that no Ctrl-C reaches: this process hears it and ends them."""
    resource_tracker.ensure_running()  # unblocks the signal where it is started later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch(workers: list[_Worker[Any, Any]], desk: Desk[Any, Any]) -> None:
    """Wait until a worker ends: none does by itself."""
    ended = connection.wait([worker.process.sentinel for worker in workers])
    if desk.is_closed:
        return
    lost = next(worker for worker in workers if worker.process.sentinel in ended)
    lost.process.join()  # to learn how it ended
    desk.fail(lost.lost())


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
