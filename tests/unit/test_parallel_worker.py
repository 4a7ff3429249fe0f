import multiprocessing
import threading

import pytest

from heedful.errors import CorruptRunError, DataError, HeedfulError
from heedful.parallel import Job, TaskFailure, TaskSuccess, run_catching_errors, serve_tasks


class Dividing(Job[int, float]):
    """Divide 12; a number says what goes wrong."""

    def setup(self, *, is_shared):
        assert is_shared
        return lambda number: 12 / number


class Unready(Job[int, float]):
    def setup(self, *, is_shared):
        raise DataError("the run", "is not there", "train it")


@pytest.fixture
def conversation():
    """Let a worker serve in a thread of this process."""
    started = []

    def start(job):
        here, there = multiprocessing.Pipe()
        thread = threading.Thread(target=serve_tasks, args=(job, there), daemon=True)
        thread.start()
        started.append((here, thread))
        return here

    yield start
    for here, thread in started:
        here.close()
        thread.join(10)
        assert not thread.is_alive(), "a worker ends when nobody can ask it any more"


def test_a_worker_answers_one_task_after_another_and_survives_errors(conversation):
    connection = conversation(Dividing())
    for task, is_well in [(3, True), (0, False), (4, True)]:
        connection.send(task)
        answer = connection.recv()
        assert isinstance(answer, TaskSuccess) == is_well
        if is_well:
            assert answer.value == 12 / task


def test_a_worker_that_could_not_make_itself_ready_says_why_whatever_it_is_asked(conversation):
    connection = conversation(Unready())
    for _ in range(2):
        connection.send(1)
        with pytest.raises(DataError, match="the run: is not there\n  train it"):
            connection.recv().reraise()


@pytest.mark.parametrize("kind", [DataError, CorruptRunError, HeedfulError])
def test_errors_keep_their_kind_and_words_on_the_way(kind):
    def fail():
        raise kind("here", "this", "that")

    with pytest.raises(kind) as caught:
        run_catching_errors(fail).reraise()
    assert str(caught.value) == "here: this\n  that"
    assert caught.value.exit_code == kind.exit_code


def test_an_error_that_nobody_meant_comes_with_its_traceback():
    found = run_catching_errors(lambda: {}["absent"])
    assert isinstance(found, TaskFailure)
    with pytest.raises(RuntimeError, match=r"a worker failed:\n(?s:.*)KeyError: 'absent'"):
        found.reraise()
