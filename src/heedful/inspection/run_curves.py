"""Run curves: which curves can be drawn from the lines that a training left?

A line is taken as it is found: what it does not say is left out, and what is no finite number is
counted and not drawn. Every point stands at a step, a time and a number of operations, so that it
can be drawn over each of them; where a line says only the step, the others are read off the lines
around it. A curve of many points is thinned, and keeps its highest and its lowest.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

Entry = Mapping[str, Any]

AXES = ("step", "seconds", "operations")
MOST_POINTS = 2000
_SMOOTHED_OVER = 0.02  # of all the points of a curve, at least over this many:
_FEWEST_SMOOTHED = 5


class Look(NamedTuple):
    """How numbers of one kind are shown."""

    name: str
    unit: str = ""
    is_logarithmic: bool = False
    from_zero: bool = False
    falls: bool = False  # whether it is the better, the lower it is


LOOKS = {
    "loss": Look("Loss", falls=True),
    "accuracy": Look("Accuracy", "share"),
    "bleu": Look("BLEU"),
    "chrf": Look("chrF"),
    "exact-match": Look("Exact match"),
    "ter": Look("TER", falls=True),
    "wer": Look("WER", falls=True),
    "per": Look("PER", falls=True),
    "cer": Look("CER", falls=True),
    "tokenised-bleu": Look("Tokenised BLEU"),
    "multi-bleu": Look("multi-bleu"),
    "rouge-1": Look("ROUGE-1"),
    "rouge-2": Look("ROUGE-2"),
    "rouge-l": Look("ROUGE-L"),
    "token-accuracy": Look("Token accuracy"),
    "span-f1": Look("Span F1"),
    "span-f1-iob2": Look("Span F1 (IOB2)"),
    "learning_rate": Look("Learning rate", from_zero=True),
    "grad_norm": Look("Gradient norm", is_logarithmic=True),
    "tokens_per_second": Look("Tokens per second", from_zero=True),
    "memory": Look("Peak memory", "bytes", from_zero=True),
    "operations": Look("Operations", from_zero=True),
}
# What says where a line stands or is drawn in another way.
_NO_CURVES = {*AXES, "kind", "epoch", "loss", "num_tokens", "num_targets", "penalties", "skipped"}


class Point(NamedTuple):
    """A number, and where it stands."""

    step: float
    seconds: float | None
    operations: float | None
    value: float


class Timeline:
    """When was which step, and what had been computed by then?"""

    def __init__(self, entries: Iterable[Entry]) -> None:
        placed = sorted(entries, key=_step)
        self._known: dict[str, tuple[list[float], list[float]]] = {}
        for axis in AXES[1:]:
            known = [(_step(entry), at) for entry in placed if (at := number(entry.get(axis)))]
            self._known[axis] = ([step for step, _ in known], [at for _, at in known])

    def place(self, entry: Entry) -> tuple[float, float | None, float | None]:
        """Say where a line stands on each axis."""
        step = _step(entry)
        seconds, operations = (self._at(axis, step, entry) for axis in AXES[1:])
        return step, seconds, operations

    def _at(self, axis: str, step: float, entry: Entry) -> float | None:
        own = number(entry.get(axis))
        steps, values = self._known[axis]
        if own is not None or not steps:
            return own
        after = bisect_left(steps, step)
        if after == len(steps):
            return values[-1]
        if after == 0:
            return values[0] * step / steps[0]  # all began at zero
        share = (step - steps[after - 1]) / (steps[after] - steps[after - 1])
        return values[after - 1] + share * (values[after] - values[after - 1])


def number(value: object) -> float | None:
    """The value, if it is a finite number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]


def of_kind(entries: Iterable[Entry], kind: str) -> list[Entry]:
    """The lines of a kind in the order of their steps; of several for a step, the last."""
    found = [entry for entry in entries if entry.get("kind") == kind]
    by_step = {_step(entry): entry for entry in found if number(entry.get("step")) is not None}
    return [by_step[step] for step in sorted(by_step)]


