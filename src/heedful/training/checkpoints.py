"""Checkpoints: saved training states of a run, and which of them are kept.

    step-00000120/
      model.safetensors     parameters and buffers
      training.safetensors  optimizer, moving average, random states
      progress.json         step, epoch, scores, ...
      shards/               sharded tensors of multiple ranks, in place of optimizer and average
      manifest.json         step and score; size and SHA-256 of each file above

It is written to a temporary folder, synced and renamed, then read back from the disk; only if that
succeeds are older ones removed. Invariant: after the first there is a good one at every moment.
"""

import json
import math
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
from heedful.errors import CorruptRunError, DiskFullError, check
from heedful.storage import atomic, manifest
from heedful.storage.json_files import read_json
from heedful.storage.manifest import checkpoint_folders
from heedful.storage.state_dict import serialize_safetensors

MODEL_FILE, TRAINING_STATE_FILE = "model.safetensors", "training.safetensors"
PROGRESS_FILE = "progress.json"
_CORRUPT_PREFIX = "corrupt-"


class Snapshot(NamedTuple):
    """All that is needed to resume training."""

    step: int
    model_state_dict: Mapping[str, Tensor]
    training_tensors: Mapping[str, Tensor]  # optimizer, average, random states, by dotted name
    metadata: Mapping[str, Any]  # the progress, as JSON
    extra_folders: Mapping[str, Path] = MappingProxyType({})  # saving moves them in


class CheckpointConfig(BaseConfig):
    """Which checkpoints are kept when a new one is saved."""

    keep_last: PositiveInt = 2
    """Number of most recent checkpoints."""
    keep_best: NonNegativeInt = 1
    """Number of checkpoints with the best validation scores."""
    keep_every: PositiveInt | None = None
    """Also keep checkpoints at multiples of this step; none if null."""
    on_disk_full: Literal["stop", "continue"] = "stop"
    """What training does if a checkpoint does not fit on the disk."""


class CheckpointInfo(NamedTuple):
    """A checkpoint in its folder."""

    step: int
    score: float | None  # lower is better; None if it was not validated
    folder: Path


def list_checkpoints(folder: Path) -> list[CheckpointInfo]:
    """Return the checkpoints in a folder, oldest first; they are not verified."""
    folders = checkpoint_folders(folder)
    return [CheckpointInfo(step, _read_score(path), path) for step, path in folders.items()]


def checkpoints_to_keep(checkpoints: list[CheckpointInfo], config: CheckpointConfig) -> set[int]:
    """Return the steps of the checkpoints to keep."""
    steps = sorted(info.step for info in checkpoints)
    scored = sorted((info.score, info.step) for info in checkpoints if info.score is not None)
    best = [step for _, step in scored[: config.keep_best]]
    every = [step for step in steps if config.keep_every and step % config.keep_every == 0]
    return {*steps[-config.keep_last :], *best, *every}


class CheckpointManager:
    """The checkpoints of a run; whoever saves must hold the lock of the run folder."""

    def __init__(self, folder: Path, config: CheckpointConfig, log: Callable[[str], None]) -> None:
        self.folder = folder
        self._config = config
        self._log = log
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._verification: Future[None] | None = None

    @property
    def latest_step(self) -> int | None:
        """The step of the newest checkpoint."""
        infos = list_checkpoints(self.folder)
        return infos[-1].step if infos else None

    def save(self, snapshot: Snapshot, *, score: float | None = None) -> None:
        """Return when a snapshot is on the disk; `score` (lower is better) if it was validated."""
        self.wait_until_verified()
        path = self.folder / f"step-{snapshot.step:08d}"
        progress = json.dumps(snapshot.metadata, indent=2) + "\n"
        contents: dict[str, list[manifest.Buffer]] = {
            MODEL_FILE: serialize_safetensors(snapshot.model_state_dict),
            TRAINING_STATE_FILE: serialize_safetensors(snapshot.training_tensors),
            PROGRESS_FILE: [progress.encode()],
        }
        num_bytes = sum(len(part) for parts in contents.values() for part in parts)
        atomic.check_free_space(path, num_bytes)
        if score is None:
            score = _read_score(path)  # a step that is saved again keeps its score
        elif not math.isfinite(score):
            score = None
        with atomic.atomic_replace(path) as temporary:
            temporary.mkdir()
            for name, folder in snapshot.extra_folders.items():
                folder.rename(temporary / name)
            existing = [file for file in temporary.rglob("*") if file.is_file()]
            metadata = {"step": snapshot.step, "score": score}
            manifest.write_with_manifest(temporary, contents, metadata, existing=existing)
        self._verification = self._executor.submit(self._verify_and_prune, path)

    def load(self) -> Snapshot | None:
        """Return the newest good snapshot; None if none was ever saved.

        Corrupt checkpoints are moved aside and logged. It is an error if there is no good one.
        """
        self.wait_until_verified()  # the clean-up must not remove what is being verified
        atomic.clean_up_interrupted(self.folder)
        infos = list_checkpoints(self.folder)
        for info in infos:
            atomic.clean_up_interrupted(info.folder)
        for info in reversed(infos):
            if self._is_intact(info.folder):
                if info is not infos[-1]:
                    self._log(f"{self.folder}: falling back to the checkpoint at step {info.step}")
                return _load_snapshot(info)
        corrupt = ", ".join(sorted(path.name for path in self.folder.glob(f"{_CORRUPT_PREFIX}*")))
        message = f"all checkpoints are corrupt ({corrupt})"
        hint = "restore the folder from a backup, or remove it to train from the start"
        check(not corrupt, str(self.folder), message, hint, CorruptRunError)
        return None

    def wait_until_verified(self) -> None:
        """Wait until the last checkpoint has been read back and old ones are removed."""
        verification, self._verification = self._verification, None
        if verification is not None:
            verification.result()

    def close(self) -> None:
        """Wait for the verification and end its thread."""
        try:
            self.wait_until_verified()
        finally:
            self._executor.shutdown()

    def _verify_and_prune(self, path: Path) -> None:
        atomic.drop_page_cache(path)
        if self._is_intact(path):
            infos = list_checkpoints(self.folder)
            steps_to_keep = checkpoints_to_keep(infos, self._config)
            for info in infos:
                if info.step not in steps_to_keep:
                    atomic.remove_path(info.folder)
            with suppress(DiskFullError):  # the checkpoint is good without the hashes
                if path.exists():
                    manifest.add_sha256(path)

    def _is_intact(self, path: Path) -> bool:
        """Verify a checkpoint; a corrupt one is moved aside and logged."""
        try:
            manifest.read_and_verify_manifest(path)
        except CorruptRunError as error:
            target = path.with_name(_CORRUPT_PREFIX + path.name)
            with atomic.explain_os_errors(target):
                if target.exists():
                    atomic.remove_path(target)
                path.rename(target)
            problem = f"{error.location}: {error.message}"
            self._log(f"corrupt checkpoint: {problem}; moved to {target.name}")
            return False
        return True


def _read_score(path: Path) -> float | None:
    try:
        return manifest.read_manifest_unverified(path)["score"]
    except (CorruptRunError, KeyError):
        return None


def _load_snapshot(info: CheckpointInfo) -> Snapshot:
    metadata = read_json(info.folder / PROGRESS_FILE)
    state_dict = load_file(info.folder / MODEL_FILE)
    tensors = load_file(info.folder / TRAINING_STATE_FILE)
    folders = {path.name: path for path in info.folder.iterdir() if path.is_dir()}
    return Snapshot(info.step, state_dict, tensors, metadata, folders)
