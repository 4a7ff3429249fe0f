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

AXES = ("step", "seconds", "flops")
MAX_POINTS = 2000
_SMOOTHING_FRACTION = 0.02  # of all the points of a curve, at least over this many:
_MIN_SMOOTHING_POINTS = 5


class CurveStyle(NamedTuple):
    """How numbers of one kind are shown."""

    name: str
    unit: str = ""
    is_logarithmic: bool = False
    from_zero: bool = False
    lower_is_better: bool = False  # whether it is the better, the lower it is


CURVE_STYLES = {
    "loss": CurveStyle("Loss", lower_is_better=True),
    "accuracy": CurveStyle("Accuracy", "share"),
    "bleu": CurveStyle("BLEU"),
    "chrf": CurveStyle("chrF"),
    "exact-match": CurveStyle("Exact match"),
    "ter": CurveStyle("TER", lower_is_better=True),
    "wer": CurveStyle("WER", lower_is_better=True),
    "per": CurveStyle("PER", lower_is_better=True),
    "cer": CurveStyle("CER", lower_is_better=True),
    "tokenized-bleu": CurveStyle("Tokenised BLEU"),
    "multi-bleu": CurveStyle("multi-bleu"),
    "rouge-1": CurveStyle("ROUGE-1"),
    "rouge-2": CurveStyle("ROUGE-2"),
    "rouge-l": CurveStyle("ROUGE-L"),
    "token-accuracy": CurveStyle("Token accuracy"),
    "span-f1": CurveStyle("Span F1"),
    "span-f1-iob2": CurveStyle("Span F1 (IOB2)"),
    "learning_rate": CurveStyle("Learning rate", from_zero=True),
    "grad_norm": CurveStyle("Gradient norm", is_logarithmic=True),
    "tokens_per_second": CurveStyle("Tokens per second", from_zero=True),
    "peak_memory": CurveStyle("Peak memory", "bytes", from_zero=True),
    "flops": CurveStyle("FLOPs", from_zero=True),
}
# What says where a line stands or is drawn in another way.
_NON_CURVE_FIELDS = {
    *AXES,
    "type",
    "epoch",
    "loss",
    "num_tokens",
    "num_targets",
    "auxiliary_losses",
    "num_skipped_steps",
}


class CurvePoint(NamedTuple):
    """A number, and where it stands."""

    step: float
    seconds: float | None
    flops: float | None
    value: float


class Timeline:
    """When was which step, and what had been computed by then?"""

    def __init__(self, entries: Iterable[Entry]) -> None:
        placed = sorted(entries, key=_step)
        self._known: dict[str, tuple[list[float], list[float]]] = {}
        for axis in AXES[1:]:
            known = [
                (_step(entry), at) for entry in placed if (at := as_finite_float(entry.get(axis)))
            ]
            self._known[axis] = ([step for step, _ in known], [at for _, at in known])

    def locate(self, entry: Entry) -> tuple[float, float | None, float | None]:
        """Say where a line stands on each axis."""
        step = _step(entry)
        seconds, operations = (self._interpolate(axis, step, entry) for axis in AXES[1:])
        return step, seconds, operations

    def _interpolate(self, axis: str, step: float, entry: Entry) -> float | None:
        own = as_finite_float(entry.get(axis))
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


def as_finite_float(value: object) -> float | None:
    """The value, if it is a finite number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]


def entries_of_type(entries: Iterable[Entry], entry_type: str) -> list[Entry]:
    """The lines of a kind in the order of their steps; of several for a step, the last."""
    found = [entry for entry in entries if entry.get("type") == entry_type]
    by_step = {
        _step(entry): entry for entry in found if as_finite_float(entry.get("step")) is not None
    }
    return [by_step[step] for step in sorted(by_step)]


def make_charts(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Every chart that there is something to draw on; the loss first."""
    training, held_out = (
        entries_of_type(entries, "training"),
        entries_of_type(entries, "validation"),
    )
    timeline = Timeline([*training, *held_out])
    charts = [
        _loss_chart(training, held_out, timeline),
        *(
            _chart(name, held_out, timeline, style="held-out")
            for name in validation_metric_names(held_out)
        ),
        *(_chart(name, training, timeline, style="plain") for name in _curve_names(training)),
        _penalty_chart(training, timeline),
    ]
    return [chart for chart in charts if any(line["columns"][0] for line in chart["lines"])]


def validation_metric_names(validations: Sequence[Entry]) -> list[str]:
    """The names of what was measured beside the loss."""
    return _ordered(name for entry in validations for name in entry if _is_curve(entry, name))


