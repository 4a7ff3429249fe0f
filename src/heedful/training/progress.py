"""Progress: what a person sees while a model learns.

On a terminal a bar moves; elsewhere plain lines come now and then. Both show the same: step,
loss, penalties if there are any, tokens a second, time left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from heedful.training.engine import Observer, Report

_PLAIN_EVERY_SECONDS = 10.0
_MEMORY = 0.95  # of the running means, per step


def say(console: Console, line: str) -> None:
    """Print a line as it is: neither wrapped nor coloured nor read as markup."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


class Pace:
    """Loss, penalties and speed, smoothed over the last steps, and the time that is left."""

    def __init__(self, *, max_steps: int, max_seconds: float) -> None:
        self.max_steps = max_steps
        self.loss = 0.0
        self.penalties: dict[str, float] = {}
        self.tokens_per_second = 0.0
        self.seconds_left = 0.0
        self._weight = 0.0
        self._per_step = 0.0
        self._last = time.monotonic()
        self._end = self._last + max_seconds

    def take(self, report: Report) -> None:
        """Take in one more report."""
        now = time.monotonic()
        seconds, self._last = max(now - self._last, 1e-9), now
        self._weight = _MEMORY * self._weight + 1
        share = 1 / self._weight
        self.loss += share * (report.loss - self.loss)
        for name, penalty in report.penalties.items():
            before = self.penalties.get(name, penalty)
            self.penalties[name] = before + share * (penalty - before)
        self.tokens_per_second += share * (report.num_tokens / seconds - self.tokens_per_second)
        self._per_step += share * (seconds - self._per_step)
        steps_take = self._per_step * (self.max_steps - report.step)
        self.seconds_left = max(0.0, min(steps_take, self._end - now))

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds_left), 60)
        penalties = "".join(f"  {name} {mean:.3f}" for name, mean in self.penalties.items())
        return (
            f"loss {self.loss:.3f}{penalties}  {self.tokens_per_second:,.0f} tokens/s  "
            f"{minutes}:{seconds:02d} left"
        )


@contextmanager
def watching(
    console: Console, *, step: int, max_steps: int, max_seconds: float = math.inf
) -> Iterator[Observer]:
    """Give an observer that shows how training goes."""
    pace = Pace(max_steps=max_steps, max_seconds=max_seconds)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _PlainLines(console, pace)
        return
    columns = (
        TextColumn("[bold]training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("training", total=max_steps, completed=step, pace="")
        yield _Bar(bar, task, pace)


class _Bar:
    def __init__(self, bar: Progress, task: TaskID, pace: Pace) -> None:
        self._bar = bar
        self._task = task
        self._pace = pace

    def __call__(self, report: Report) -> None:
        self._pace.take(report)
        self._bar.update(self._task, completed=report.step, pace=str(self._pace))


class _PlainLines:
    def __init__(self, console: Console, pace: Pace) -> None:
        self._console = console
        self._pace = pace
        self._said = time.monotonic()

    def __call__(self, report: Report) -> None:
        self._pace.take(report)
        now = time.monotonic()
        is_last = report.step == self._pace.max_steps
        if is_last or now - self._said >= _PLAIN_EVERY_SECONDS:
            self._said = now
            say(self._console, f"step {report.step}/{self._pace.max_steps}  {self._pace}")
