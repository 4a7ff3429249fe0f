"""Worker processes: tasks go out in chunks, results come back in order.

A worker is this module in a fresh interpreter, which imports nothing of the script that started it.
A task whose function yields is a stream: its parts but None are sent one by one, and other tasks
run between them. Invariants: results come in the order of the tasks, a bounded number of tasks is
in flight, a worker that dies is noticed, and no worker outlives its parent, however that ends.
"""

import os
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import connection as connections
from multiprocessing.connection import Pipe
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import Any, Generic, Literal, NamedTuple, NoReturn, Protocol, Self, TypeVar

from heedful.errors import HeedfulError

Task = TypeVar("Task")
Result = TypeVar("Result")
Task_contra = TypeVar("Task_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)

_STREAM_END: Any = object()
_TASKS_PER_WORKER = 2  # in flight: one that is computed, one that waits
_IS_WORKER = "HEEDFUL_WORKER"  # in the environment of a worker and of what it starts
_COMMAND = [sys.executable, "-P", "-c", "from heedful.parallel import serve; serve()"]


if sys.platform == "win32":
    _WorkerConnection = connections.PipeConnection
else:
    _WorkerConnection = connections.Connection


_setup_calls: list[Callable[[], object]] = []


def call_in_workers(function: Callable[[], object]) -> None:
    """Have every worker call a function before it imports its job.

    It is pickled when a worker starts, so that its arguments are those of that moment.
    """
    _setup_calls.append(function)


class WorkerJob(Protocol[Task_contra, Result_co]):
    """Work for another process; it is pickled, so its class must be importable there."""

    def setup(self, *, is_shared: bool) -> Callable[[Task_contra], Result_co]:
        """Set up a worker, once; `is_shared` if there are multiple workers."""
        ...


class WorkerDiedError(HeedfulError):
    """A worker process that ended before its work was done."""

    exit_code = 1

    def __init__(self, name: str, returncode: int) -> None:
        killed = returncode < 0
        how = f"killed by {signal.Signals(-returncode).name}" if killed else f"exit {returncode}"
        hint = "if memory ran out, use fewer processes or smaller batches; finished work is kept"
        super().__init__(name, f"the process died ({how})", hint)
        self.returncode = returncode


cancelled: set[int] = set()
"""In a worker: what `WorkerProcess.cancel` named, until the tasks of that time have ended."""


class _Cancel(NamedTuple):
    ids: Sequence[int]


class Answer(NamedTuple):
    """What a worker sends about a task."""

    task_id: int
    kind: Literal["result", "part", "end"]
    value: Any = None

    def result(self) -> Any:
        """Return the value, or raise the exception of the task."""
        if isinstance(self.value, _Failure):
            self.value.reraise()
        return self.value


class _Failure(NamedTuple):
    """An exception in a form that can be pickled."""

    error_class: type[HeedfulError] | None  # None for exceptions that are not ours
    args: tuple[str, ...]  # of the error, or the traceback

    def reraise(self) -> NoReturn:
        if self.error_class is None:
            raise RuntimeError(f"a worker failed:\n{''.join(self.args)}")
        raise self.error_class(*self.args)


class WorkerProcess(Generic[Task, Result]):
    """A child process that runs one task at a time, and streams in turn."""

    def __init__(
        self,
        job: WorkerJob[Task, Result],
        *,
        name: str = "worker",
        is_shared: bool = False,
        argv: Sequence[str] = (),
        descriptors: Sequence[int] = (),
    ) -> None:
        """`argv` becomes `sys.argv` of the child, which inherits `descriptors` (not on Windows)."""
        self.name = name
        self._connection, child_connection = Pipe()
        with child_connection:
            handle = child_connection.fileno()
            command = [*_COMMAND, str(handle), *argv]
            options = _inherit_handle(handle, descriptors)
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
        with suppress(OSError):  # the first `run` will say that the process died
            self._connection.send(sys.path)
            self._connection.send(_setup_calls)
            self._connection.send((job, is_shared))

    def run(self, task: Task) -> Result:
        """Return the result of a task, or raise its exception."""
        self.send(0, task)
        result: Result = self.receive().result()
        return result

    def send(self, task_id: int, task: Task) -> None:
        """Queue a task; its answers have the same id."""
        self._send((task_id, task))

    def cancel(self, ids: Sequence[int]) -> None:
        """Add ids to `cancelled` of the child at once, even while a task runs."""
        self._send(_Cancel(ids))

    def receive(self) -> Answer:
        """Wait for the next answer; raise WorkerDiedError if there will be none."""
        try:
            answer: Answer = self._connection.recv()
        except (OSError, EOFError):
            raise self.wait() from None
        return answer

    def _send(self, message: Any) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise self.wait() from None

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def wait(self) -> WorkerDiedError:
        """Wait until the process dies, and return an error about it."""
        return WorkerDiedError(self.name, self._process.wait())

    def terminate(self) -> None:
        """Ask the process to stop (SIGTERM)."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the process: it has nothing that could be lost."""
        self._process.kill()

    def stop(self) -> None:
        """Kill the process, and close the connection to it."""
        self.kill()
        self._process.wait()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


def _inherit_handle(handle: int, descriptors: Sequence[int]) -> dict[str, Any]:
    """Return options for a child that has this handle, and no Ctrl-C, which is for the parent."""
    if sys.platform == "win32":
        os.set_handle_inheritable(handle, True)
        startup = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})
        return {"startupinfo": startup, "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"pass_fds": [handle, *descriptors], "start_new_session": True}


def serve() -> None:
    """Run the tasks of a `WorkerProcess`: the main function of the child."""
    connection = _WorkerConnection(int(sys.argv[1]))
    sys.argv[:2] = []
    os.environ[_IS_WORKER] = "1"
    os.dup2(2, 1)  # what libraries print is no output of the program
    tasks: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_receive_tasks, args=(connection, tasks), daemon=True).start()
    job, is_shared = tasks.get()
    function: Any = _catch_errors(partial(job.setup, is_shared=is_shared))
    streams: dict[int, Iterator[Any]] = {}
    waiting: deque[tuple[int, Any]] = deque()
    stale: set[int] = set()  # what was canceled at a moment
    unfinished: set[int] = set()  # the tasks of that moment
    while True:
        if unfinished.isdisjoint([*streams, *(task_id for task_id, _ in waiting)]):
            cancelled.difference_update(stale)
            stale = set(cancelled)  # before the queue, which has the tasks that these belong to
            waiting.extend(_take_all(tasks))
            unfinished = {*streams, *(task_id for task_id, _ in waiting)}
        if not waiting:
            with suppress(Empty):
                waiting.append(tasks.get(block=not streams))
        if waiting:
            task_id, task = waiting.popleft()
            is_ready = not isinstance(function, _Failure)
            value = _catch_errors(partial(function, task)) if is_ready else function
            if isinstance(value, Generator):
                streams[task_id] = value
            else:
                connection.send(Answer(task_id, "result", value))
        _send_next_parts(streams, connection)