def _curve_names(training: Sequence[Entry]) -> list[str]:
    names = _ordered(name for entry in training for name in entry if _is_curve(entry, name))
    return [*names, "flops"]


def _is_curve(entry: Entry, name: str) -> bool:
    return name not in _NON_CURVE_FIELDS and isinstance(entry[name], int | float)


def _ordered(names: Iterable[str]) -> list[str]:
    order = list(CURVE_STYLES)
    return sorted(set(names), key=lambda name: (order.index(name) if name in order else 99, name))


def curve_style(name: str) -> CurveStyle:
    """How numbers of this name are shown."""
    return CURVE_STYLES.get(name) or CurveStyle(name.replace("_", " ").capitalize())


def _loss_chart(
    training: Sequence[Entry], validations: Sequence[Entry], timeline: Timeline
) -> dict[str, Any]:
    raw, own = (_points(each, "loss", timeline) for each in (training, validations))
    lines = [
        _line("training", "raw", raw),
        _line("training, smoothed", "smooth", smooth(raw)),
        _line("held out", "held-out", own),
    ]
    missing = len(training) + len(validations) - len(raw) - len(own)
    return _make_chart("loss", lines, missing)


def _chart(
    name: str, entries: Sequence[Entry], timeline: Timeline, *, style: str
) -> dict[str, Any]:
    values = [entry for entry in entries if name in entry]
    points = _points(values, name, timeline)
    return _make_chart(name, [_line("", style, points)], len(values) - len(points))


def _penalty_chart(training: Sequence[Entry], timeline: Timeline) -> dict[str, Any]:
    found = [(entry, entry.get("auxiliary_losses")) for entry in training]
    auxiliary = [(entry, each) for entry, each in found if isinstance(each, dict)]
    lines = [
        _line(
            name, "plain", _points([{**entry, **each} for entry, each in auxiliary], name, timeline)
        )
        for name in _ordered(name for _, each in auxiliary for name in each)
    ]
    return _make_chart("auxiliary_losses", lines, 0)


def _make_chart(name: str, lines: list[dict[str, Any]], missing: int) -> dict[str, Any]:
    look = curve_style(name)
    values = [value for line in lines for value in line["columns"][-1]]
    is_logarithmic = look.is_logarithmic and bool(values) and min(values) > 0
    return {
        **look._asdict(),
        "is_logarithmic": is_logarithmic,
        "id": name,
        "lines": lines,
        "missing": missing,
    }


def _line(name: str, style: str, points: Sequence[CurvePoint]) -> dict[str, Any]:
    kept = downsample(points)
    columns = [
        [_round_significant(value) for value in column] for column in zip(*kept, strict=True)
    ]
    return {"name": name, "look": style, "columns": columns or [[], [], [], []]}


def _points(entries: Iterable[Entry], name: str, timeline: Timeline) -> list[CurvePoint]:
    return [
        CurvePoint(*timeline.locate(entry), value)
        for entry in entries
        if (value := as_finite_float(entry.get(name))) is not None
    ]


def smooth(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """A running mean over as many points before as after, so that it comes neither late nor early.

    At the ends it is the mean of the points there are.
    """
    reach = round(max(_MIN_SMOOTHING_POINTS, _SMOOTHING_FRACTION * len(points)) / 2)
    sums = [0.0, *accumulate(point.value for point in points)]
    found = []
    for place, point in enumerate(points):
        first, end = max(0, place - reach), min(len(points), place + reach + 1)
        found.append(point._replace(value=(sums[end] - sums[first]) / (end - first)))
    return found


def downsample(points: Sequence[CurvePoint], max_points: int = MAX_POINTS) -> list[CurvePoint]:
    """Keep at most so many points: the first, the last, and the extremes of every stretch."""
    if len(points) <= max_points:
        return list(points)
    stretches = max_points // 2 - 1
    kept = {0, len(points) - 1}
    for window in range(stretches):
        indices = range(window * len(points) // stretches, (window + 1) * len(points) // stretches)
        kept |= {min(indices, key=lambda place: points[place].value)}
        kept |= {max(indices, key=lambda place: points[place].value)}
    return [points[place] for place in sorted(kept)]


def _round_significant(value: float | None) -> float | None:
    """Six digits are more than a picture can show."""
    return None if value is None else float(f"{value:.6g}") if value % 1 else int(value)


def _step(entry: Entry) -> float:
    return as_finite_float(entry.get("step")) or 0.0
