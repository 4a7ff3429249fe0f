"""Progress on the console, while data is prepared and while a model is trained.

On a terminal there is a bar; elsewhere a line is printed every ten seconds. Both show the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
from typing_extensions import override

from heedful.training.callbacks import Callback, StepMetrics, ValidationResult

_PLAIN_EVERY_SECONDS = 10.0
_SMOOTHING = 0.95  # decay of the running means, per step

FractionDone = Callable[[int], float]
"""From a step to the fraction of training that is done, 0 to 1."""


def print_line(console: Console, line: str) -> None:
    """Print a line without wrapping, highlighting or markup."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


class ProgressReporter:
    """Shows the progress of data preparation."""

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

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, task: str, done: int, total: int | None) -> None:
        """Show that `done` of `total` items of a task are done."""
        if task != self._task_name:
            self._task_name = task
            self._bar.reset(self._task, description=task, total=total)
        self._bar.update(self._task, completed=done, total=total)
        now = time.monotonic()
        if self._is_plain and now - self._last_printed >= _PLAIN_EVERY_SECONDS:
            self._last_printed = now
            line = f"{task}: {done:,}" + ("" if total is None else f" of {total:,}")
            print_line(self._console, line)


class ProgressMeter:
    """Running means of losses and speed, and the estimated time left."""

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
        """The estimated time left; infinity while there is no progress."""
        return (
            (1 - self.fraction_done) * self._seconds / self._fraction_per_step
            if self._fraction_per_step > 0
            else math.inf
        )

    def update(self, metrics: StepMetrics) -> None:
        """Add the metrics of a step."""
        now = time.monotonic()
        seconds, self._last = max(now - self._last, 1e-9), now
        fraction = self._fraction_at(metrics.step)
        gained, self.fraction_done = fraction - self.fraction_done, fraction
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
        """Exclude the time since the last step."""
        self._last = time.monotonic()

    def _update_losses(self, metrics: StepMetrics) -> None:
        self._loss_weight = _SMOOTHING * self._loss_weight + 1
        self.loss = _running_mean(metrics.loss, self.loss, self._loss_weight)
        for name, loss in metrics.auxiliary_losses.items():
            mean = self.auxiliary_losses.get(name, loss)
            self.auxiliary_losses[name] = _running_mean(loss, mean, self._loss_weight)

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
    """The last validation and the best one, as text."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._last: ValidationResult | None = None
        self._best: ValidationResult | None = None

    def update(self, validation: ValidationResult) -> None:
        """Add a validation."""
        self._last = validation
        if validation.is_best:
            self._best = validation

    def __str__(self) -> str:
        if self._last is None:
            return ""
        others = dict(self._last.scores)
        parts = f"dev {self._metric} {others.pop(self._metric):.3f}"
        if self._best is self._last:
            parts += " (best)"
        elif self._best is not None:
            parts += f", best {self._best.scores[self._metric]:.3f} at step {self._best.step}"
        return "  ".join([parts, *(f"{name} {score:.3f}" for name, score in others.items())])


@contextmanager
def show_progress(
    console: Console, *, step: int, fraction_done: FractionDone, metric: str = "loss"
) -> Iterator[Callback]:
    """Yield a callback that shows progress; `metric` is that for the best model."""
    meter, status = ProgressMeter(fraction_done, step=step), ValidationStatus(metric)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _PlainTextCallback(console, meter, status)
        return
    with _ProgressBar(console, status) as bar:
        yield _BarCallback(bar, meter, status)


class _ProgressBar(Progress):
    """A bar, and below it a line on validations: one line would be too wide."""

    def __init__(self, console: Console, status: ValidationStatus) -> None:
        self._status = status  # drawn within the next line
        super().__init__(
            TextColumn("[bold]training"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[shown]}", markup=False),
            console=console,
            transient=True,
        )

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if status := str(self._status):
            yield Text(f"         {status}", overflow="ellipsis", no_wrap=True)


class _ProgressCallback(Callback):
    def __init__(self, meter: ProgressMeter, status: ValidationStatus) -> None:
        self._meter = meter
        self._status = status

    @override
    def on_validation_end(self, result: ValidationResult) -> None:
        self._status.update(result)
        self._meter.pause()


class _BarCallback(_ProgressCallback):
    def __init__(self, bar: Progress, meter: ProgressMeter, status: ValidationStatus) -> None:
        super().__init__(meter, status)
        self._bar = bar
        self._task = bar.add_task("training", total=1.0, shown="")
        bar.update(self._task, completed=meter.fraction_done)

    @override
    def on_step_end(self, metrics: StepMetrics) -> None:
        self._meter.update(metrics)
        shown = f"step {metrics.step}  {self._meter}"
        self._bar.update(self._task, completed=self._meter.fraction_done, shown=shown)


class _PlainTextCallback(_ProgressCallback):
    def __init__(self, console: Console, meter: ProgressMeter, status: ValidationStatus) -> None:
        super().__init__(meter, status)
        self._console = console
        self._last_printed = time.monotonic()

    @override
    def on_step_end(self, metrics: StepMetrics) -> None:
        self._meter.update(metrics)
        now = time.monotonic()
        if self._meter.fraction_done >= 1 or now - self._last_printed >= _PLAIN_EVERY_SECONDS:
            self._last_printed = now
            percent = f"{100 * self._meter.fraction_done:.0f} %"
            status = f"  {self._status}".rstrip()
            print_line(self._console, f"step {metrics.step} ({percent})  {self._meter}{status}")
