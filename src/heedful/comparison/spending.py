"""Spending: what did a run take, and how did it get where it is?

Read from its newest checkpoint, which says how far it came, and from the lines it left on the way.
Where no checkpoint is kept, lines are all there is: they come every few steps, and what the last of
them says is carried on to the last step in proportion. What old runs have not told stays unknown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from heedful.comparison.results import Point
from heedful.inspection.run_curves import Entry, Timeline, number, of_kind, scores_in
from heedful.inspection.run_page import read_lines
from heedful.training.checkpoints import PROGRESS, list_checkpoints

METRICS, CHECKPOINTS = "metrics.jsonl", "checkpoints"


class Spent(NamedTuple):
    """What the training of one run took; None where it has not told."""

    steps: int | None
    seconds: float | None  # reading of data not counted
    operations: float | None
    memory: float | None  # bytes at the peak
    curve: Sequence[Point]


def read_spending(folder: Path) -> Spent:
    """Read what a run has told."""
    entries = read_lines(folder / METRICS)
    training, held_out = of_kind(entries, "training"), of_kind(entries, "validation")
    reached, progress = _newest_progress(folder)
    steps = [int(entry["step"]) for entry in (*training, *held_out)]
    last = max([*steps, *reached], default=None)
    told = progress if last in reached else {}  # a run that was killed came further than that
    seconds, operations = (number(told.get(name)) for name in ("seconds", "operations"))
    memory = [found for entry in training if (found := number(entry.get("memory"))) is not None]
    return Spent(
        last,
        _carried_on("seconds", training, last) if seconds is None else seconds,
        _carried_on("operations", training, last) if operations is None else operations,
        max(memory, default=None),
        _curve(training, held_out),
    )


def _newest_progress(folder: Path) -> tuple[list[int], dict[str, Any]]:
    """The step of the newest checkpoint, if one is kept, and how far the run had come then."""
    for step, _, checkpoint in reversed(list_checkpoints(folder / CHECKPOINTS)):
        with suppress(OSError, ValueError):
            return [step], dict(json.loads((checkpoint / PROGRESS).read_text(encoding="utf-8")))
    return [], {}


def _carried_on(name: str, training: Sequence[Entry], last: int | None) -> float | None:
    known = [(found, entry) for entry in training if (found := number(entry.get(name))) is not None]
    if not known or last is None:
        return None
    found, entry = known[-1]
    return found * last / max(1, entry["step"])


def _curve(training: Sequence[Entry], held_out: Sequence[Entry]) -> list[Point]:
    timeline, names = Timeline([*training, *held_out]), ["loss", *scores_in(held_out)]
    points = list[Point]()
    for entry in held_out:
        step, seconds, operations = timeline.place(entry)
        scores = {name: found for name in names if (found := number(entry.get(name))) is not None}
        points.append(Point(int(step), seconds, operations, scores))
    return points
