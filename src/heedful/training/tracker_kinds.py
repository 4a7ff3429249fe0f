"""Kinds of trackers: how TensorBoard, MLflow and Weights & Biases each keep what they are told.

Law: kept beside the run and nowhere else, unless the tracker's own environment variables say so.
"""

from __future__ import annotations

import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4

from heedful.storage import write_text
from heedful.training.observers import Sample

NOTES = "trackers.json"
_PARAMETERS_AT_ONCE = 100  # MLflow takes no more in one request


class TrackedRun:
    """What is tracked, and under which names trackers know it."""

    def __init__(self, folder: Path, title: str, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.title = title
        self.settings = settings
        self._lock = Lock()

    def known_as(self, tracker: str) -> str | None:
        """The name a tracker gave the run before, if it did."""
        try:
            return json.loads((self.folder / NOTES).read_text(encoding="utf-8")).get(tracker)
        except (OSError, ValueError, AttributeError):
            return None

    def remember(self, tracker: str, name: str) -> None:
        """Keep the name a tracker gives the run."""
        with self._lock:
            known = {each: self.known_as(each) for each in TRACKERS} | {tracker: name}
            kept = {each: name for each, name in known.items() if name is not None}
            write_text(self.folder / NOTES, json.dumps(kept, indent=2) + "\n")


class News(NamedTuple):
    """What a tracker is told at once."""

    step: int
    figures: Mapping[str, float]
    samples: Sequence[Sample] = ()


class Tracker(ABC):
    """A place where figures and samples are kept."""

    @abstractmethod
    def __init__(self, run: TrackedRun, step: int) -> None:
        """Begin, or go on, with this step."""

    @staticmethod
    @abstractmethod
    def needs() -> list[str]:
        """The packages it needs, as they are imported."""

    @abstractmethod
    def take(self, news: News) -> None:
        """Keep this."""

    @abstractmethod
    def close(self) -> None:
        """Let nothing be left unwritten."""


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
    def needs() -> list[str]:
        return ["tensorboard"]

    def take(self, news: News) -> None:
        for name, figure in news.figures.items():
            self._writer.add_scalar(name, figure, news.step)
        for number, sample in enumerate(news.samples, start=1):
            # Four spaces keep markdown from reading anything into a text.
            lines = (f"    {line}" for line in _in_lines(sample))
            self._writer.add_text(f"sample/{number}", "\n".join(lines), news.step)

    def close(self) -> None:
        self._writer.close()


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
        self._id = self._find(run) or self._begin(run, local)
        self._client.update_run(self._id, status="RUNNING")

    @staticmethod
    def needs() -> list[str]:
        return ["mlflow"] if _MLflow._is_remote() else ["mlflow", "sqlalchemy", "alembic"]

    @staticmethod
    def _is_remote() -> bool:
        return bool(os.environ.get("MLFLOW_TRACKING_URI"))

    def _find(self, run: TrackedRun) -> str | None:
        from mlflow.exceptions import MlflowException

        known = run.known_as("mlflow")
        try:
            return known and self._client.get_run(known).info.run_id
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None  # it was begun in another store

    def _begin(self, run: TrackedRun, local: Path | None) -> str:
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
        run.remember("mlflow", begun)
        parameters = [Param(at, str(value)) for at, value in _flat(run.settings)]
        for first in range(0, len(parameters), _PARAMETERS_AT_ONCE):
            some = parameters[first : first + _PARAMETERS_AT_ONCE]
            self._client.log_batch(begun, params=some)
        return begun

    def take(self, news: News) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        metrics = [Metric(name, figure, now, news.step) for name, figure in news.figures.items()]
        self._client.log_batch(self._id, metrics=metrics)
        if news.samples:
            text = "\n\n".join("\n".join(_in_lines(sample)) for sample in news.samples)
            self._client.log_text(self._id, text + "\n", f"samples/step-{news.step:08d}.txt")

    def close(self) -> None:
        self._client.set_terminated(self._id)


class _WandB(Tracker):
    """A run in RUN/wandb, kept offline unless WANDB_MODE says otherwise."""

    def __init__(self, run: TrackedRun, step: int) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        known = run.known_as("wandb")
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
        run.remember("wandb", name)

    @staticmethod
    def needs() -> list[str]:
        return ["wandb"]

    def take(self, news: News) -> None:
        shown: dict[str, Any] = {"step": news.step, **news.figures}
        if news.samples:
            rows = [[" ".join(each.source), each.reference, each.text] for each in news.samples]
            shown["samples"] = self._table(columns=["source", "reference", "output"], data=rows)
        self._run.log(shown)

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": _TensorBoard,
    "mlflow": _MLflow,
    "wandb": _WandB,
}


def _in_lines(sample: Sample) -> Iterator[str]:
    yield f"source     {' '.join(sample.source)}"
    yield f"reference  {sample.reference}"
    yield f"output     {sample.text}"


def _flat(settings: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Give settings by their dotted names."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from _flat(value, f"{at}.{key}" if at else str(key))
    else:
        yield at, settings
