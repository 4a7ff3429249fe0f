"""Experiment trackers: TensorBoard, MLflow and Weights & Biases.

Invariants: all is stored in the run folder unless the tracker's own variables say otherwise; one
that fails, hangs or cannot be reached neither delays nor ends training, nor changes its random
numbers; a resumed run continues the same tracker run.
"""

import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from textwrap import indent
from threading import Lock, Thread
from typing import Any, NamedTuple
from uuid import uuid4

from typing_extensions import override

from heedful.config import flatten_settings
from heedful.errors import check, choices_hint, did_you_mean
from heedful.storage.atomic import write_text
from heedful.storage.json_files import read_json
from heedful.training.callbacks import LoggedSample, PeriodicLogger, StepMetrics, ValidationResult

TRACKER_IDS_FILE = "trackers.json"
_NO_MARKDOWN = "    "  # a text indented so is shown as it is
_MAX_PARAMS_PER_REQUEST = 100  # limit of MLflow
_CLOSE_TIMEOUT = 30.0  # seconds that a tracker may take for the last records
_IDS_LOCK = Lock()  # each tracker has a thread


def get_tracker_run_id(folder: Path, tracker: str) -> str | None:
    """Return the id that a tracker gave the run in a folder, if it did."""
    try:
        return read_json(folder / TRACKER_IDS_FILE).get(tracker)
    except (OSError, ValueError, AttributeError):
        return None


def set_tracker_run_id(folder: Path, tracker: str, run_id: str) -> None:
    """Save the id that a tracker gives the run in a folder."""
    with _IDS_LOCK:
        ids = {name: get_tracker_run_id(folder, name) for name in TRACKERS} | {tracker: run_id}
        run_ids = {name: run_id for name, run_id in ids.items() if run_id is not None}
        write_text(folder / TRACKER_IDS_FILE, json.dumps(run_ids, indent=2) + "\n")


class LogRecord(NamedTuple):
    """Scalars and samples of a step."""

    step: int
    scalars: Mapping[str, float]
    samples: Sequence[LoggedSample] = ()


class Tracker(ABC):
    """A tracker run."""

    @abstractmethod
    def __init__(self, run_dir: Path, settings: Mapping[str, Any], step: int) -> None:
        """Start or resume the tracker run of a run folder at this step."""

    @abstractmethod
    def log(self, record: LogRecord) -> None:
        """Store a record."""

    @abstractmethod
    def close(self) -> None:
        """Flush and close."""


def _sample_lines(sample: LoggedSample) -> list[str]:
    source = f"source     {' '.join(sample.source)}"
    return [source, f"reference  {sample.reference}", f"output     {sample.text}"]


class _WandB(Tracker):
    """A run in RUN/wandb, offline unless WANDB_MODE is set."""

    def __init__(self, run_dir: Path, settings: Mapping[str, Any], step: int) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        known_id = get_tracker_run_id(run_dir, "wandb")
        run_id = known_id or uuid4().hex
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            id=run_id,
            resume="allow" if known_id else None,
            name=run_dir.name,
            project=os.environ.get("WANDB_PROJECT", "heedful"),
            mode=mode,
            dir=str(run_dir),
            config=dict(settings),
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        self._table = wandb.Table
        # W&B steps cannot go back, as training does after a crash.
        self._run.define_metric("*", step_metric="step")
        set_tracker_run_id(run_dir, "wandb", run_id)

    @override
    def log(self, record: LogRecord) -> None:
        values: dict[str, Any] = {"step": record.step, **record.scalars}
        if record.samples:
            rows = [[" ".join(row.source), row.reference, row.text] for row in record.samples]
            values["samples"] = self._table(columns=["source", "reference", "output"], data=rows)
        self._run.log(values)

    @override
    def close(self) -> None:
        self._run.finish()


