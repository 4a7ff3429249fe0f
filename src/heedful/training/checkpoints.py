"""Checkpoints: which saved states of a training are there, and which of them are kept?

    step-00000120/
      model.safetensors     the weights
      training.safetensors  what else training needs: optimizer, averages, random numbers
      progress.json         how far it has come
      parts/                of what ranks hold parts of, in place of the optimizer and averages
      manifest.json         step and score; size and SHA-256 of every file above

A checkpoint is written beside its place, forced to the disk and renamed: it is there whole or not
at all. It is then read back from the disk, and only when that has been found good are older ones
removed; so there is a good one at every moment after the first.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from pydantic import NonNegativeInt, PositiveInt
from safetensors.torch import load_file
from torch import Tensor

from heedful.config import BaseConfig
from heedful.errors import CorruptRunError, DiskFullError
from heedful.storage import (
    Buffer,
    add_sha256,
    atomic_replace,
    check_free_space,
    clean_up_interrupted,
    drop_page_cache,
    explain_os_errors,
    read_and_verify_manifest,
    read_manifest_unverified,
    remove_path,
    write_with_manifest,
)
from heedful.storage.state_dict import serialize_safetensors

MODEL_FILE, TRAINING_STATE_FILE, PROGRESS_FILE = (
    "model.safetensors",
    "training.safetensors",
    "progress.json",
)
_DAMAGED_PREFIX = "damaged-"
_CHECKPOINT_NAME_PATTERN = re.compile(r"step-(\d{8,})")


class Snapshot(NamedTuple):
    """All that is needed to go on training as if nothing had happened."""

    step: int
    model_state_dict: Mapping[str, Tensor]  # the model's, as in the published weights file
    training_tensors: Mapping[str, Tensor]  # optimizer, averages, random numbers, by dotted name
    metadata: Mapping[str, Any]  # how far training has come, as JSON can say it
    extra_folders: Mapping[str, Path] = MappingProxyType(
        {}
    )  # of further files; saving moves them in


class CheckpointConfig(BaseConfig):
    """Which checkpoints stay when a newer one is there."""

    keep_last: PositiveInt = 2
    """So many of the newest."""
    keep_best: NonNegativeInt = 1
    """So many of those with the best scores."""
    keep_every: PositiveInt | None = None
    """Those at steps that are multiples of this; none for that reason if not given."""
    on_disk_full: Literal["stop", "continue"] = "stop"
    """What training does when a checkpoint does not fit on the disk."""


class CheckpointInfo(NamedTuple):
    """A checkpoint as it lies in its folder."""

    step: int
    score: float | None  # smaller is better; none if it was not validated
    folder: Path


def list_checkpoints(folder: Path) -> list[CheckpointInfo]:
    """The checkpoints in a folder, oldest first, with what their manifests say."""
    found = [
        (_CHECKPOINT_NAME_PATTERN.fullmatch(path.name), path) for path in folder.glob("step-*")
    ]
    saved = [
        CheckpointInfo(int(match[1]), _read_score(path), path) for match, path in found if match
    ]
    return sorted(saved, key=lambda each: each.step)


def checkpoints_to_keep(checkpoints: list[CheckpointInfo], config: CheckpointConfig) -> set[int]:
    """The steps of the checkpoints that stay."""
    newest = sorted(each.step for each in checkpoints)[-config.keep_last :]
    scored = sorted((each.score, each.step) for each in checkpoints if each.score is not None)
    best = [step for _, step in scored[: config.keep_best]]
    every = [
        each.step
        for each in checkpoints
        if config.keep_every and each.step % config.keep_every == 0
    ]
    return {*newest, *best, *every}


class CheckpointManager:
    """The checkpoints of one training, which must hold the lock of its run folder."""

    def __init__(
        self, folder: Path, config: CheckpointConfig, log_message: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._config = config
        self._log_message = log_message
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._verification: Future[None] | None = None

    @property
    def latest_step(self) -> int | None:
        """The step of the newest checkpoint; none if there is none."""
        saved = list_checkpoints(self.folder)
        return saved[-1].step if saved else None

    def save(self, snapshot: Snapshot, *, score: float | None = None) -> None:
        """Return when a snapshot is safe on the disk; `score`, smaller is better, if validated."""
        self.wait_until_verified()
        checkpoint_path = self.folder / f"step-{snapshot.step:08d}"
        contents = _file_contents(snapshot)
        check_free_space(
            checkpoint_path, sum(len(piece) for pieces in contents.values() for piece in pieces)
        )
        if score is None:
            score = _read_score(
                checkpoint_path
            )  # the same step may be saved twice, and is as good as it was
        elif not math.isfinite(score):
            score = None
        with atomic_replace(checkpoint_path) as temporary:
            temporary.mkdir()
            for name, folder in snapshot.extra_folders.items():
                folder.rename(temporary / name)
            written = [path for path in temporary.rglob("*") if path.is_file()]
            facts = {"step": snapshot.step, "score": score}
            write_with_manifest(temporary, contents, facts, existing=written)
        self._verification = self._executor.submit(self._verify_and_prune, checkpoint_path)

    def load(self) -> Snapshot | None:
        """The newest good snapshot; damaged ones are put aside, loudly.

        There is none if none was ever saved; that none is good is an error.
        """
        self.wait_until_verified()  # what is being written to vouch for the last one is nothing to be swept up
        clean_up_interrupted(self.folder)
        saved = list_checkpoints(self.folder)
        for each in saved:
            clean_up_interrupted(each.folder)
        for each in reversed(saved):
            if self._is_intact(each.folder):
                if each is not saved[-1]:
                    self._log_message(
                        f"{self.folder}: going back to step {each.step}, which is good"
                    )
                return _load_snapshot(each)
        if damaged := sorted(path.name for path in self.folder.glob(f"{_DAMAGED_PREFIX}*")):
            problem = f"no checkpoint is good (put aside: {', '.join(damaged)})"
            remedy = "restore the folder from a copy, or remove it to train from the beginning"
            raise CorruptRunError(str(self.folder), problem, remedy)
        return None

    def wait_until_verified(self) -> None:
        """Wait until the last checkpoint has been read back and what is not kept is removed."""
        checking, self._verification = self._verification, None
        if checking is not None:
            checking.result()

    def close(self) -> None:
        """Wait, and let go of the thread that was waited for."""
        try:
            self.wait_until_verified()
        finally:
            self._executor.shutdown()

    def _verify_and_prune(self, checkpoint_path: Path) -> None:
        drop_page_cache(checkpoint_path)
        if self._is_intact(checkpoint_path):
            saved = list_checkpoints(self.folder)
            kept = checkpoints_to_keep(saved, self._config)
            for each in saved:
                if each.step not in kept:
                    remove_path(each.folder)
            self._add_checksums(checkpoint_path)

    def _add_checksums(self, checkpoint_path: Path) -> None:
        with suppress(DiskFullError):  # it is as good as it was, and was vouched for
            if checkpoint_path.exists():
                add_sha256(checkpoint_path)

    def _is_intact(self, checkpoint_path: Path) -> bool:
        try:
            read_and_verify_manifest(checkpoint_path)
        except CorruptRunError as error:
            self._quarantine(checkpoint_path, error)
            return False
        return True

    def _quarantine(self, checkpoint_path: Path, error: CorruptRunError) -> None:
        aside = checkpoint_path.with_name(_DAMAGED_PREFIX + checkpoint_path.name)
        with explain_os_errors(aside):
            if aside.exists():
                remove_path(aside)
            checkpoint_path.rename(aside)
        self._log_message(
            f"DAMAGED CHECKPOINT: {error.location}: {error.message}; put aside as {aside.name}"
        )


def _read_score(checkpoint_path: Path) -> float | None:
    try:
        return read_manifest_unverified(checkpoint_path)["score"]
    except (CorruptRunError, KeyError):
        return None


def _file_contents(snapshot: Snapshot) -> dict[str, list[Buffer]]:
    progress = json.dumps(snapshot.metadata, indent=2) + "\n"
    return {
        MODEL_FILE: serialize_safetensors(snapshot.model_state_dict),
        TRAINING_STATE_FILE: serialize_safetensors(snapshot.training_tensors),
        PROGRESS_FILE: [progress.encode()],
    }


def _load_snapshot(checkpoints: CheckpointInfo) -> Snapshot:
    checkpoint_path = checkpoints.folder
    facts = json.loads((checkpoint_path / PROGRESS_FILE).read_text(encoding="utf-8"))
    weights, tensors = (
        load_file(checkpoint_path / MODEL_FILE),
        load_file(checkpoint_path / TRAINING_STATE_FILE),
    )
    folders = {path.name: path for path in checkpoint_path.iterdir() if path.is_dir()}
    return Snapshot(checkpoints.step, weights, tensors, facts, folders)
