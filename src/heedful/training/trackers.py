"""Kinds of trackers: how TensorBoard, MLflow and Weights & Biases each keep what they are told.

Law: kept beside the run and nowhere else, unless the tracker's own environment variables say so.
"""

from __future__ import annotations

import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple
from uuid import uuid4

from rich.console import Console

from heedful.errors import ConfigError, choices_hint, did_you_mean
from heedful.storage import write_text
from heedful.training.callbacks import Callback, LoggedSample, StepMetrics, ValidationResult
from heedful.training.progress import print_line

TRACKER_IDS_FILE = "trackers.json"
_MAX_PARAMS_PER_REQUEST = 100  # MLflow takes no more in one request


class TrackedRun:
    """What is tracked, and under which names trackers know it."""

    def __init__(self, folder: Path, title: str, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.title = title
        self.settings = settings
        self._lock = Lock()

    def get_tracker_run_id(self, tracker: str) -> str | None:
        """The name a tracker gave the run before, if it did."""
        try:
            return json.loads((self.folder / TRACKER_IDS_FILE).read_text(encoding="utf-8")).get(
                tracker
            )
        except (OSError, ValueError, AttributeError):
            return None

    def set_tracker_run_id(self, tracker: str, name: str) -> None:
        """Keep the name a tracker gives the run."""
        with self._lock:
            known = {each: self.get_tracker_run_id(each) for each in TRACKERS} | {tracker: name}
            kept = {each: name for each, name in known.items() if name is not None}
            write_text(self.folder / TRACKER_IDS_FILE, json.dumps(kept, indent=2) + "\n")


class LogRecord(NamedTuple):
    """What a tracker is told at once."""

    step: int
    scalars: Mapping[str, float]
    samples: Sequence[LoggedSample] = ()


class Tracker(ABC):
    """A place where figures and samples are kept."""

    @abstractmethod
    def __init__(self, run: TrackedRun, step: int) -> None:
        """Begin, or go on, with this step."""

    @staticmethod
    @abstractmethod
    def required_packages() -> list[str]:
        """The packages it needs, as they are imported."""

    @abstractmethod
    def log(self, record: LogRecord) -> None:
        """Keep this."""

    @abstractmethod
    def close(self) -> None:
        """Let nothing be left unwritten."""


def _sample_lines(sample: LoggedSample) -> Iterator[str]:
    yield f"source     {' '.join(sample.source)}"
    yield f"reference  {sample.reference}"
    yield f"output     {sample.text}"


def _flatten(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give settings by their dotted names."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from _flatten(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, settings


class _WandB(Tracker):
    """A run in RUN/wandb, kept offline unless WANDB_MODE says otherwise."""

    def __init__(self, run: TrackedRun, step: int) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        known = run.get_tracker_run_id("wandb")
        name = known or uuid4().hex
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            id=name,
            resume="allow" if known else None,
            name=run.title,
            project=os.environ.get("WANDB_PROJECT", "heedful"),
            mode=mode,
            dir=str(run.folder),
            config=dict(run.settings),
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        self._table = wandb.Table
        # Its own steps may not go back, as training does after a kill.
        self._run.define_metric("*", step_metric="step")
        run.set_tracker_run_id("wandb", name)

    @staticmethod
    def required_packages() -> list[str]:
        return ["wandb"]

    def log(self, record: LogRecord) -> None:
        shown: dict[str, Any] = {"step": record.step, **record.scalars}
        if record.samples:
            rows = [[" ".join(each.source), each.reference, each.text] for each in record.samples]
            shown["samples"] = self._table(columns=["source", "reference", "output"], data=rows)
        self._run.log(shown)

    def close(self) -> None:
        self._run.finish()


class _MLflow(Tracker):
    """A run in RUN/mlflow, or where MLFLOW_TRACKING_URI says."""

    def __init__(self, run: TrackedRun, step: int) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        local = None if self._is_remote() else run.folder.resolve() / "mlflow"
        if local is not None:
            local.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(f"sqlite:///{local}/mlflow.db" if local else None)
        self._id = self._find_run(run) or self._create_run(run, local)
        self._client.update_run(self._id, status="RUNNING")

    @staticmethod
    def required_packages() -> list[str]:
        return ["mlflow"] if _MLflow._is_remote() else ["mlflow", "sqlalchemy", "alembic"]

    @staticmethod
    def _is_remote() -> bool:
        return bool(os.environ.get("MLFLOW_TRACKING_URI"))

    def _find_run(self, run: TrackedRun) -> str | None:
        from mlflow.exceptions import MlflowException

        known = run.get_tracker_run_id("mlflow")
        try:
            return known and self._client.get_run(known).info.run_id
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None  # it was begun in another store

    def _create_run(self, run: TrackedRun, local: Path | None) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "heedful")
        there = self._client.get_experiment_by_name(name)
        artifacts = (local / "artifacts").as_uri() if local else None
        experiment = (
            there.experiment_id
            if there
            else self._client.create_experiment(name, artifact_location=artifacts)
        )
        begun = self._client.create_run(experiment, run_name=run.title).info.run_id
        run.set_tracker_run_id("mlflow", begun)
        parameters = [Param(at, str(value)) for at, value in _flatten(run.settings)]
        for first in range(0, len(parameters), _MAX_PARAMS_PER_REQUEST):
            some = parameters[first : first + _MAX_PARAMS_PER_REQUEST]
            self._client.log_batch(begun, params=some)
        return begun

    def log(self, record: LogRecord) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        metrics = [
            Metric(name, figure, now, record.step) for name, figure in record.scalars.items()
        ]
        self._client.log_batch(self._id, metrics=metrics)
        if record.samples:
            text = "\n\n".join("\n".join(_sample_lines(sample)) for sample in record.samples)
            self._client.log_text(self._id, text + "\n", f"samples/step-{record.step:08d}.txt")

    def close(self) -> None:
        self._client.set_terminated(self._id)


class _TensorBoard(Tracker):
    """Event files in RUN/tensorboard."""

    def __init__(self, run: TrackedRun, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        is_new = not folder.exists()
        # What an interrupted training wrote of steps that are now taken again is not shown.
        purge = None if is_new else step
        self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=10)
        if is_new:
            lines = json.dumps(run.settings, indent=2).splitlines()
            self._writer.add_text("settings", "\n".join(f"    {line}" for line in lines), step)

    @staticmethod
    def required_packages() -> list[str]:
        return ["tensorboard"]

    def log(self, record: LogRecord) -> None:
        for name, figure in record.scalars.items():
            self._writer.add_scalar(name, figure, record.step)
        for number, sample in enumerate(record.samples, start=1):
            # Four spaces keep markdown from reading anything into a text.
            lines = (f"    {line}" for line in _sample_lines(sample))
            self._writer.add_text(f"sample/{number}", "\n".join(lines), record.step)

    def close(self) -> None:
        self._writer.close()


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": _TensorBoard,
    "mlflow": _MLflow,
    "wandb": _WandB,
}


