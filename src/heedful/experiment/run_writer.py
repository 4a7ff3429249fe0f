"""Keeping: what of a training is written to its folder, and what if there is no room?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from heedful.errors import DiskFullError
from heedful.pytree import tensors_of
from heedful.runs import Run
from heedful.storage import atomic_replace
from heedful.training.callbacks import LoggedSample
from heedful.training.checkpoints import CheckpointManager, Snapshot

# Bundles: what is needed to look at a step that went wrong.
#
#     batch-0.safetensors ...  the batches of the step
#     random.safetensors       the random numbers as they were before it
#     facts.json               the step, the place in the data, what was found, the last checkpoint
#
# Everything but the weights: those of the last checkpoint come to the same step by the same command.

MAX_DEBUG_DUMPS = 10  # of a run; the first ones tell the most


def write_debug_dump(
    folder: Path,
    micro_batches: Sequence[Any],
    rng_states: Mapping[str, Tensor],
    metadata: Mapping[str, Any],
) -> Path | None:
    """Write a bundle into a folder of bundles; nothing if there are many already."""
    if folder.exists() and len(list(folder.glob("step-*"))) >= MAX_DEBUG_DUMPS:
        return None
    path = folder / f"step-{metadata['step']:08d}"
    with atomic_replace(path) as temporary:
        temporary.mkdir()
        for number, batch in enumerate(micro_batches):
            tensors = {f"{index}": tensor for index, tensor in enumerate(tensors_of(batch))}
            (temporary / f"batch-{number}.safetensors").write_bytes(save(tensors))
        (temporary / "random.safetensors").write_bytes(save(dict(rng_states)))
        (temporary / "facts.json").write_text(
            json.dumps(metadata, indent=2) + "\n", encoding="utf-8"
        )
    return path


class RunWriter:
    """Writes what is kept of a training; of several ranks only the first one's does."""

    def __init__(
        self,
        run: Run,
        checkpoints: CheckpointManager,
        *,
        is_writer: bool,
        continue_if_disk_full: bool,
        log_message: Callable[[str], None],
    ) -> None:
        """`goes_on` says whether training outlives a disk that is full."""
        self.run = run
        self.checkpoints = checkpoints
        self._is_writer = is_writer
        self._continue_if_disk_full = continue_if_disk_full
        self._tell = log_message

    @contextmanager
    def tolerate_disk_full(self, *, is_last: bool = False) -> Iterator[None]:
        """Try to write; if there is no room and there will be another chance, go on if told to."""
        try:
            yield
        except DiskFullError as error:
            if is_last or not self._continue_if_disk_full:
                raise
            self._tell(f"NOT SAVED: {error}\n  training goes on, and will try again")

    def save(self, snapshot: Snapshot, *, score: float | None) -> None:
        """Write a checkpoint; `score` if it was validated."""
        if self._is_writer:
            self.checkpoints.save(snapshot, score=score)

    def save_model(self, state_dict: Mapping[str, Tensor], *, step: int) -> None:
        """Make these weights the ones the run is used with."""
        if self._is_writer:
            with self.tolerate_disk_full():
                self.run.save_model(state_dict, step=step)

    def log(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        if self._is_writer:
            with self.tolerate_disk_full():
                self.run.append_metrics(entry)

    def log_samples(self, step: int, samples: Sequence[LoggedSample]) -> None:
        """Add what the model made of a few texts."""
        if self._is_writer:
            with self.tolerate_disk_full():
                self.run.append_samples(step, samples)

    def truncate_logs_after(self, step: int) -> None:
        """Drop what was written of steps that will be taken again."""
        if self._is_writer:
            self.run.truncate_logs_after(step)

    def dump_bad_step(
        self,
        micro_batches: Sequence[Any],
        rng_states: Mapping[str, Tensor],
        metadata: Mapping[str, Any],
    ) -> str:
        """Keep what is needed to look at a step that went wrong; say where."""
        if not self._is_writer:
            return ""
        metadata = {**metadata, "checkpoint": self.checkpoints.latest_step}
        path = None
        with self.tolerate_disk_full():
            path = write_debug_dump(
                self.run.folder / "bad-steps", micro_batches, rng_states, metadata
            )
        return f" (see {path})" if path else ""
