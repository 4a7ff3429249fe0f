"""Worker processes and chunks: order, bounds, errors, and no process left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from multiprocessing import Pipe
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import CorruptRunError, DataError, HeedfulError
from heedful.parallel import WorkerDiedError, WorkerProcess, available_cores, worker_pool
from heedful.tasks.registry import TASKS
from heedful.tasks.translation.files import chunks_as_available, fixed_size_chunks
from tests.worker_jobs import (
    CancelledJob,
    DivideJob,
    ErrorJob,
    ExitJob,
    PidJob,
    SquareJob,
    TasksJob,
    UnreadableJob,
)

each_chunking = pytest.mark.parametrize("chunking", [fixed_size_chunks, chunks_as_available])
lists = st.lists(st.integers(), max_size=40)


def is_running(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def assert_all_end(pids):
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, "processes are still running"
        time.sleep(0.05)


def test_worker_process_runs_tasks_one_by_one_and_survives_exceptions(capfd):
    with WorkerProcess(DivideJob()) as worker:
        assert worker.run(3) == 4
        with pytest.raises(RuntimeError, match=r"a worker failed:\n(?s:.*)ZeroDivisionError"):
            worker.run(0)
        assert worker.run(4) == 3
    assert capfd.readouterr().out == ""


def test_ids_of_cancelled_streams_are_dropped_while_there_are_others():
    with WorkerProcess(CancelledJob()) as worker:
        for task in range(1, 20):
            worker.send(task, task)
            worker.cancel([task - 1])
            assert task == 1 or worker.receive() == (task - 1, "end", None)
        assert worker.run(0) < 5


@pytest.mark.parametrize("error_class", [CorruptRunError, HeedfulError])
def test_errors_of_setup_keep_class_and_text_at_every_task(error_class):
    with WorkerProcess(ErrorJob(error_class)) as worker:
        for _ in range(2):
            with pytest.raises(error_class) as caught:
                worker.run(1)
            assert type(caught.value) is error_class
            assert str(caught.value) == "the run: does not exist\n  train it"


def test_single_worker_is_this_process_and_reads_tasks_lazily():
    def tasks():
        yield 3
        pytest.fail("read before it was needed")

    with worker_pool(SquareJob(), num_workers=1) as map_tasks:
        assert next(map_tasks(tasks())) == (9, os.getpid(), False)


def test_results_of_several_workers_are_in_order_and_no_process_is_left():
    with worker_pool(SquareJob(), num_workers=2) as map_tasks:
        results = list(map_tasks(range(20)))
    assert [square for square, _, _ in results] == [number**2 for number in range(20)]
    assert all(is_shared for _, _, is_shared in results)
    pids = {pid for _, pid, _ in results}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert_all_end(pids)


def test_no_tasks_return_no_results():
    with worker_pool(SquareJob(), num_workers=2) as map_tasks:
        assert list(map_tasks([])) == []


def test_error_in_a_worker_is_raised_after_the_results_before_it():
    with worker_pool(SquareJob(), num_workers=2) as map_tasks:
        results = map_tasks([2, 1, -1, 3])
        assert [next(results)[0], next(results)[0]] == [4, 1]
        with pytest.raises(DataError, match="-1: is negative\n  use another"):
            next(results)


def test_error_while_reading_tasks_is_raised_after_the_results_before_it():
    def tasks():
        yield 2
        raise DataError("line 2", "not UTF-8", "convert it")

    with worker_pool(SquareJob(), num_workers=2) as map_tasks:
        results = map_tasks(tasks())
        assert next(results)[0] == 4
        with pytest.raises(DataError, match="line 2: not UTF-8"):
            next(results)


def test_number_of_tasks_in_flight_is_bounded():
    taken = []
    with worker_pool(SquareJob(), num_workers=2) as map_tasks:
        results = map_tasks(taken.append(number) or number for number in count())
        next(results)
        time.sleep(0.5)
        assert len(taken) <= 2 * 2


def test_result_does_not_wait_for_the_next_task():
    answered = threading.Event()

    def tasks():
        yield 5
        assert answered.wait(120), "the first result must come before the second task"
        yield 6

    with worker_pool(SquareJob(), num_workers=2) as map_tasks:
        results = map_tasks(tasks())
        assert next(results)[0] == 25
        answered.set()
        assert next(results)[0] == 36


def test_worker_that_exits_raises():
    with (
        worker_pool(ExitJob(), num_workers=2) as map_tasks,
        pytest.raises(WorkerDiedError) as caught,
    ):
        next(map_tasks([7, 7, 7]))
    assert caught.value.location in {"worker 1", "worker 2"}
    assert caught.value.message == "the process died (exit 7)"
    assert (caught.value.returncode, caught.value.exit_code) == (7, 1)


def test_worker_killed_while_idle_is_reported_at_once():
    end = threading.Event()

    def tasks():
        yield 0
        end.wait(60)

    with worker_pool(PidJob(), num_workers=2) as map_tasks:
        results = map_tasks(tasks())
        os.kill(next(results), signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="killed by SIGKILL") as caught:
            next(results)
    end.set()
    assert caught.value.hint == (
        "if memory ran out, use fewer processes or smaller batches; finished work is kept"
    )


def test_leaving_early_ends_the_workers():
    with worker_pool(PidJob(), num_workers=2) as map_tasks:
        pid = next(map_tasks(iter(int, 1)))
    assert_all_end([pid])


def test_workers_end_with_a_parent_that_is_killed():
    code = (
        "import itertools, sys\n"
        "from tests.worker_jobs import PidJob\n"
        "from heedful.parallel import worker_pool\n"
        "with worker_pool(PidJob(), num_workers=2) as map_tasks:\n"
        "    for pid in map_tasks(itertools.count()):\n"
        "        print(pid, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment
    ) as process:
        pids = {int(process.stdout.readline()) for _ in range(4)}
        process.kill()
    assert_all_end(pids)


@pytest.mark.parametrize("messages", [[], [sys.path]], ids=["no path", "no job"])
def test_worker_whose_parent_leaves_during_startup_exits_silently(messages):
    connection, child_connection = Pipe()
    command = [sys.executable, "-c", "from heedful.parallel import serve; serve()"]
    with child_connection:
        fd = child_connection.fileno()
        process = subprocess.Popen([*command, str(fd)], pass_fds=[fd], stderr=subprocess.PIPE)
    for message in messages:
        connection.send(message)
    connection.close()
    assert process.communicate(timeout=300)[1] == b""
    assert process.returncode == 1


def test_job_that_cannot_be_unpickled_ends_the_worker(capfd):
    with WorkerProcess(UnreadableJob()) as worker, pytest.raises(WorkerDiedError):
        worker.run(1)
    assert "no number" in capfd.readouterr().err


def test_workers_import_no_torch_and_not_the_main_script(tmp_path):
    """A script without `if __name__ == "__main__"` can use a pool."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from heedful.parallel import worker_pool\n"
        "from modules_job import ModulesJob\n"
        "with worker_pool(ModulesJob(), num_workers=2) as map_tasks:\n"
        "    print(*map_tasks(range(2)))\n"
    )
    (tmp_path / "modules_job.py").write_text(
        "import sys\n"
        "class ModulesJob:\n"
        "    def setup(self, *, is_shared):\n"
        "        return lambda task: 'torch' in sys.modules\n"
    )
    completed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert completed.stdout == "False False\n"


