"""Trackers: TensorBoard, MLflow and Weights & Biases, told how training goes.

Laws: nothing leaves this machine unless its owner says so; a tracker that fails, hangs or cannot
be reached neither holds up nor ends training; training that goes on does so in the same tracker's
run; and no random number is drawn that training would have drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from rich.console import Console

from heedful.errors import ConfigError, choose_from, did_you_mean
from heedful.training.observers import Observer, Report, Validation
from heedful.training.progress import say
from heedful.training.tracker_kinds import TRACKERS, News, TrackedRun, Tracker

_EVERY = 10  # updates between figures
_PATIENCE = 30.0  # seconds that a tracker may take for the last figures


def track(
    names: Sequence[str],
    folder: Path,
    title: str,
    settings: Mapping[str, Any],
    *,
    tell: Callable[[str], None] | None = None,
) -> list[Observer]:
    """Give an observer for each of these trackers; `tell` hears of one that failed."""
    console = Console(stderr=True)
    run = TrackedRun(folder, title, settings)
    for name in names:
        _refuse_unusable(name)
    return [
        _InBackground(name, run, tell or (lambda line: say(console, line)))
        for name in dict.fromkeys(names)
    ]


def _refuse_unusable(name: str) -> None:
    if name not in TRACKERS:
        problem = f"no tracker is called {name!r}{did_you_mean(name, TRACKERS)}"
        raise ConfigError("--track", problem, choose_from(TRACKERS))
    for package in TRACKERS[name].needs():
        found = find_spec(package)
        # A folder of this name, such as wandb leaves behind, is found too, but has no origin.
        if found is None or found.origin is None:
            raise ConfigError(
                f"--track {name}",
                f"the package {package} is not installed",
                "install it with: pip install 'heedful[track]'",
            )


class _InBackground(Observer):
    """Tells a tracker from a thread of its own, until it fails."""

    def __init__(self, name: str, run: TrackedRun, tell: Callable[[str], None]) -> None:
        self._name = name
        self._run = run
        self._tell = tell
        self._is_lost = False
        self._waiting = SimpleQueue[News | None]()
        self._num_tokens, self._num_skipped, self._since = 0, 0, time.monotonic()
        self._thread = Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def updated(self, report: Report) -> None:
        """Pass on one update in ten, and the first."""
        self._num_tokens += report.num_tokens
        self._num_skipped += bool(report.skipped)
        if report.step % _EVERY == 0 or report.step == 1:
            self._put(News(report.step, self._figures(report)))
            self._restart()

    def validated(self, validation: Validation) -> None:
        """Pass on a validation; its time is not counted as training."""
        figures = {f"dev/{name}": score for name, score in validation.scores.items()}
        self._put(News(validation.step, figures, validation.samples))
        self._restart()

    def closed(self) -> None:
        """Wait for what is still to be passed on, but not for ever."""
        self._waiting.put(None)
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            self._lose(f"the last figures were not taken within {_PATIENCE:g} seconds")

    def _figures(self, report: Report) -> dict[str, float]:
        speed = self._num_tokens / max(time.monotonic() - self._since, 1e-9)
        return {
            "train/loss": report.loss,
            "train/learning_rate": report.learning_rate,
            "train/grad_norm": report.grad_norm,
            "train/tokens_per_second": speed,
            "train/skipped": float(self._num_skipped),
            **{f"train/penalty/{name}": value for name, value in report.penalties.items()},
        }

    def _restart(self) -> None:
        self._num_tokens, self._since = 0, time.monotonic()

    def _put(self, news: News) -> None:
        if not self._is_lost:
            self._waiting.put(news)

    def _lose(self, problem: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._tell(f"tracker {self._name}: {problem}; training goes on without it")

    def _work(self) -> None:
        tracker: Tracker | None = None
        try:
            for news in iter(self._waiting.get, None):
                # Begun with the first news: from then on what was told before is told again.
                tracker = tracker or TRACKERS[self._name](self._run, news.step)
                tracker.take(news)
            if tracker is not None:
                tracker.close()
        except Exception as error:  # whatever goes wrong in there, training goes on
            lines = str(error).strip().splitlines()
            self._lose(f"failed ({type(error).__name__}: {lines[0] if lines else 'no reason'})")