def _send_next_parts(streams: dict[int, Iterator[Any]], connection: _WorkerConnection) -> None:
    """Send the next part of each stream, and remove streams that have ended."""
    for task_id, stream in list(streams.items()):
        part = _catch_errors(partial(next, stream, _STREAM_END))
        if part is not _STREAM_END and part is not None:
            connection.send(Answer(task_id, "part", part))
        if part is _STREAM_END or isinstance(part, _Failure):
            connection.send(Answer(task_id, "end"))
            del streams[task_id]


def _take_all(tasks: SimpleQueue[Any]) -> Iterator[Any]:
    """Yield what is in a queue without waiting."""
    with suppress(Empty):
        while True:
            yield tasks.get_nowait()


def _receive_tasks(connection: _WorkerConnection, tasks: SimpleQueue[Any]) -> None:
    """Queue tasks; exit the process, in the middle of anything, when the parent is gone."""
    try:
        sys.path[:] = connection.recv()  # the next messages are imported from there
        for function in connection.recv():
            function()
        while True:
            message = connection.recv()
            if isinstance(message, _Cancel):
                cancelled.update(message.ids)
            else:
                tasks.put(message)
    except (OSError, EOFError):
        os._exit(1)
    except BaseException:  # a job that cannot be imported; nobody would answer the parent
        traceback.print_exc()
        os._exit(1)


def _catch_errors(function: Callable[[], Result]) -> Result | _Failure:
    try:
        return function()
    except HeedfulError as error:
        return _Failure(type(error), (error.location, error.message, error.hint))
    except Exception:
        return _Failure(None, tuple(traceback.format_exc().splitlines(keepends=True)))


def is_worker() -> bool:
    """Return whether this process was started by another one that shares out the cores."""
    return _IS_WORKER in os.environ


def available_cores() -> int:
    """Return the number of CPU cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


@contextmanager
def worker_pool(
    job: WorkerJob[Task, Result], *, num_workers: int
) -> Iterator[Callable[[Iterable[Task]], Iterator[Result]]]:
    """Yield a parallel `map`: results in order, as soon as they are there.

    One worker means this process. Tasks are read in a thread, as far ahead as workers need them.
    """
    if num_workers == 1:
        function = job.setup(is_shared=False)
        yield lambda tasks: map(function, tasks)
        return
    with ExitStack() as stack:
        workers = [
            stack.enter_context(WorkerProcess(job, name=f"worker {number}", is_shared=True))
            for number in range(1, num_workers + 1)
        ]
        pool = _Pool(workers)
        stack.callback(pool.close)  # before the workers are killed
        yield pool.map


class _Pool(Generic[Task, Result]):
    """Threads that hand tasks to workers."""

    def __init__(self, workers: Sequence[WorkerProcess[Task, Result]]) -> None:
        self._threads = ThreadPoolExecutor(len(workers), thread_name_prefix="worker pool")
        self._slots = Semaphore(_TASKS_PER_WORKER * len(workers))
        self._is_closed = False
        self._idle: SimpleQueue[WorkerProcess[Task, Result]] = SimpleQueue()
        self._futures: SimpleQueue[Future[Result] | None] = SimpleQueue()
        for worker in workers:
            self._idle.put(worker)
            Thread(target=self._watch, args=(worker,), daemon=True).start()

    def map(self, tasks: Iterable[Task]) -> Iterator[Result]:
        Thread(target=self._submit, args=(tasks,), daemon=True).start()
        for future in iter(self._futures.get, None):
            yield future.result()
            self._slots.release()

    def close(self) -> None:
        self._is_closed = True
        self._slots.release()  # for the thread that submits
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _submit(self, tasks: Iterable[Task]) -> None:
        iterator = iter(tasks)
        while True:
            self._slots.acquire()
            if self._is_closed:
                return
            try:
                self._futures.put(self._threads.submit(self._run, next(iterator)))
            except StopIteration:
                self._slots.release()
                self._futures.put(None)
                return
            except Exception as error:  # raised where the results are used
                self._fail(error)
                return

    def _run(self, task: Task) -> Result:
        worker = self._idle.get()
        try:
            return worker.run(task)
        finally:
            self._idle.put(worker)

    def _watch(self, worker: WorkerProcess[Task, Result]) -> None:
        """Report a worker that dies while it is idle."""
        error = worker.wait()
        if not self._is_closed:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        future: Future[Result] = Future()
        future.set_exception(error)
        self._futures.put(future)