class _MLflow(Tracker):
    """A run in RUN/mlflow, or at MLFLOW_TRACKING_URI."""

    def __init__(self, run_dir: Path, settings: Mapping[str, Any], step: int) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        folder = None if os.environ.get("MLFLOW_TRACKING_URI") else run_dir.resolve() / "mlflow"
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(f"sqlite:///{folder}/mlflow.db" if folder else None)
        known_id = get_tracker_run_id(run_dir, "mlflow")
        self._id = self._find_run(known_id) or self._create_run(run_dir, settings, folder)
        self._client.update_run(self._id, status="RUNNING")

    def _find_run(self, known_id: str | None) -> str | None:
        from mlflow.exceptions import MlflowException

        try:
            return known_id and self._client.get_run(known_id).info.run_id
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None  # it is in another store

    def _create_run(self, run_dir: Path, settings: Mapping[str, Any], folder: Path | None) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "heedful")
        if experiment := self._client.get_experiment_by_name(name):
            experiment_id = experiment.experiment_id
        else:
            artifacts = (folder / "artifacts").as_uri() if folder else None
            experiment_id = self._client.create_experiment(name, artifact_location=artifacts)
        run_id = self._client.create_run(experiment_id, run_name=run_dir.name).info.run_id
        set_tracker_run_id(run_dir, "mlflow", run_id)
        params = [Param(name, str(value)) for name, value in flatten_settings(settings)]
        for start in range(0, len(params), _MAX_PARAMS_PER_REQUEST):
            self._client.log_batch(run_id, params=params[start : start + _MAX_PARAMS_PER_REQUEST])
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

    def __init__(self, run_dir: Path, settings: Mapping[str, Any], step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run_dir / "tensorboard"
        is_new = not folder.exists()
        purge = None if is_new else step  # hides steps of an interrupted training that are repeated
        self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=10)
        if is_new:
            text = indent(json.dumps(settings, indent=2), _NO_MARKDOWN)
            self._writer.add_text("settings", text, step)

    @override
    def log(self, record: LogRecord) -> None:
        for name, value in record.scalars.items():
            self._writer.add_scalar(name, value, record.step)
        for index, sample in enumerate(record.samples, start=1):
            text = indent("\n".join(_sample_lines(sample)), _NO_MARKDOWN)
            self._writer.add_text(f"sample/{index}", text, record.step)

    @override
    def close(self) -> None:
        self._writer.close()


TRACKERS: dict[str, type[Tracker]]
TRACKERS = {"tensorboard": _TensorBoard, "mlflow": _MLflow, "wandb": _WandB}


def build_tracker_callbacks(
    names: Sequence[str], run_dir: Path, settings: Mapping[str, Any], log: Callable[[str], None]
) -> list[PeriodicLogger]:
    """Build a callback per tracker of a run folder; `log` prints the failure of one."""
    return [
        _TrackerCallback(name, partial(TRACKERS[name], run_dir, settings), log)
        for name in dict.fromkeys(names)
    ]


def check_trackers(names: Sequence[str]) -> None:
    """Raise ConfigError for a tracker that is unknown or not installed."""
    for name in names:
        message = f"unknown tracker {name!r}{did_you_mean(name, TRACKERS)}"
        check(name in TRACKERS, "--report-to", message, choices_hint(TRACKERS))
        has_store = name == "mlflow" and not os.environ.get("MLFLOW_TRACKING_URI")
        for package in [name, *(("sqlalchemy", "alembic") if has_store else ())]:
            # A folder of this name, such as wandb leaves behind, has a spec without origin.
            is_installed = (spec := find_spec(package)) is not None and spec.origin is not None
            message = f"the package {package} is not installed"
            hint = "install it with: pip install 'heedful[track]'"
            check(is_installed, f"--report-to {name}", message, hint)


class _TrackerCallback(PeriodicLogger):
    """Passes records to a tracker in a thread, until it fails."""

    def __init__(
        self, name: str, start: Callable[[int], Tracker], log: Callable[[str], None]
    ) -> None:
        """`start` starts the tracker run at a step."""
        super().__init__()
        self._name, self._start, self._log = name, start, log
        self._has_failed = False
        self._num_skipped = 0
        self._queue: SimpleQueue[LogRecord | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    @override
    def on_step_end(self, metrics: StepMetrics) -> None:
        self._num_skipped += bool(metrics.skip_reason)
        super().on_step_end(metrics)

    @override
    def log_step(self, metrics: StepMetrics, tokens_per_second: float) -> None:
        scalars = {
            "loss": metrics.loss,
            "learning_rate": metrics.learning_rate,
            "grad_norm": metrics.grad_norm,
            "tokens_per_second": tokens_per_second,
            "num_skipped_steps": float(self._num_skipped),
            **metrics.auxiliary_losses,
        }
        scalars = {f"train/{name}": value for name, value in scalars.items()}
        self._put(LogRecord(metrics.step, scalars))

    @override
    def log_validation(self, result: ValidationResult) -> None:
        scalars = {f"dev/{name}": score for name, score in result.scores.items()}
        self._put(LogRecord(result.step, scalars, result.samples))

    @override
    def on_train_end(self) -> None:
        self._queue.put(None)
        self._thread.join(_CLOSE_TIMEOUT)
        if self._thread.is_alive():
            self._fail(f"the last records were not stored within {_CLOSE_TIMEOUT:g} seconds")

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
                tracker = tracker or self._start(record.step)
                tracker.log(record)
            if tracker is not None:
                tracker.close()
        except Exception as error:  # training continues
            lines = str(error).strip().splitlines()
            self._fail(f"failed ({type(error).__name__}: {lines[0] if lines else 'no reason'})")
