"""Interrupts: a wish to stop, heard at the end of a step instead of in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from heedful.errors import StorageError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class UnsavedError(StorageError):
    """Told to stop, and the work could not be saved."""

    exit_code = 143


@contextmanager
def listening_for_interrupts() -> Iterator[Callable[[], bool]]:
    """Give a question to ask: has someone pressed Ctrl-C, or sent SIGTERM or SIGUSR1?

    A second signal acts at once, as it would have without us. Signals reach the main thread
    only; elsewhere the answer is always no.
    """
    heard = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield heard.is_set
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def hear(number: int, frame: FrameType | None) -> None:
        del frame
        heard.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in SIGNALS:
        signal.signal(number, hear)
    try:
        yield heard.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