# Trackers: TensorBoard, MLflow and Weights & Biases, told how training goes.
#
# Laws: nothing leaves this machine unless its owner says so; a tracker that fails, hangs or cannot
# be reached neither holds up nor ends training; training that goes on does so in the same tracker's
# run; and no random number is drawn that training would have drawn.

_LOG_EVERY_STEPS = 10  # updates between figures
_CLOSE_TIMEOUT = 30.0  # seconds that a tracker may take for the last figures


def build_tracker_callbacks(
    names: Sequence[str],
    folder: Path,
    title: str,
    settings: Mapping[str, Any],
    *,
    log_message: Callable[[str], None] | None = None,
) -> list[Callback]:
    """Give an observer for each of these trackers; `tell` hears of one that failed."""
    console = Console(stderr=True)
    run = TrackedRun(folder, title, settings)
    for name in names:
        _check_available(name)
    return [
        _TrackerCallback(name, run, log_message or (lambda line: print_line(console, line)))
        for name in dict.fromkeys(names)
    ]


def _check_available(name: str) -> None:
    if name not in TRACKERS:
        problem = f"no tracker is called {name!r}{did_you_mean(name, TRACKERS)}"
        raise ConfigError("--report-to", problem, choices_hint(TRACKERS))
    for package in TRACKERS[name].required_packages():
        found = find_spec(package)
        # A folder of this name, such as wandb leaves behind, is found too, but has no origin.
        if found is None or found.origin is None:
            raise ConfigError(
                f"--report-to {name}",
                f"the package {package} is not installed",
                "install it with: pip install 'heedful[track]'",
            )


class _TrackerCallback(Callback):
    """Tells a tracker from a thread of its own, until it fails."""

    def __init__(self, name: str, run: TrackedRun, log_message: Callable[[str], None]) -> None:
        self._name = name
        self._run = run
        self._tell = log_message
        self._has_failed = False
        self._queue = SimpleQueue[LogRecord | None]()
        self._num_tokens, self._num_skipped, self._since = 0, 0, time.monotonic()
        self._thread = Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def on_step_end(self, metrics: StepMetrics) -> None:
        """Pass on one update in ten, and the first."""
        self._num_tokens += metrics.num_tokens
        self._num_skipped += bool(metrics.skip_reason)
        if metrics.step % _LOG_EVERY_STEPS == 0 or metrics.step == 1:
            self._put(LogRecord(metrics.step, self._scalars(metrics)))
            self._restart()

    def on_validation_end(self, result: ValidationResult) -> None:
        """Pass on a validation; its time is not counted as training."""
        figures = {f"dev/{name}": score for name, score in result.scores.items()}
        self._put(LogRecord(result.step, figures, result.samples))
        self._restart()

    def on_train_end(self) -> None:
        """Wait for what is still to be passed on, but not for ever."""
        self._queue.put(None)
        self._thread.join(_CLOSE_TIMEOUT)
        if self._thread.is_alive():
            self._fail(f"the last figures were not taken within {_CLOSE_TIMEOUT:g} seconds")

    def _scalars(self, metrics: StepMetrics) -> dict[str, float]:
        speed = self._num_tokens / max(time.monotonic() - self._since, 1e-9)
        return {
            "train/loss": metrics.loss,
            "train/learning_rate": metrics.learning_rate,
            "train/grad_norm": metrics.grad_norm,
            "train/tokens_per_second": speed,
            "train/skipped": float(self._num_skipped),
            **{f"train/penalty/{name}": value for name, value in metrics.auxiliary_losses.items()},
        }

    def _restart(self) -> None:
        self._num_tokens, self._since = 0, time.monotonic()

    def _put(self, record: LogRecord) -> None:
        if not self._has_failed:
            self._queue.put(record)

    def _fail(self, message: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._tell(f"tracker {self._name}: {message}; training goes on without it")

    def _work(self) -> None:
        tracker: Tracker | None = None
        try:
            for record in iter(self._queue.get, None):
                # Begun with the first news: from then on what was told before is told again.
                tracker = tracker or TRACKERS[self._name](self._run, record.step)
                tracker.log(record)
            if tracker is not None:
                tracker.close()
        except Exception as error:  # whatever goes wrong in there, training goes on
            lines = str(error).strip().splitlines()
            self._fail(f"failed ({type(error).__name__}: {lines[0] if lines else 'no reason'})")