def test_available_cores_is_positive():
    assert available_cores() >= 1


@each_chunking
@given(items=lists, max_size=st.integers(1, 7))
def test_chunks_hold_all_items_in_order_and_are_not_empty(chunking, items, max_size):
    chunks = list(chunking(items, max_size=max_size))
    assert [item for chunk in chunks for item in chunk] == items
    assert all(1 <= len(chunk) <= max_size for chunk in chunks)


@given(items=lists, max_size=st.integers(1, 7))
def test_fixed_size_chunks_are_full_but_for_the_last(items, max_size):
    chunks = list(fixed_size_chunks(items, max_size=max_size))
    assert all(len(chunk) == max_size for chunk in chunks[:-1])


@each_chunking
def test_items_before_an_error_yielded_first(chunking):
    def lines():
        yield from "abc"
        raise DataError("here", "broken", "fix it")

    chunks = []
    with pytest.raises(DataError, match="here: broken"):
        chunks.extend(chunking(lines(), max_size=2))
    assert [line for chunk in chunks for line in chunk] == ["a", "b", "c"]


def test_line_that_has_arrived_does_not_wait_for_the_next():
    answered = threading.Event()

    def lines():
        yield "first"
        assert answered.wait(10), "the first line must be yielded before the second is there"
        yield "second"

    chunks = chunks_as_available(lines(), max_size=1024)
    assert next(chunks) == ["first"]
    answered.set()
    assert list(chunks) == [["second"]]


def test_lines_that_arrive_together_are_one_chunk():
    chunks = chunks_as_available(iter(range(1000)), max_size=1024, max_wait=5)
    assert next(chunks) == list(range(1000))


def test_line_waits_at_most_max_wait_however_often_others_arrive():
    def lines():
        for number in count():
            time.sleep(0.002)
            yield number

    chunk = next(chunks_as_available(lines(), max_size=5000, max_wait=0.1))
    assert 1 < len(chunk) < 5000


@each_chunking
def test_endless_stream_loads_only_a_chunk_ahead(chunking):
    read = []

    def lines():
        for number in count():
            read.append(number)
            yield number

    assert len(next(chunking(lines(), max_size=8))) <= 8
    time.sleep(0.1)
    assert len(read) <= 8 + 8 + 1  # a chunk that was yielded, one that waits, one item in hand


def test_worker_knows_tasks_that_were_added_at_run_time(monkeypatch):
    monkeypatch.setitem(TASKS, "rating", "a_package.rating")
    with WorkerProcess(TasksJob()) as worker:
        assert worker.run(None) == list(TASKS)
