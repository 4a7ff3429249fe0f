"""The desk: where do several threads take tasks, and how do answers come into order again?

Every task is taken once, in order; answers are given in the same order. At most `most_open` tasks
are taken and not yet answered for, so that neither end runs away from the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from queue import SimpleQueue
from threading import Lock, Semaphore
from typing import Generic, NamedTuple

from heedful.parallel.worker import Answer, Done, Failed, Task


class Taken(NamedTuple, Generic[Task]):
    """A task and its place in the order."""

    number: int
    task: Task


class _Over(NamedTuple):
    """No task follows, because there are no more or because the next could not be had."""

    error: Exception | None = None


class Desk(Generic[Task, Answer]):
    """Tasks to be taken and answers to be put back, by threads."""

    def __init__(self, tasks: Iterable[Task], *, most_open: int) -> None:
        self._tasks = iter(tasks)
        self._room = Semaphore(most_open)
        self._turn = Lock()
        self._num_taken = 0
        self._is_over = False
        self.is_closed = False
        self._put: SimpleQueue[tuple[int, Done[Answer] | Failed | _Over] | Exception]
        self._put = SimpleQueue()

    def take(self) -> Taken[Task] | None:
        """Wait for the next task, and for room; None when there will be no more."""
        self._room.acquire()
        with self._turn:
            if not self._is_over:
                try:
                    taken = Taken(self._num_taken, next(self._tasks))
                except StopIteration:
                    self._end(_Over())
                except Exception as error:
                    self._end(_Over(error))
                else:
                    self._num_taken += 1
                    return taken
        self._room.release()
        return None

    def _end(self, over: _Over) -> None:
        self._is_over = True
        self._put.put((self._num_taken, over))

    def put(self, number: int, answer: Done[Answer] | Failed) -> None:
        """Put back what came of a task."""
        self._put.put((number, answer))

    def fail(self, error: Exception) -> None:
        """Let the answers end in an error at once, whatever is still under way."""
        self._put.put(error)

    def close(self) -> None:
        """Let nobody wait for a task any more."""
        self.is_closed = self._is_over = True
        self._room.release()  # whoever goes away empty-handed lets the next one in

    def answers(self) -> Iterator[Answer]:
        """Answers in the order of their tasks, each as soon as it can be given."""
        early: dict[int, Done[Answer] | Failed | _Over] = {}
        for number in count():
            while number not in early:
                early.update([self._next()])
            answer = early.pop(number)
            if isinstance(answer, _Over):
                if answer.error is not None:
                    raise answer.error
                return
            if isinstance(answer, Failed):
                answer.throw()
            yield answer.value
            self._room.release()

    def _next(self) -> tuple[int, Done[Answer] | Failed | _Over]:
        found = self._put.get()
        if isinstance(found, Exception):
            raise found
        return found
