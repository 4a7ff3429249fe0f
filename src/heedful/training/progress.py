"""Progress on the console, while data is prepared and while a model is trained.

On a terminal there is a bar; elsewhere a line is printed every ten seconds. Both show the same.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from rich import progress
from rich.console import Console, RenderableType
from rich.text import Text
from typing_extensions import override

from heedful.terminal import print_message
from heedful.training.callbacks import Callback, LoggedSample, StepMetrics, ValidationResult

_PLAIN_EVERY_SECONDS = 10.0
_SHOWN_SAMPLES = 3
_LINE_END = " / "  # in a sample
_SMOOTHING = 0.95  # decay of the running means of losses, per step
_SPEED_SMOOTHING = 0.99  # of time and tokens: on a GPU ten steps are reported at once

FractionDone = Callable[[int], float]
"""From a step to the fraction of training that is done, 0 to 1."""


_LOGGER = logging.getLogger("heedful.progress")
_LOGGER.setLevel(logging.INFO)
_LOGGER.propagate = False  # the lines are on the console already


def print_line(console: Console, line: str) -> None:
    """Print a line without wrapping, highlighting or markup, and log it."""
    print_message(console, line)
    log_line(line)


def log_line(line: str) -> None:
    """Write a line to the log file, if there is one."""
    _LOGGER.info(line)


class _LogFile(logging.FileHandler):
    """A log file whose errors end nothing: the disk may be full."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Append each line that is printed to a file, with the time, and the error at the end."""
    handler = _LogFile(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    _LOGGER.addHandler(handler)
    try:
        yield
    except BaseException as error:
        log_line(f"{type(error).__name__}: {error}")
        raise
    finally:
        _LOGGER.removeHandler(handler)
        handler.close()


def print_samples(console: Console, samples: Sequence[LoggedSample]) -> None:
    """Print predictions with source and reference; on a terminal each in one line."""
    for sample in samples[:_SHOWN_SAMPLES]:
        texts = {"source": sample.source_text, "reference": sample.reference, "output": sample.text}
        for name, text in texts.items():
            line = f"  {name:<9}  {text.strip()}".replace("\n", _LINE_END)
            log_line(line)
            line_text = Text(line)
            if console.is_terminal:
                line_text.truncate(console.width, overflow="ellipsis")
            print_message(console, line_text.plain)
        print_line(console, "")


def _is_plain(console: Console) -> bool:
    return not console.is_terminal or console.is_dumb_terminal


class ProgressReporter:
    """Shows the progress of data preparation."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=_is_plain(console),
        )
        self._task = self._bar.add_task("")
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
        if self._bar.disable and now - self._last_printed >= _PLAIN_EVERY_SECONDS:
            self._last_printed = now
            total_text = "" if total is None else f" of {total:,}"
            print_line(self._console, f"{task}: {done:,}{total_text}")


class ProgressMeter:
    """Running means of losses and speed, and the estimated time left."""

    def __init__(self, fraction_done: FractionDone, *, step: int = 0) -> None:
        self._fraction_at, self.fraction_done = fraction_done, fraction_done(step)
        self.loss = math.nan
        self.auxiliary_losses: dict[str, float] = {}
        self.num_skipped_steps = 0
        self._tokens = self._seconds = self._fraction_per_step = 0.0  # means
        self._weight = self._loss_weight = 0.0
        self._last = time.monotonic()

    @property
    def seconds_left(self) -> float:
        """The estimated time left; infinity while there is no progress."""
        if self._fraction_per_step <= 0:
            return math.inf
        return (1 - self.fraction_done) * self._seconds / self._fraction_per_step

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the last steps by their time: several steps may be reported at once."""
        return self._tokens / self._seconds if self._seconds else 0.0

    def update(self, metrics: StepMetrics) -> None:
        """Add the metrics of a step."""
        now = time.monotonic()
        seconds, self._last = max(now - self._last, 1e-9), now
        fraction = self._fraction_at(metrics.step)
        gained, self.fraction_done = fraction - self.fraction_done, fraction
        self._weight = _SPEED_SMOOTHING * self._weight + 1
        self._seconds += (seconds - self._seconds) / self._weight
        self._fraction_per_step += (gained - self._fraction_per_step) / self._weight
        self._tokens += (metrics.num_tokens - self._tokens) / self._weight
        if metrics.skip_reason:
            self.num_skipped_steps += 1
            return
        self._loss_weight = _SMOOTHING * self._loss_weight + 1
        self.loss = self._smooth(metrics.loss, self.loss)
        for name, loss in metrics.auxiliary_losses.items():
            mean = self.auxiliary_losses.get(name, loss)
            self.auxiliary_losses[name] = self._smooth(loss, mean)

    def pause(self) -> None:
        """Exclude the time since the last step."""
        self._last = time.monotonic()

    def _smooth(self, new: float, mean: float) -> float:
        return new if math.isnan(mean) else mean + (new - mean) / self._loss_weight

    def __str__(self) -> str:
        label = "loss" if self._loss_weight <= 1 else "smoothed loss"
        parts = [f"{label} {self.loss:.3f}"]
        parts += [f"{name} {mean:.3f}" for name, mean in self.auxiliary_losses.items()]
        parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if math.isfinite(self.seconds_left):
            minutes, seconds = divmod(round(self.seconds_left), 60)
            hours, minutes = divmod(minutes, 60)
            clock = f"{hours}:{minutes:02d}" if hours else f"{minutes}"
            parts.append(f"{clock}:{seconds:02d} left")
        if self.num_skipped_steps:
            parts.append(f"{self.num_skipped_steps} skipped")
        return "  ".join(parts)


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
    status = ValidationStatus(metric)
    with _ProgressBar(console, status) as bar:
        yield _ProgressCallback(bar, ProgressMeter(fraction_done, step=step), status)


class _ProgressBar(progress.Progress):
    """A bar, and below it a line on validations: one line would be too wide."""

    def __init__(self, console: Console, status: ValidationStatus) -> None:
        self._status = status  # drawn within the next line
        super().__init__(
            progress.TextColumn("[bold]training"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[line_text]}", markup=False),
            console=console,
            transient=True,
            disable=_is_plain(console),
        )

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if status := str(self._status):
            yield Text(f"         {status}", overflow="ellipsis", no_wrap=True)


class _ProgressCallback(Callback):
    """Updates a bar, or prints lines where the bar is disabled."""

    def __init__(self, bar: _ProgressBar, meter: ProgressMeter, status: ValidationStatus) -> None:
        self._bar, self._meter, self._status = bar, meter, status
        self._task = bar.add_task("training", total=1.0, line_text="")
        bar.update(self._task, completed=meter.fraction_done)
        self._last_printed = time.monotonic()

    @override
    def on_step_end(self, metrics: StepMetrics) -> None:
        self._meter.update(metrics)
        done, now = self._meter.fraction_done, time.monotonic()
        if not self._bar.disable:
            line_text = f"step {metrics.step}  {self._meter}"
            self._bar.update(self._task, completed=done, line_text=line_text)
        if done >= 1 or now - self._last_printed >= _PLAIN_EVERY_SECONDS:
            self._last_printed = now
            status = f"  {self._status}".rstrip()
            line = f"step {metrics.step} ({100 * done:.0f} %)  {self._meter}{status}"
            log_line(line)
            if self._bar.disable:
                print_message(self._bar.console, line)

    @override
    def on_validation_end(self, result: ValidationResult) -> None:
        self._status.update(result)
        self._meter.pause()
