"""Counting: what a person sees while data is read and cut.

On a terminal a bar moves; elsewhere plain lines come now and then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from heedful.training.callbacks import Callback, StepMetrics, ValidationResult

_PLAIN_EVERY_SECONDS = 10.0


class ProgressReporter:
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
        self._last_printed = time.monotonic()
        self._task_name = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def __call__(self, task: str, done: int, total: int | None) -> None:
        """Show that so much of `what` is done."""
        if task != self._task_name:
            self._task_name = task
            self._bar.reset(self._task, description=task, total=total)
        self._bar.update(self._task, completed=done, total=total)
        now = time.monotonic()
        if self._is_plain and now - self._last_printed >= _PLAIN_EVERY_SECONDS:
            self._last_printed = now
            line = f"{task}: {done:,}" + ("" if total is None else f" of {total:,}")
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)


# Progress: what a person sees while a model learns.
#
# On a terminal a bar moves; elsewhere plain lines come now and then. Both show the same: step,
# loss, penalties if there are any, tokens a second, time left, steps that were skipped if any were,
# and how the model did on what is held out.

_SMOOTHING = 0.95  # of the running means, per step

FractionDone = Callable[[int], float]
"""How much of the way to the nearest limit lies behind at a step: from 0 to 1."""


def print_line(console: Console, line: str) -> None:
    """Print a line as it is: neither wrapped nor coloured nor read as markup."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


class ProgressMeter:
    """Loss, penalties and speed, smoothed over the last steps, and the time that is left."""

    def __init__(self, fraction_done: FractionDone, *, step: int = 0) -> None:
        self.fraction_done = fraction_done(step)
        self.loss = math.nan
        self.auxiliary_losses: dict[str, float] = {}
        self.num_skipped_steps = 0
        self.tokens_per_second = 0.0
        self._fraction_at = fraction_done
        self._weight = 0.0
        self._loss_weight = 0.0
        self._seconds = 0.0
        self._fraction_per_step = 0.0
        self._last = time.monotonic()

    @property
    def seconds_left(self) -> float:
        """An estimate, by how fast the share has grown; infinite while it has not."""
        return (
            (1 - self.fraction_done) * self._seconds / self._fraction_per_step
            if self._fraction_per_step > 0
            else math.inf
        )

    def update(self, metrics: StepMetrics) -> None:
        """Take in one more report."""
        now = time.monotonic()
        seconds, self._last = max(now - self._last, 1e-9), now
        share = self._fraction_at(metrics.step)
        gained, self.fraction_done = share - self.fraction_done, share
        self._weight = _SMOOTHING * self._weight + 1
        self._seconds += (seconds - self._seconds) / self._weight
        self._fraction_per_step += (gained - self._fraction_per_step) / self._weight
        speed = metrics.num_tokens / seconds
        self.tokens_per_second += (speed - self.tokens_per_second) / self._weight
        if metrics.skip_reason:
            self.num_skipped_steps += 1
        else:
            self._update_losses(metrics)

    def pause(self) -> None:
        """Do not count the time since the last report as that of a step."""
        self._last = time.monotonic()

    def _update_losses(self, metrics: StepMetrics) -> None:
        self._loss_weight = _SMOOTHING * self._loss_weight + 1
        self.loss = _running_mean(metrics.loss, self.loss, self._loss_weight)
        for name, penalty in metrics.auxiliary_losses.items():
            before = self.auxiliary_losses.get(name, penalty)
            self.auxiliary_losses[name] = _running_mean(penalty, before, self._loss_weight)

    def __str__(self) -> str:
        auxiliary_losses = [f"{name} {mean:.3f}" for name, mean in self.auxiliary_losses.items()]
        left = (
            [f"{_format_duration(self.seconds_left)} left"]
            if math.isfinite(self.seconds_left)
            else []
        )
        skipped = [f"{self.num_skipped_steps} skipped"] if self.num_skipped_steps else []
        speed = f"{self.tokens_per_second:,.0f} tokens/s"
        return "  ".join([f"loss {self.loss:.3f}", *auxiliary_losses, speed, *left, *skipped])


def _running_mean(new: float, mean: float, weight: float) -> float:
    return new if math.isnan(mean) else mean + (new - mean) / weight


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class ValidationStatus:
    """How the model did on what is held out, last and at its best."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._last: ValidationResult | None = None
        self._best: ValidationResult | None = None

    def update(self, validation: ValidationResult) -> None:
        """Take in one more validation."""
        self._last = validation
        if validation.is_best:
            self._best = validation

    def __str__(self) -> str:
        if self._last is None:
            return ""
        others = dict(self._last.scores)
        parts = f"dev {self._metric} {others.pop(self._metric):.3f}"
        if self._best is self._last:
            parts += ", the best so far"
        elif self._best is not None:
            parts += f", best {self._best.scores[self._metric]:.3f} at step {self._best.step}"
        return "  ".join([parts, *(f"{name} {score:.3f}" for name, score in others.items())])


@contextmanager
def show_progress(
    console: Console, *, step: int, fraction_done: FractionDone, metric: str = "loss"
) -> Iterator[Callback]:
    """Give an observer that shows how training goes; validations are judged by `metric`."""
    pace, status = ProgressMeter(fraction_done, step=step), ValidationStatus(metric)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _PlainTextCallback(console, pace, status)
        return
    with _ProgressBar(console, status) as bar:
        yield _BarCallback(bar, pace, status)


class _ProgressBar(Progress):
    """A bar, and below it a line on what is held out: both would be too wide for one line."""

    def __init__(self, console: Console, status: ValidationStatus) -> None:
        self._standing = status  # the first drawing happens within the next line
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
        if status := str(self._standing):
            yield Text(f"         {status}", overflow="ellipsis", no_wrap=True)


class _ProgressCallback(Callback):
    def __init__(self, pace: ProgressMeter, status: ValidationStatus) -> None:
        self._pace = pace
        self._standing = status

    def on_validation_end(self, result: ValidationResult) -> None:
        self._standing.update(result)
        self._pace.pause()


class _BarCallback(_ProgressCallback):
    def __init__(self, bar: Progress, pace: ProgressMeter, status: ValidationStatus) -> None:
        super().__init__(pace, status)
        self._bar = bar
        self._task = bar.add_task("training", total=1.0, shown="")
        bar.update(self._task, completed=pace.fraction_done)

    def on_step_end(self, metrics: StepMetrics) -> None:
        self._pace.update(metrics)
        shown = f"step {metrics.step}  {self._pace}"
        self._bar.update(self._task, completed=self._pace.fraction_done, shown=shown)


class _PlainTextCallback(_ProgressCallback):
    def __init__(self, console: Console, pace: ProgressMeter, status: ValidationStatus) -> None:
        super().__init__(pace, status)
        self._console = console
        self._last_printed = time.monotonic()

    def on_step_end(self, metrics: StepMetrics) -> None:
        self._pace.update(metrics)
        now = time.monotonic()
        if self._pace.fraction_done >= 1 or now - self._last_printed >= _PLAIN_EVERY_SECONDS:
            self._last_printed = now
            percent = f"{100 * self._pace.fraction_done:.0f} %"
            status = f"  {self._standing}".rstrip()
            print_line(self._console, f"step {metrics.step} ({percent})  {self._pace}{status}")
