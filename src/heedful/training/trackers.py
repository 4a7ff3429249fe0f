"""Experiment trackers: TensorBoard, MLflow and Weights & Biases.

Invariants: everything is stored in the run folder unless the tracker's own environment variables
say otherwise; a tracker that fails, hangs or cannot be reached neither delays nor ends training; a
resumed run continues the same tracker run; and training draws the same random numbers as without.
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
from typing_extensions import override

from heedful.config import flatten_settings
from heedful.errors import check, choices_hint, did_you_mean
from heedful.storage import write_text
from heedful.training.callbacks import (
    LOG_EVERY_STEPS,
    Callback,
    LoggedSample,
    StepMetrics,
    ValidationResult,
)
from heedful.training.progress import print_line

TRACKER_IDS_FILE = "trackers.json"
_MAX_PARAMS_PER_REQUEST = 100  # limit of MLflow
_CLOSE_TIMEOUT = 30.0  # seconds that a tracker may take for the last records


class TrackedRun:
    """The run folder and the ids that trackers have for it."""

    def __init__(self, folder: Path, title: str, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.title = title
        self.settings = settings
        self._lock = Lock()

    def get_tracker_run_id(self, tracker: str) -> str | None:
        """Return the id that a tracker gave the run, if it did."""
        try:
            text = (self.folder / TRACKER_IDS_FILE).read_text(encoding="utf-8")
            return json.loads(text).get(tracker)
        except (OSError, ValueError, AttributeError):
            return None

    def set_tracker_run_id(self, tracker: str, run_id: str) -> None:
        """Save the id that a tracker gives the run."""
        with self._lock:
            ids = {name: self.get_tracker_run_id(name) for name in TRACKERS} | {tracker: run_id}
            known = {name: run_id for name, run_id in ids.items() if run_id is not None}
            write_text(self.folder / TRACKER_IDS_FILE, json.dumps(known, indent=2) + "\n")


class LogRecord(NamedTuple):
    """Scalars and samples of one step."""

    step: int
    scalars: Mapping[str, float]
    samples: Sequence[LoggedSample] = ()


class Tracker(ABC):
    """A tracker run."""

    @abstractmethod
    def __init__(self, run: TrackedRun, step: int) -> None:
        """Start or resume the tracker run at this step."""

    @staticmethod
    @abstractmethod
    def required_packages() -> list[str]:
        """Return the names of the packages to import."""

    @abstractmethod
    def log(self, record: LogRecord) -> None:
        """Store a record."""

    @abstractmethod
    def close(self) -> None:
        """Flush and close."""


def _sample_lines(sample: LoggedSample) -> Iterator[str]:
    yield f"source     {' '.join(sample.source)}"
    yield f"reference  {sample.reference}"
    yield f"output     {sample.text}"


class _WandB(Tracker):
    """A run in RUN/wandb, offline unless WANDB_MODE says otherwise."""

    def __init__(self, run: TrackedRun, step: int) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        known_id = run.get_tracker_run_id("wandb")
        run_id = known_id or uuid4().hex
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            id=run_id,
            resume="allow" if known_id else None,
            name=run.title,
            project=os.environ.get("WANDB_PROJECT", "heedful"),
            mode=mode,
            dir=str(run.folder),
            config=dict(run.settings),
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        self._table = wandb.Table
        # W&B steps cannot go back, as training does after a crash.
        self._run.define_metric("*", step_metric="step")
        run.set_tracker_run_id("wandb", run_id)

    @staticmethod
    @override
    def required_packages() -> list[str]:
        return ["wandb"]

    @override
    def log(self, record: LogRecord) -> None:
        values: dict[str, Any] = {"step": record.step, **record.scalars}
        if record.samples:
            rows = [
                [" ".join(sample.source), sample.reference, sample.text]
                for sample in record.samples
            ]
            values["samples"] = self._table(columns=["source", "reference", "output"], data=rows)
        self._run.log(values)

    @override
    def close(self) -> None:
        self._run.finish()


class _MLflow(Tracker):
    """A run in RUN/mlflow, or at MLFLOW_TRACKING_URI."""

    def __init__(self, run: TrackedRun, step: int) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        folder = None if self._is_remote() else run.folder.resolve() / "mlflow"
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(f"sqlite:///{folder}/mlflow.db" if folder else None)
        self._id = self._find_run(run) or self._create_run(run, folder)
        self._client.update_run(self._id, status="RUNNING")

    @staticmethod
    @override
    def required_packages() -> list[str]:
        return ["mlflow"] if _MLflow._is_remote() else ["mlflow", "sqlalchemy", "alembic"]

    @staticmethod
    def _is_remote() -> bool:
        return bool(os.environ.get("MLFLOW_TRACKING_URI"))

    def _find_run(self, run: TrackedRun) -> str | None:
        from mlflow.exceptions import MlflowException

        known_id = run.get_tracker_run_id("mlflow")
        try:
            return known_id and self._client.get_run(known_id).info.run_id
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None  # it is in another store

    def _create_run(self, run: TrackedRun, folder: Path | None) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "heedful")
        experiment = self._client.get_experiment_by_name(name)
        artifacts = (folder / "artifacts").as_uri() if folder else None
        experiment_id = (
            experiment.experiment_id
            if experiment
            else self._client.create_experiment(name, artifact_location=artifacts)
        )
        run_id = self._client.create_run(experiment_id, run_name=run.title).info.run_id
        run.set_tracker_run_id("mlflow", run_id)
        params = [Param(name, str(value)) for name, value in flatten_settings(run.settings)]
        for start in range(0, len(params), _MAX_PARAMS_PER_REQUEST):
            chunk = params[start : start + _MAX_PARAMS_PER_REQUEST]
            self._client.log_batch(run_id, params=chunk)
        return run_id

    @override
    def log(self, record: LogRecord) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        metrics = [Metric(name, value, now, record.step) for name, value in record.scalars.items()]
        self._client.log_batch(self._id, metrics=metrics)
        if record.samples:
            text = "\n\n".join("\n".join(_sample_lines(sample)) for sample in record.samples)
            self._client.log_text(self._id, text + "\n", f"samples/step-{record.step:08d}.txt")

    @override
    def close(self) -> None:
        self._client.set_terminated(self._id)


class _TensorBoard(Tracker):
    """Event files in RUN/tensorboard."""

    def __init__(self, run: TrackedRun, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        is_new = not folder.exists()
        # Hides what an interrupted training wrote of steps that are repeated.
        purge = None if is_new else step
        self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=10)
        if is_new:
            lines = json.dumps(run.settings, indent=2).splitlines()
            self._writer.add_text("settings", "\n".join(f"    {line}" for line in lines), step)

    @staticmethod
    @override
    def required_packages() -> list[str]:
        return ["tensorboard"]

    @override
    def log(self, record: LogRecord) -> None:
        for name, value in record.scalars.items():
            self._writer.add_scalar(name, value, record.step)
        for index, sample in enumerate(record.samples, start=1):
            # Four spaces: no Markdown in a text.
            lines = (f"    {line}" for line in _sample_lines(sample))
            self._writer.add_text(f"sample/{index}", "\n".join(lines), record.step)

    @override
    def close(self) -> None:
        self._writer.close()


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": _TensorBoard,
    "mlflow": _MLflow,
    "wandb": _WandB,
}


def build_tracker_callbacks(
    names: Sequence[str],
    folder: Path,
    title: str,
    settings: Mapping[str, Any],
    *,
    log_message: Callable[[str], None] | None = None,
) -> list[Callback]:
    """Build a callback per tracker; `log_message` prints the failure of one."""
    console = Console(stderr=True)
    run = TrackedRun(folder, title, settings)
    for name in names:
        _check_available(name)
    return [
        _TrackerCallback(name, run, log_message or (lambda line: print_line(console, line)))
        for name in dict.fromkeys(names)
    ]


def _check_available(name: str) -> None:
    check(
        name in TRACKERS,
        "--report-to",
        f"unknown tracker {name!r}{did_you_mean(name, TRACKERS)}",
        choices_hint(TRACKERS),
    )
    for package in TRACKERS[name].required_packages():
        spec = find_spec(package)
        check(
            # A folder of this name, such as wandb leaves behind, has a spec without origin.
            spec is not None and spec.origin is not None,
            f"--report-to {name}",
            f"the package {package} is not installed",
            "install it with: pip install 'heedful[track]'",
        )


class _TrackerCallback(Callback):
    """Passes records to a tracker in a thread, until it fails."""

    def __init__(self, name: str, run: TrackedRun, log_message: Callable[[str], None]) -> None:
        self._name = name
        self._run = run
        self._log = log_message
        self._has_failed = False
        self._queue: SimpleQueue[LogRecord | None] = SimpleQueue()
        self._num_tokens, self._num_skipped, self._since = 0, 0, time.monotonic()
        self._thread = Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    @override
    def on_step_end(self, metrics: StepMetrics) -> None:
        self._num_tokens += metrics.num_tokens
        self._num_skipped += bool(metrics.skip_reason)
        if metrics.step % LOG_EVERY_STEPS == 0 or metrics.step == 1:
            self._put(LogRecord(metrics.step, self._scalars(metrics)))
            self._restart()

    @override
    def on_validation_end(self, result: ValidationResult) -> None:
        scalars = {f"dev/{name}": score for name, score in result.scores.items()}
        self._put(LogRecord(result.step, scalars, result.samples))
        self._restart()  # the time of a validation is not training time

    @override
    def on_train_end(self) -> None:
        self._queue.put(None)
        self._thread.join(_CLOSE_TIMEOUT)
        if self._thread.is_alive():
            self._fail(f"the last records were not stored within {_CLOSE_TIMEOUT:g} seconds")

    def _scalars(self, metrics: StepMetrics) -> dict[str, float]:
        speed = self._num_tokens / max(time.monotonic() - self._since, 1e-9)
        return {
            "train/loss": metrics.loss,
            "train/learning_rate": metrics.learning_rate,
            "train/grad_norm": metrics.grad_norm,
            "train/tokens_per_second": speed,
            "train/num_skipped_steps": float(self._num_skipped),
            **{f"train/{name}": loss for name, loss in metrics.auxiliary_losses.items()},
        }

    def _restart(self) -> None:
        self._num_tokens, self._since = 0, time.monotonic()

    def _put(self, record: LogRecord) -> None:
        if not self._has_failed:
            self._queue.put(record)

    def _fail(self, message: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._log(f"tracker {self._name}: {message}; training continues without it")

    def _work(self) -> None:
        tracker: Tracker | None = None
        try:
            for record in iter(self._queue.get, None):
                # Started at the first record: the step from which a resumed run is logged again.
                tracker = tracker or TRACKERS[self._name](self._run, record.step)
                tracker.log(record)
            if tracker is not None:
                tracker.close()
        except Exception as error:  # training continues
            lines = str(error).strip().splitlines()
            self._fail(f"failed ({type(error).__name__}: {lines[0] if lines else 'no reason'})")
