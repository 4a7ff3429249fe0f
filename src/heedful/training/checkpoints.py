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

from heedful.config import Choice
from heedful.errors import DamagedRunError, DiskFullError
from heedful.storage import (
    Piece,
    discard,
    explaining_failures,
    forget_cached,
    read_listing,
    read_manifest,
    replacing,
    require_space,
    strengthen,
    sweep,
    write_listed,
)
from heedful.training.tensor_files import lay_out

WEIGHTS, TENSORS, PROGRESS = "model.safetensors", "training.safetensors", "progress.json"
_DAMAGED = "damaged-"
_NAME = re.compile(r"step-(\d{8,})")


class Snapshot(NamedTuple):
    """All that is needed to go on training as if nothing had happened."""

    step: int
    weights: Mapping[str, Tensor]  # the model's, as in the published weights file
    tensors: Mapping[str, Tensor]  # optimizer, averages, random numbers, by dotted name
    facts: Mapping[str, Any]  # how far training has come, as JSON can say it
    folders: Mapping[str, Path] = MappingProxyType({})  # of further files; saving moves them in


class KeepConfig(Choice):
    """Which checkpoints stay when a newer one is there."""

    last: PositiveInt = 2
    """So many of the newest."""
    best: NonNegativeInt = 1
    """So many of those with the best scores."""
    every: PositiveInt | None = None
    """Those at steps that are multiples of this; none for that reason if not given."""
    if_disk_full: Literal["stop", "go-on"] = "stop"
    """What training does when a checkpoint does not fit on the disk."""


class Saved(NamedTuple):
    """A checkpoint as it lies in its folder."""

    step: int
    score: float | None  # smaller is better; none if it was not validated
    folder: Path


def list_checkpoints(folder: Path) -> list[Saved]:
    """The checkpoints in a folder, oldest first, with what their manifests say."""
    found = [(_NAME.fullmatch(path.name), path) for path in folder.glob("step-*")]
    saved = [Saved(int(match[1]), _score_of(path), path) for match, path in found if match]
    return sorted(saved, key=lambda each: each.step)


def choose_kept(saved: list[Saved], config: KeepConfig) -> set[int]:
    """The steps of the checkpoints that stay."""
    newest = sorted(each.step for each in saved)[-config.last :]
    scored = sorted((each.score, each.step) for each in saved if each.score is not None)
    best = [step for _, step in scored[: config.best]]
    every = [each.step for each in saved if config.every and each.step % config.every == 0]
    return {*newest, *best, *every}


class Checkpoints:
    """The checkpoints of one training, which must hold the lock of its run folder."""

    def __init__(self, folder: Path, config: KeepConfig, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self._config = config
        self._tell = tell
        self._background = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._checking: Future[None] | None = None

    @property
    def newest_step(self) -> int | None:
        """The step of the newest checkpoint; none if there is none."""
        saved = list_checkpoints(self.folder)
        return saved[-1].step if saved else None

    def save(self, snapshot: Snapshot, *, score: float | None = None) -> None:
        """Return when a snapshot is safe on the disk; `score`, smaller is better, if validated."""
        self.wait()
        place = self.folder / f"step-{snapshot.step:08d}"
        contents = _contents(snapshot)
        require_space(place, sum(len(piece) for pieces in contents.values() for piece in pieces))
        if score is None:
            score = _score_of(place)  # the same step may be saved twice, and is as good as it was
        elif not math.isfinite(score):
            score = None
        with replacing(place) as temporary:
            temporary.mkdir()
            for name, folder in snapshot.folders.items():
                folder.rename(temporary / name)
            written = [path for path in temporary.rglob("*") if path.is_file()]
            facts = {"step": snapshot.step, "score": score}
            write_listed(temporary, contents, facts, written=written)
        self._checking = self._background.submit(self._check, place)

    def load(self) -> Snapshot | None:
        """The newest good snapshot; damaged ones are put aside, loudly.

        There is none if none was ever saved; that none is good is an error.
        """
        self.wait()  # what is being written to vouch for the last one is nothing to be swept up
        sweep(self.folder)
        saved = list_checkpoints(self.folder)
        for each in saved:
            sweep(each.folder)
        for each in reversed(saved):
            if self._is_good(each.folder):
                if each is not saved[-1]:
                    self._tell(f"{self.folder}: going back to step {each.step}, which is good")
                return _read(each)
        if damaged := sorted(path.name for path in self.folder.glob(f"{_DAMAGED}*")):
            problem = f"no checkpoint is good (put aside: {', '.join(damaged)})"
            remedy = "restore the folder from a copy, or remove it to train from the beginning"
            raise DamagedRunError(str(self.folder), problem, remedy)
        return None

    def wait(self) -> None:
        """Wait until the last checkpoint has been read back and what is not kept is removed."""
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.result()

    def close(self) -> None:
        """Wait, and let go of the thread that was waited for."""
        try:
            self.wait()
        finally:
            self._background.shutdown()

    def _check(self, place: Path) -> None:
        forget_cached(place)
        if self._is_good(place):
            saved = list_checkpoints(self.folder)
            kept = choose_kept(saved, self._config)
            for each in saved:
                if each.step not in kept:
                    discard(each.folder)
            self._strengthen(place)

    def _strengthen(self, place: Path) -> None:
        with suppress(DiskFullError):  # it is as good as it was, and was vouched for
            if place.exists():
                strengthen(place)

    def _is_good(self, place: Path) -> bool:
        try:
            read_manifest(place)
        except DamagedRunError as error:
            self._put_aside(place, error)
            return False
        return True

    def _put_aside(self, place: Path, error: DamagedRunError) -> None:
        aside = place.with_name(_DAMAGED + place.name)
        with explaining_failures(aside):
            if aside.exists():
                discard(aside)
            place.rename(aside)
        self._tell(f"DAMAGED CHECKPOINT: {error.at}: {error.problem}; put aside as {aside.name}")


def _score_of(place: Path) -> float | None:
    try:
        return read_listing(place)["score"]
    except (DamagedRunError, KeyError):
        return None


def _contents(snapshot: Snapshot) -> dict[str, list[Piece]]:
    progress = json.dumps(snapshot.facts, indent=2) + "\n"
    return {
        WEIGHTS: lay_out(snapshot.weights),
        TENSORS: lay_out(snapshot.tensors),
        PROGRESS: [progress.encode()],
    }


def _read(saved: Saved) -> Snapshot:
    place = saved.folder
    facts = json.loads((place / PROGRESS).read_text(encoding="utf-8"))
    weights, tensors = load_file(place / WEIGHTS), load_file(place / TENSORS)
    folders = {path.name: path for path in place.iterdir() if path.is_dir()}
    return Snapshot(saved.step, weights, tensors, facts, folders)
