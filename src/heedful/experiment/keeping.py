"""Keeping: what of a training is written to its folder, and what if there is no room?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from heedful.errors import DiskFullError
from heedful.runs import Run
from heedful.training.bundles import write_bundle
from heedful.training.checkpoints import Checkpoints, Snapshot
from heedful.training.observers import Sample


class Keeper:
    """Writes what is kept of a training; of several ranks only the first one's does."""

    def __init__(
        self,
        run: Run,
        checkpoints: Checkpoints,
        *,
        writes: bool,
        goes_on: bool,
        tell: Callable[[str], None],
    ) -> None:
        """`goes_on` says whether training outlives a disk that is full."""
        self.run = run
        self.checkpoints = checkpoints
        self._writes = writes
        self._goes_on = goes_on
        self._tell = tell

    @contextmanager
    def facing_a_full_disk(self, *, is_last: bool = False) -> Iterator[None]:
        """Try to write; if there is no room and there will be another chance, go on if told to."""
        try:
            yield
        except DiskFullError as error:
            if is_last or not self._goes_on:
                raise
            self._tell(f"NOT SAVED: {error}\n  training goes on, and will try again")

    def save(self, snapshot: Snapshot, *, score: float | None) -> None:
        """Write a checkpoint; `score` if it was validated."""
        if self._writes:
            self.checkpoints.save(snapshot, score=score)

    def publish(self, weights: Mapping[str, Tensor], *, step: int) -> None:
        """Make these weights the ones the run is used with."""
        if self._writes:
            with self.facing_a_full_disk():
                self.run.publish(weights, step=step)

    def log(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        if self._writes:
            with self.facing_a_full_disk():
                self.run.log(entry)

    def log_samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Add what the model made of a few texts."""
        if self._writes:
            with self.facing_a_full_disk():
                self.run.log_samples(step, samples)

    def forget_after(self, step: int) -> None:
        """Drop what was written of steps that will be taken again."""
        if self._writes:
            self.run.forget_after(step)

    def keep_bad_step(
        self, group: Sequence[Any], random: Mapping[str, Tensor], facts: Mapping[str, Any]
    ) -> str:
        """Keep what is needed to look at a step that went wrong; say where."""
        if not self._writes:
            return ""
        facts = {**facts, "checkpoint": self.checkpoints.newest_step}
        path = None
        with self.facing_a_full_disk():
            path = write_bundle(self.run.folder / "bad-steps", group, random, facts)
        return f" (see {path})" if path else ""
