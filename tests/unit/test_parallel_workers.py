import multiprocessing
import os
import signal
import threading
import time

import pytest

from heedful.errors import DataError
from heedful.parallel import Job, WorkerDiedError, parallel_map


class Squaring(Job[int, tuple[int, int]]):
    """Square numbers, the larger the faster; give the process too."""

    def setup(self, *, is_shared):
        assert is_shared == (multiprocessing.parent_process() is not None)
        return self.square

    def square(self, number):
        if number < 0:
            raise DataError(str(number), "is negative", "give another")
        time.sleep(0.05 / (1 + number))
        return number**2, os.getpid()


class Dying(Job[int, int]):
    """End without a word."""

    def setup(self, *, is_shared):
        return os._exit


class Waiting(Job[int, int]):
    """Say which process this is, again and again."""

    def setup(self, *, is_shared):
        return lambda number: os.getpid()


def is_gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_one_process_is_this_one_and_makes_itself_ready_before_it_reads():
    def tasks():
        yield 3
        pytest.fail("read before it was asked for")

    with parallel_map(Squaring(), tasks(), num_workers=1) as answers:
        assert next(answers) == (9, os.getpid())


def test_answers_of_several_processes_come_in_order_and_none_is_left_running():
    with parallel_map(Squaring(), range(20), num_workers=2) as answers:
        found = list(answers)
    assert [answer for answer, _ in found] == [number**2 for number in range(20)]
    processes = {process for _, process in found}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert all(map(is_gone, processes))


def test_an_error_in_a_worker_is_raised_here_after_the_answers_before_it():
    with parallel_map(Squaring(), [2, 1, -1, 3], num_workers=2) as answers:
        assert [next(answers)[0], next(answers)[0]] == [4, 1]
        with pytest.raises(DataError, match="-1: is negative\n  give another"):
            next(answers)


def test_a_worker_that_ends_by_itself_is_missed():
    with (
        parallel_map(Dying(), [7, 7, 7], num_workers=2) as answers,
        pytest.raises(WorkerDiedError) as caught,
    ):
        next(answers)
    assert caught.value.location in {"worker 1", "worker 2"}
    assert caught.value.message == "the process ended before its work was done (exit code 7)"
    assert caught.value.exit_code == 1


def test_a_worker_that_is_killed_while_it_waits_is_missed_at_once():
    """Nothing comes, nobody asks, and yet the loss is noticed."""
    hold = threading.Event()

    def tasks():
        yield 0
        hold.wait(60)

    with parallel_map(Waiting(), tasks(), num_workers=2) as answers:
        os.kill(next(answers), signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="killed by SIGKILL") as caught:
            next(answers)
    hold.set()
    assert caught.value.hint == (
        "if memory ran out, give fewer --workers; what was written so far is complete lines"
    )


def test_leaving_early_ends_the_workers():
    with parallel_map(Waiting(), iter(int, 1), num_workers=2) as answers:
        process = next(answers)
    assert is_gone(process)
