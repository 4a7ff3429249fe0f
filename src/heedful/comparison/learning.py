"""Learning: how did each system become as good as it is?

Scores on held-out texts over steps, time or operations. Each run is a thin line; the thick line is
the mean of a system's runs, in height as in place, at the validations that all of them had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import NamedTuple

from heedful.comparison.figures import Figure, Shown, line, missing, shown
from heedful.comparison.results import Comparison, System
from heedful.inspection.chart import Line, chart
from heedful.inspection.labels import visible_line
from heedful.inspection.run_curves import LOOKS, Point, look_of, number, thin

MOST_POINTS = 200  # of a curve; a picture shows no more
MOST_MARKS = 8

Curve = Sequence[Point]


class Axis(NamedTuple):
    """What learning can be drawn over."""

    name: str  # of the field of a point
    title: str
    counts: str


AXES = (
    Axis("step", "Steps", "steps"),
    Axis("seconds", "Time", "time"),
    Axis("operations", "FLOPs", "FLOPs"),
)
_SPANS = ((10_800, 3600, "hours"), (180, 60, "minutes"), (0, 1, "seconds"))


def scores_of(comparison: Comparison) -> list[str]:
    """What was measured at validations, in the order of a run's page: the loss first."""
    order = list(LOOKS)
    names = {
        name
        for system in comparison.systems
        for run in system.curves
        for point in run
        for name in point.scores
    }
    return sorted(names, key=lambda name: (order.index(name) if name in order else 99, name))


def learning_curves(comparison: Comparison, score: str, axis: Axis) -> Figure:
    """Draw a score of every system over an axis."""
    found = [(each, _curves(each.system, score, axis)) for each in shown(comparison)]
    drawn = [(each, curves) for each, curves in found if curves]
    name = visible_line(look_of(score).name)
    title, lost = f"{name} on held-out texts over {axis.counts}", f"no {name} was told over that"
    notes = list(missing(comparison, [each.system.name for each, _ in drawn], lost))
    if not drawn:
        return Figure(title, None, notes)
    unit, counted = _unit(axis, [curve for _, curves in drawn for curve in curves])
    lines = [_line(each, curves, score, axis, unit) for each, curves in drawn]
    label = f"{name} (%)" if look_of(score).unit == "share" else name
    svg = chart(lines, title=title, x_label=f"{counted} of training", y_label=label)
    return Figure(title, svg, [*_seeds_note(lines), *notes])


def mean_curve(curves: Sequence[Curve]) -> list[Point]:
    """The mean of curves at the steps that all of them have; if there are none, the first curve."""
    by_step = [{point.step: point for point in curve} for curve in curves]
    common = set[float]().union(*by_step).intersection(*by_step)
    return [_mean([run[step] for run in by_step]) for step in sorted(common)] or list(curves[0])


def _mean(points: Sequence[Point]) -> Point:
    step, seconds, operations, values = zip(*points, strict=True)
    return Point(step[0], _mean_if_known(seconds), _mean_if_known(operations), mean(values))


def _mean_if_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None


def _curves(system: System, score: str, axis: Axis) -> list[Curve]:
    """The curves of runs that have told the score and where it stands on the axis."""
    told = (
        [
            Point(point.step, number(point.seconds), number(point.operations), value)
            for point in run
            if (value := number(point.scores.get(score))) is not None
        ]
        for run in system.curves
    )
    placed = ([point for point in run if getattr(point, axis.name) is not None] for run in told)
    return [run for run in placed if run]


def _unit(axis: Axis, curves: Sequence[Curve]) -> tuple[float, str]:
    """What the axis is divided by, and what is then counted along it."""
    if axis.name != "seconds":
        return 1, axis.counts
    longest = max(point.seconds or 0 for curve in curves for point in curve)
    return next((size, name) for least, size, name in _SPANS if longest >= least)


def _line(each: Shown, curves: Sequence[Curve], score: str, axis: Axis, unit: float) -> Line:
    factor = 100 if look_of(score).unit == "share" else 1

    def points(curve: Curve) -> list[tuple[float, float | None]]:
        thinned = thin(curve, MOST_POINTS)
        return [(getattr(point, axis.name) / unit, factor * point.value) for point in thinned]

    strands = [points(curve) for curve in curves] if len(curves) > 1 else []
    whole = line(each.look, each.system, points(mean_curve(curves)), strands=strands)
    return whole._replace(most_marks=MOST_MARKS)


def _seeds_note(lines: Sequence[Line]) -> Iterator[str]:
    if any(line.strands for line in lines):
        yield "Thin: each run. Thick: their mean, at the validations that all runs of a system had."
    else:
        yield "Each system is one run."
