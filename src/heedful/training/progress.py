"""Progress: what a person sees while a model learns.

On a terminal a bar moves; elsewhere plain lines come now and then. Both show the same: step,
loss, tokens a second, time left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from heedful.training.engine import Observer, Report

_PLAIN_EVERY_SECONDS = 10.0
_MEMORY = 0.95  # of the running means, per step


class RunningMeans:
    """Loss and speed, smoothed over the last steps."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.tokens_per_second = 0.0
        self._weight = 0.0
        self._last = time.monotonic()

    def take(self, report: Report) -> None:
        """Take in one more report."""
        now = time.monotonic()
        self._weight = _MEMORY * self._weight + 1
        share = 1 / self._weight
        speed = report.num_tokens / max(now - self._last, 1e-9)
        self.loss += share * (report.loss - self.loss)
        self.tokens_per_second += share * (speed - self.tokens_per_second)
        self._last = now


def say(console: Console, line: str) -> None:
    """Print a line as it is: neither wrapped nor coloured nor read as markup."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def watching(console: Console, *, step: int, max_steps: int) -> Iterator[Observer]:
    """Give an observer that shows how training goes."""
    if not console.is_terminal:
        yield _PlainLines(console, step=step, max_steps=max_steps)
        return
    bar = Progress(
        TextColumn("[bold]training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TextColumn("{task.fields[speed]:,.0f} tokens/s"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("training", total=max_steps, completed=step, loss=0.0, speed=0.0)
        yield _Bar(bar, task)


class _Bar:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task
        self._means = RunningMeans()

    def __call__(self, report: Report) -> None:
        means = self._means
        means.take(report)
        self._bar.update(
            self._task, completed=report.step, loss=means.loss, speed=means.tokens_per_second
        )


class _PlainLines:
    def __init__(self, console: Console, *, step: int, max_steps: int) -> None:
        self._console = console
        self._max_steps = max_steps
        self._means = RunningMeans()
        self._first_step = step
        self._began = self._said = time.monotonic()

    def __call__(self, report: Report) -> None:
        self._means.take(report)
        now = time.monotonic()
        if now - self._said < _PLAIN_EVERY_SECONDS and report.step < self._max_steps:
            return
        self._said = now
        per_step = (now - self._began) / (report.step - self._first_step)
        left = per_step * (self._max_steps - report.step)
        say(
            self._console,
            f"step {report.step}/{self._max_steps}  loss {self._means.loss:.3f}  "
            f"{self._means.tokens_per_second:,.0f} tokens/s  "
            f"{int(left // 60)}:{int(left % 60):02d} left",
        )
