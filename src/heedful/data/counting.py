"""Counting: what a person sees while data is read and cut.

On a terminal a bar moves; elsewhere plain lines come now and then.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_PLAIN_EVERY_SECONDS = 10.0


class Counting:
    """Is told what is done and how far it has come."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        is_plain = not console.is_terminal or console.is_dumb_terminal
        self._bar = Progress(*columns, console=console, transient=True, disable=is_plain)
        self._task = self._bar.add_task("")
        self._is_plain = is_plain
        self._said = time.monotonic()
        self._what = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Show that so much of `what` is done."""
        if what != self._what:
            self._what = what
            self._bar.reset(self._task, description=what, total=total)
        self._bar.update(self._task, completed=done, total=total)
        now = time.monotonic()
        if self._is_plain and now - self._said >= _PLAIN_EVERY_SECONDS:
            self._said = now
            line = f"{what}: {done:,}" + ("" if total is None else f" of {total:,}")
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
