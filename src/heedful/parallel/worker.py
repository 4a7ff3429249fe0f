"""A worker: what does a process do that was started to share the work?

It makes itself ready once, answers one task after another, and ends when the process that started
it closes the connection or ends itself, in whatever way: no worker outlives its starter.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from heedful.errors import HeedfulError

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Made = TypeVar("Made")


class Job(ABC, Generic[Task, Answer]):
    """Work that can be sent to another process and made ready there."""

    @abstractmethod
    def begin(self, *, is_shared: bool) -> Callable[[Task], Answer]:
        """Make ready, once; `is_shared` says that other processes do the same work beside."""


class Done(NamedTuple, Generic[Made]):
    """What came of a task."""

    value: Made


class Failed(NamedTuple):
    """What went wrong with a task, in a form that can be sent."""

    kind: type[HeedfulError] | None  # None for what heedful does not raise on purpose
    words: tuple[str, ...]  # of the error, or the traceback

    def throw(self) -> NoReturn:
        """Raise the error where it is heard."""
        if self.kind is None:
            raise RuntimeError(f"a worker failed:\n{''.join(self.words)}")
        raise self.kind(*self.words)


def serve(job: Job[Any, Any], connection: Connection) -> None:
    """Answer tasks until nobody asks any more."""
    Thread(target=_end_with_parent, daemon=True).start()
    begun = attempt(partial(job.begin, is_shared=True))
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(begun if isinstance(begun, Failed) else attempt(begun.value, task))


def attempt(make: Callable[..., Made], *given: object) -> Done[Made] | Failed:
    """Do something, and give what came of it or what went wrong."""
    try:
        return Done(make(*given))
    except HeedfulError as error:
        return Failed(type(error), (error.at, error.problem, error.remedy))
    except Exception:
        return Failed(None, tuple(traceback.format_exc().splitlines(keepends=True)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:  # else whoever asks is this process itself
        parent.join()
        os._exit(1)  # from any thread, in the middle of anything
