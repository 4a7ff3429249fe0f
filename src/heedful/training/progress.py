"""Progress: what a person sees while a model learns.

On a terminal a bar moves; elsewhere plain lines come now and then. Both show the same: step,
loss, penalties if there are any, tokens a second, time left, steps that were skipped if any were,
and how the model did on what is held out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from heedful.training.observers import Observer, Report, Validation

_PLAIN_EVERY_SECONDS = 10.0
_MEMORY = 0.95  # of the running means, per step

Share = Callable[[int], float]
"""How much of the way to the nearest limit lies behind at a step: from 0 to 1."""


def say(console: Console, line: str) -> None:
    """Print a line as it is: neither wrapped nor coloured nor read as markup."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


class Pace:
    """Loss, penalties and speed, smoothed over the last steps, and the time that is left."""

    def __init__(self, share: Share, *, step: int = 0) -> None:
        self.share = share(step)
        self.loss = math.nan
        self.penalties: dict[str, float] = {}
        self.num_skipped = 0
        self.tokens_per_second = 0.0
        self._share_at = share
        self._weight = 0.0
        self._learned = 0.0
        self._seconds = 0.0
        self._gained = 0.0
        self._last = time.monotonic()

    @property
    def seconds_left(self) -> float:
        """An estimate, by how fast the share has grown; infinite while it has not."""
        return (1 - self.share) * self._seconds / self._gained if self._gained > 0 else math.inf

    def take(self, report: Report) -> None:
        """Take in one more report."""
        now = time.monotonic()
        seconds, self._last = max(now - self._last, 1e-9), now
        share = self._share_at(report.step)
        gained, self.share = share - self.share, share
        self._weight = _MEMORY * self._weight + 1
        self._seconds += (seconds - self._seconds) / self._weight
        self._gained += (gained - self._gained) / self._weight
        speed = report.num_tokens / seconds
        self.tokens_per_second += (speed - self.tokens_per_second) / self._weight
        if report.skipped:
            self.num_skipped += 1
        else:
            self._learn(report)

    def pause(self) -> None:
        """Do not count the time since the last report as that of a step."""
        self._last = time.monotonic()

    def _learn(self, report: Report) -> None:
        self._learned = _MEMORY * self._learned + 1
        self.loss = _towards(report.loss, self.loss, self._learned)
        for name, penalty in report.penalties.items():
            before = self.penalties.get(name, penalty)
            self.penalties[name] = _towards(penalty, before, self._learned)

    def __str__(self) -> str:
        penalties = [f"{name} {mean:.3f}" for name, mean in self.penalties.items()]
        left = [f"{_clock(self.seconds_left)} left"] if math.isfinite(self.seconds_left) else []
        skipped = [f"{self.num_skipped} skipped"] if self.num_skipped else []
        speed = f"{self.tokens_per_second:,.0f} tokens/s"
        return "  ".join([f"loss {self.loss:.3f}", *penalties, speed, *left, *skipped])


def _towards(new: float, mean: float, weight: float) -> float:
    return new if math.isnan(mean) else mean + (new - mean) / weight


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Standing:
    """How the model did on what is held out, last and at its best."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._last: Validation | None = None
        self._best: Validation | None = None

    def take(self, validation: Validation) -> None:
        """Take in one more validation."""
        self._last = validation
        if validation.is_best:
            self._best = validation

    def __str__(self) -> str:
        if self._last is None:
            return ""
        others = dict(self._last.scores)
        told = f"dev {self._metric} {others.pop(self._metric):.3f}"
        if self._best is self._last:
            told += ", the best so far"
        elif self._best is not None:
            told += f", best {self._best.scores[self._metric]:.3f} at step {self._best.step}"
        return "  ".join([told, *(f"{name} {score:.3f}" for name, score in others.items())])


@contextmanager
def watching(
    console: Console, *, step: int, share: Share, metric: str = "loss"
) -> Iterator[Observer]:
    """Give an observer that shows how training goes; validations are judged by `metric`."""
    pace, standing = Pace(share, step=step), Standing(metric)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _PlainLines(console, pace, standing)
        return
    with _BarAndStanding(console, standing) as bar:
        yield _Bar(bar, pace, standing)


class _BarAndStanding(Progress):
    """A bar, and below it a line on what is held out: both would be too wide for one line."""

    def __init__(self, console: Console, standing: Standing) -> None:
        self._standing = standing  # the first drawing happens within the next line
        super().__init__(
            TextColumn("[bold]training"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[shown]}", markup=False),
            console=console,
            transient=True,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """What is drawn."""
        yield from super().get_renderables()
        if standing := str(self._standing):
            yield Text(f"         {standing}", overflow="ellipsis", no_wrap=True)


class _Watcher(Observer):
    def __init__(self, pace: Pace, standing: Standing) -> None:
        self._pace = pace
        self._standing = standing

    def validated(self, validation: Validation) -> None:
        self._standing.take(validation)
        self._pace.pause()


class _Bar(_Watcher):
    def __init__(self, bar: Progress, pace: Pace, standing: Standing) -> None:
        super().__init__(pace, standing)
        self._bar = bar
        self._task = bar.add_task("training", total=1.0, shown="")
        bar.update(self._task, completed=pace.share)

    def updated(self, report: Report) -> None:
        self._pace.take(report)
        shown = f"step {report.step}  {self._pace}"
        self._bar.update(self._task, completed=self._pace.share, shown=shown)


class _PlainLines(_Watcher):
    def __init__(self, console: Console, pace: Pace, standing: Standing) -> None:
        super().__init__(pace, standing)
        self._console = console
        self._said = time.monotonic()

    def updated(self, report: Report) -> None:
        self._pace.take(report)
        now = time.monotonic()
        if self._pace.share >= 1 or now - self._said >= _PLAIN_EVERY_SECONDS:
            self._said = now
            percent = f"{100 * self._pace.share:.0f} %"
            standing = f"  {self._standing}".rstrip()
            say(self._console, f"step {report.step} ({percent})  {self._pace}{standing}")
