"""Work in chunks: how what comes in is cut up, shared among processes and put in order again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from queue import Empty, Queue, SimpleQueue
from threading import Lock, Semaphore, Thread
from time import monotonic
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from heedful.errors import HeedfulError

__all__ = [
    "Job",
    "WorkerDiedError",
    "chunks_as_available",
    "fixed_size_chunks",
    "parallel_map",
]


# Chunks: how much is worked on at a time, when nobody knows how much will come?
#
# What lies in a file is there already: chunks are full. What comes through a pipe comes when its
# writer likes, and the writer may be waiting for the answer to one line before it sends the next: a
# chunk is what has arrived. Either way everything is in one chunk, in order; a bounded number of
# items is held; and what goes wrong while reading is raised after all that came before it was given.

Item = TypeVar("Item")

MAX_WAIT_SECONDS = (
    0.02  # seconds that a line waits for others: unnoticed by people, long for a program
)


class _End(NamedTuple):
    """Nothing more comes, because all was read or because of an error."""

    error: Exception | None = None


def fixed_size_chunks(items: Iterable[Item], *, max_size: int) -> Iterator[list[Item]]:
    """Cut into chunks of `most` items; the last may be shorter."""
    chunk: list[Item] = []
    for item in _append_end(items):
        if isinstance(item, _End):
            yield from _final_chunk(chunk, item)
            return
        chunk.append(item)
        if len(chunk) == max_size:
            yield chunk
            chunk = []


def chunks_as_available(
    items: Iterable[Item], *, max_size: int, max_wait: float = MAX_WAIT_SECONDS
) -> Iterator[list[Item]]:
    """Cut into chunks of what has arrived, at least one and at most `most` items.

    A thread reads ahead, by `most` items and no further.
    """
    item_queue: Queue[Item | _End] = Queue(maxsize=max_size)
    Thread(target=_fill_queue, args=(items, item_queue), daemon=True).start()
    while True:
        chunk: list[Item] = []
        for item in _drain_queue(item_queue, max_size, max_wait):
            if isinstance(item, _End):
                yield from _final_chunk(chunk, item)
                return
            chunk.append(item)
        yield chunk


def _fill_queue(items: Iterable[Item], item_queue: Queue[Item | _End]) -> None:
    # Python closes standard input as it exits, and dies of it if a thread is reading there; it
    # leaves alone what a thread still holds.
    held = sys.stdin
    for item in _append_end(items):
        item_queue.put(item)
    del held


def _drain_queue(
    item_queue: Queue[Item | _End], max_size: int, max_wait: float
) -> Iterator[Item | _End]:
    yield item_queue.get()
    until = monotonic() + max_wait
    for _ in range(max_size - 1):
        try:
            yield item_queue.get(timeout=max(0.0, until - monotonic()))
        except Empty:
            return


def _append_end(items: Iterable[Item]) -> Iterator[Item | _End]:
    try:
        yield from items
    except Exception as error:  # whatever it is, it is raised where the items are used
        yield _End(error)
    else:
        yield _End()


def _final_chunk(chunk: list[Item], end: _End) -> Iterator[list[Item]]:
    if chunk:
        yield chunk
    if end.error is not None:
        raise end.error


# A worker: what does a process do that was started to share the work?
#
# It makes itself ready once, answers one task after another, and ends when the process that started
# it closes the connection or ends itself, in whatever way: no worker outlives its starter.

Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")


class Job(ABC, Generic[Task, Result]):
    """Work that can be sent to another process and made ready there."""

    @abstractmethod
    def setup(self, *, is_shared: bool) -> Callable[[Task], Result]:
        """Make ready, once; `is_shared` says that other processes do the same work beside."""


class TaskSuccess(NamedTuple, Generic[Value]):
    """What came of a task."""

    value: Value


class TaskFailure(NamedTuple):
    """What went wrong with a task, in a form that can be sent."""

    error_type: type[HeedfulError] | None  # None for what heedful does not raise on purpose
    error_args: tuple[str, ...]  # of the error, or the traceback

    def reraise(self) -> NoReturn:
        """Raise the error where it is heard."""
        if self.error_type is None:
            raise RuntimeError(f"a worker failed:\n{''.join(self.error_args)}")
        raise self.error_type(*self.error_args)


def serve_tasks(job: Job[Any, Any], connection: Connection) -> None:
    """Answer tasks until nobody asks any more."""
    Thread(target=_end_with_parent, daemon=True).start()
    begun = run_catching_errors(partial(job.setup, is_shared=True))
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(
            begun if isinstance(begun, TaskFailure) else run_catching_errors(begun.value, task)
        )


def run_catching_errors(
    function: Callable[..., Value], *args: object
) -> TaskSuccess[Value] | TaskFailure:
    """Do something, and give what came of it or what went wrong."""
    try:
        return TaskSuccess(function(*args))
    except HeedfulError as error:
        return TaskFailure(type(error), (error.location, error.message, error.hint))
    except Exception:
        return TaskFailure(None, tuple(traceback.format_exc().splitlines(keepends=True)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:  # else whoever asks is this process itself
        parent.join()
        os._exit(1)  # from any thread, in the middle of anything


# The desk: where do several threads take tasks, and how do answers come into order again?
#
# Every task is taken once, in order; answers are given in the same order. At most `max_pending` tasks
# are taken and not yet answered for, so that neither end runs away from the other.


class IndexedTask(NamedTuple, Generic[Task]):
    """A task and its place in the order."""

    task_index: int
    task: Task


class _EndOfTasks(NamedTuple):
    """No task follows, because there are no more or because the next could not be had."""

    error: Exception | None = None


class OrderedTaskQueue(Generic[Task, Result]):
    """Tasks to be taken and answers to be put back, by threads."""

    def __init__(self, tasks: Iterable[Task], *, max_pending: int) -> None:
        self._tasks = iter(tasks)
        self._slots = Semaphore(max_pending)
        self._task_lock = Lock()
        self._num_taken = 0
        self._is_over = False
        self.is_closed = False
        self._put: SimpleQueue[
            tuple[int, TaskSuccess[Result] | TaskFailure | _EndOfTasks] | Exception
        ]
        self._put = SimpleQueue()

    def get_task(self) -> IndexedTask[Task] | None:
        """Wait for the next task, and for room; None when there will be no more."""
        self._slots.acquire()
        with self._task_lock:
            if not self._is_over:
                try:
                    taken = IndexedTask(self._num_taken, next(self._tasks))
                except StopIteration:
                    self._finish(_EndOfTasks())
                except Exception as error:
                    self._finish(_EndOfTasks(error))
                else:
                    self._num_taken += 1
                    return taken
        self._slots.release()
        return None

    def _finish(self, end: _EndOfTasks) -> None:
        self._is_over = True
        self._put.put((self._num_taken, end))

    def put_result(self, number: int, result: TaskSuccess[Result] | TaskFailure) -> None:
        """Put back what came of a task."""
        self._put.put((number, result))

    def fail(self, error: Exception) -> None:
        """Let the answers end in an error at once, whatever is still under way."""
        self._put.put(error)

    def close(self) -> None:
        """Let nobody wait for a task any more."""
        self.is_closed = self._is_over = True
        self._slots.release()  # whoever goes away empty-handed lets the next one in

    def results(self) -> Iterator[Result]:
        """Answers in the order of their tasks, each as soon as it can be given."""
        early: dict[int, TaskSuccess[Result] | TaskFailure | _EndOfTasks] = {}
        for number in count():
            while number not in early:
                early.update([self._next_result()])
            answer = early.pop(number)
            if isinstance(answer, _EndOfTasks):
                if answer.error is not None:
                    raise answer.error
                return
            if isinstance(answer, TaskFailure):
                answer.reraise()
            yield answer.value
            self._slots.release()

    def _next_result(self) -> tuple[int, TaskSuccess[Result] | TaskFailure | _EndOfTasks]:
        found = self._put.get()
        if isinstance(found, Exception):
            raise found
        return found


# Workers: how do several processes share the work of one?
#
# Tasks go out as workers become free and answers come back in the order of the tasks, whoever was
# faster; how many are under way is bounded. A worker that is lost ends the work at once, and nothing
# is left running when the work ends, however it ends.

_TASKS_PER_WORKER = 2  # under way for each worker: one that it does, one for whoever is faster


class WorkerDiedError(HeedfulError):
    """A worker that ended before its work was done."""

    exit_code = 1


@contextmanager
def parallel_map(
    job: Job[Task, Result], tasks: Iterable[Task], *, num_workers: int
) -> Iterator[Iterator[Result]]:
    """Give the answers to tasks, in order, made by `n_best` processes; one is this process."""
    if num_workers == 1:
        yield map(job.setup(is_shared=False), tasks)
        return
    workers = _start(job, num_workers)
    desk: OrderedTaskQueue[Task, Result] = OrderedTaskQueue(
        tasks, max_pending=_TASKS_PER_WORKER * num_workers
    )
    try:
        for worker in workers:
            Thread(target=worker.process_tasks, args=(desk,), daemon=True).start()
        Thread(target=_monitor, args=(workers, desk), daemon=True).start()
        yield desk.results()
    finally:
        desk.close()
        for worker in workers:
            worker.stop()


class _Worker(Generic[Task, Result]):
    """A process that answers tasks, as it is seen from here."""

    def __init__(self, job: Job[Task, Result], number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.number = number
        self._connection, theirs = context.Pipe()
        self.process = context.Process(target=serve_tasks, args=(job, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def process_tasks(self, task_queue: OrderedTaskQueue[Task, Result]) -> None:
        """Take tasks and put back answers until there are none; runs in a thread of its own."""
        try:
            while (taken := task_queue.get_task()) is not None:
                self._connection.send(taken.task)
                task_queue.put_result(taken.task_index, self._connection.recv())
        except (EOFError, OSError):
            pass  # the process is gone; whoever watches the processes says so

    def stop(self) -> None:
        """End the process, in the middle of anything: it holds nothing that could be lost."""
        self.process.kill()
        self.process.join()
        self._connection.close()

    def died_error(self) -> WorkerDiedError:
        """The error that says how the process ended."""
        return WorkerDiedError(
            f"worker {self.number}",
            f"the process ended before its work was done ({_describe_exit(self.process.exitcode)})",
            "if memory ran out, give fewer --num-workers; what was written so far is complete lines",
        )


def _start(job: Job[Task, Result], num_workers: int) -> list[_Worker[Task, Result]]:
    with _ignore_sigint():
        return [_Worker(job, number) for number in range(1, num_workers + 1)]


@contextmanager
def _ignore_sigint() -> Iterator[None]:
    """Start processes that no Ctrl-C reaches: this process hears it and ends them."""
    resource_tracker.ensure_running()  # unblocks the signal where it is started later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _monitor(workers: list[_Worker[Any, Any]], task_queue: OrderedTaskQueue[Any, Any]) -> None:
    """Wait until a worker ends: none does by itself."""
    ended = connection.wait([worker.process.sentinel for worker in workers])
    if task_queue.is_closed:
        return
    lost = next(worker for worker in workers if worker.process.sentinel in ended)
    lost.process.join()  # to learn how it ended
    task_queue.fail(lost.died_error())


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