def draw_charts(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Every chart that there is something to draw on; the loss first."""
    training, held_out = of_kind(entries, "training"), of_kind(entries, "validation")
    timeline = Timeline([*training, *held_out])
    charts = [
        _loss_chart(training, held_out, timeline),
        *(_chart(name, held_out, timeline, look="held-out") for name in scores_in(held_out)),
        *(_chart(name, training, timeline, look="plain") for name in _curves_in(training)),
        _penalty_chart(training, timeline),
    ]
    return [chart for chart in charts if any(line["columns"][0] for line in chart["lines"])]


def scores_in(held_out: Sequence[Entry]) -> list[str]:
    """The names of what was measured beside the loss."""
    return _ordered(name for entry in held_out for name in entry if _is_curve(entry, name))


def _curves_in(training: Sequence[Entry]) -> list[str]:
    names = _ordered(name for entry in training for name in entry if _is_curve(entry, name))
    return [*names, "operations"]


def _is_curve(entry: Entry, name: str) -> bool:
    return name not in _NO_CURVES and isinstance(entry[name], int | float)


def _ordered(names: Iterable[str]) -> list[str]:
    order = list(LOOKS)
    return sorted(set(names), key=lambda name: (order.index(name) if name in order else 99, name))


def look_of(name: str) -> Look:
    """How numbers of this name are shown."""
    return LOOKS.get(name) or Look(name.replace("_", " ").capitalize())


def _loss_chart(
    training: Sequence[Entry], held_out: Sequence[Entry], timeline: Timeline
) -> dict[str, Any]:
    raw, own = (_points(each, "loss", timeline) for each in (training, held_out))
    lines = [
        _line("training", "raw", raw),
        _line("training, smoothed", "smooth", smooth(raw)),
        _line("held out", "held-out", own),
    ]
    missing = len(training) + len(held_out) - len(raw) - len(own)
    return _shown("loss", lines, missing)


def _chart(name: str, entries: Sequence[Entry], timeline: Timeline, *, look: str) -> dict[str, Any]:
    said = [entry for entry in entries if name in entry]
    points = _points(said, name, timeline)
    return _shown(name, [_line("", look, points)], len(said) - len(points))


def _penalty_chart(training: Sequence[Entry], timeline: Timeline) -> dict[str, Any]:
    found = [(entry, entry.get("penalties")) for entry in training]
    told = [(entry, each) for entry, each in found if isinstance(each, dict)]
    lines = [
        _line(name, "plain", _points([{**entry, **each} for entry, each in told], name, timeline))
        for name in _ordered(name for _, each in told for name in each)
    ]
    return _shown("penalties", lines, 0)


def _shown(name: str, lines: list[dict[str, Any]], missing: int) -> dict[str, Any]:
    look = look_of(name)
    values = [value for line in lines for value in line["columns"][-1]]
    is_logarithmic = look.is_logarithmic and bool(values) and min(values) > 0
    return {
        **look._asdict(),
        "is_logarithmic": is_logarithmic,
        "id": name,
        "lines": lines,
        "missing": missing,
    }


def _line(name: str, look: str, points: Sequence[Point]) -> dict[str, Any]:
    kept = thin(points)
    columns = [[_short(value) for value in column] for column in zip(*kept, strict=True)]
    return {"name": name, "look": look, "columns": columns or [[], [], [], []]}


def _points(entries: Iterable[Entry], name: str, timeline: Timeline) -> list[Point]:
    return [
        Point(*timeline.place(entry), value)
        for entry in entries
        if (value := number(entry.get(name))) is not None
    ]


def smooth(points: Sequence[Point]) -> list[Point]:
    """A running mean over as many points before as after, so that it comes neither late nor early.

    At the ends it is the mean of the points there are.
    """
    reach = round(max(_FEWEST_SMOOTHED, _SMOOTHED_OVER * len(points)) / 2)
    sums = [0.0, *accumulate(point.value for point in points)]
    found = []
    for place, point in enumerate(points):
        first, end = max(0, place - reach), min(len(points), place + reach + 1)
        found.append(point._replace(value=(sums[end] - sums[first]) / (end - first)))
    return found


def thin(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """Keep at most so many points: the first, the last, and the extremes of every stretch."""
    if len(points) <= most:
        return list(points)
    stretches = most // 2 - 1
    kept = {0, len(points) - 1}
    for stretch in range(stretches):
        places = range(stretch * len(points) // stretches, (stretch + 1) * len(points) // stretches)
        kept |= {min(places, key=lambda place: points[place].value)}
        kept |= {max(places, key=lambda place: points[place].value)}
    return [points[place] for place in sorted(kept)]


def _short(value: float | None) -> float | None:
    """Six digits are more than a picture can show."""
    return None if value is None else float(f"{value:.6g}") if value % 1 else int(value)


def _step(entry: Entry) -> float:
    return number(entry.get("step")) or 0.0
