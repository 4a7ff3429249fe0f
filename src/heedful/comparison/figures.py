"""Figures: what do all pictures of a comparison have in common?

A system has the same colour, mark and dash in all of them. What is not known of a system is left
out, and a note says so; where nothing is left there is no picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

from heedful.comparison.results import Comparison, RunStatistics, System, SystemScore
from heedful.inspection.training_curves import (
    CURVE_STYLES,
    CurvePoint,
    as_finite_float,
    curve_style,
    downsample,
)
from heedful.plotting.axes import SMALLEST, CategoryTick
from heedful.plotting.charts import (
    LIGHT_LINE_COLORS,
    MAX_LINES,
    LineSeries,
    ScatterPoint,
    render_line_chart,
    render_scatter_plot,
)
from heedful.plotting.svg import escape_line

Points = Sequence[tuple[float, float | None]]


class Figure(NamedTuple):
    """A picture, and what a reader should know of it."""

    title: str
    svg: str | None  # a document that can stand alone; None where there is nothing to draw
    notes: Sequence[str]


class PlottedSystem(NamedTuple):
    """A system that can be drawn, and which of the looks it has."""

    style_index: int
    system: System
    score: SystemScore  # by the metric that decides


def plotted_systems(comparison: Comparison) -> list[PlottedSystem]:
    """The systems that are told apart in a picture: those that there are looks for."""
    return [
        PlottedSystem(look, system, system.scores[0])
        for look, system in enumerate(comparison.systems[:MAX_LINES])
    ]


def system_line(
    style_index: int, system: System, points: Points, *, run_curves: Sequence[Points] = ()
) -> LineSeries:
    """A line in the look of its system."""
    is_dashed = style_index >= len(LIGHT_LINE_COLORS)  # where colours come again
    return LineSeries(
        system.name, points, dashed=is_dashed, style_index=style_index, run_curves=run_curves
    )


def main_metric_name(comparison: Comparison) -> str:
    """The name of the metric that decides."""
    return escape_line(comparison.systems[0].scores[0].score.name)


def main_metric_label(comparison: Comparison) -> str:
    """That name, and which way is better."""
    return f"{main_metric_name(comparison)} ({comparison.systems[0].scores[0].direction} is better)"


def missing_system_notes(
    comparison: Comparison, names: Iterable[str], reason: str
) -> Iterator[str]:
    """Say which systems are not among the names that were drawn, and why."""
    drawn, every = set(names), [system.name for system in comparison.systems]
    lost = [name for name in every[:MAX_LINES] if name not in drawn]
    if lost:
        yield f"Left out: {', '.join(map(escape_line, lost))}: {reason}."
    if len(every) > MAX_LINES:
        yield f"Only the first {MAX_LINES} systems are drawn: more cannot be told apart."


# The front: which systems are not beaten at once in cost and in quality?
#
# A system is beaten by one that costs no more and is no worse, and that costs less or is better.
# Law: everything that is not on the front is beaten by something on it; equals stand together.

CostQualityPoint = tuple[float, float]


def pareto_front(costs: Sequence[float], qualities: Sequence[float]) -> list[int]:
    """Find what no other beats, the cheapest first; lower costs and higher gains are better."""
    places = list(zip(costs, qualities, strict=True))
    by_cost = sorted(range(len(places)), key=lambda index: (costs[index], -qualities[index]))
    front = list[int]()
    for index in by_cost:
        # Cheaper ones came before: only their gains are still to be beaten, or all of an equal.
        if (
            not front
            or qualities[index] > qualities[front[-1]]
            or places[index] == places[front[-1]]
        ):
            front.append(index)
    return front


def step_line(front: Sequence[CostQualityPoint]) -> list[CostQualityPoint]:
    """The way along a front: what is reached at one cost holds until the next is affordable."""
    corners = [(later[0], earlier[1]) for earlier, later in pairwise(front)]
    steps = [point for pair in zip(front, corners, strict=False) for point in pair]
    return [*steps, *front[-1:]]


# Learning: how did each system become as good as it is?
#
# Scores on held-out texts over steps, time or operations. Each run is a thin line; the thick line is
# the mean of a system's runs, in height as in place, at the validations that all of them had.

MAX_POINTS = 200  # of a curve; a picture shows no more
MAX_MARKERS = 8

Curve = Sequence[CurvePoint]


class Axis(NamedTuple):
    """What learning can be drawn over."""

    name: str  # of the field of a point
    title: str
    unit_name: str


AXES = (
    Axis("step", "Steps", "steps"),
    Axis("seconds", "Time", "time"),
    Axis("flops", "FLOPs", "FLOPs"),
)
_TIME_UNITS = ((10_800, 3600, "hours"), (180, 60, "minutes"), (0, 1, "seconds"))


def validation_metrics(comparison: Comparison) -> list[str]:
    """What was measured at validations, in the order of a run's page: the loss first."""
    order = list(CURVE_STYLES)
    names = {
        name
        for system in comparison.systems
        for run in system.curves
        for point in run
        for name in point.scores
    }
    return sorted(names, key=lambda name: (order.index(name) if name in order else 99, name))


def plot_learning_curves(comparison: Comparison, score: str, axis: Axis) -> Figure:
    """Draw a score of every system over an axis."""
    found = [(each, _curves(each.system, score, axis)) for each in plotted_systems(comparison)]
    drawn = [(each, curves) for each, curves in found if curves]
    name = escape_line(curve_style(score).name)
    title, lost = f"{name} on held-out texts over {axis.unit_name}", f"no {name} was told over that"
    notes = list(missing_system_notes(comparison, [each.system.name for each, _ in drawn], lost))
    if not drawn:
        return Figure(title, None, notes)
    unit, counted = _axis_unit(axis, [curve for _, curves in drawn for curve in curves])
    lines = [_line(each, curves, score, axis, unit) for each, curves in drawn]
    label = f"{name} (%)" if curve_style(score).unit == "share" else name
    svg = render_line_chart(lines, title=title, x_label=f"{counted} of training", y_label=label)
    return Figure(title, svg, [*_seeds_note(lines), *notes])


def mean_curve(curves: Sequence[Curve]) -> list[CurvePoint]:
    """The mean of curves at the steps that all of them have; if there are none, the first curve."""
    by_step = [{point.step: point for point in curve} for curve in curves]
    common = set[float]().union(*by_step).intersection(*by_step)
    return [_mean([run[step] for run in by_step]) for step in sorted(common)] or list(curves[0])


def _mean(points: Sequence[CurvePoint]) -> CurvePoint:
    step, seconds, operations, values = zip(*points, strict=True)
    return CurvePoint(step[0], _mean_if_known(seconds), _mean_if_known(operations), mean(values))


def _mean_if_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None


def _curves(system: System, score: str, axis: Axis) -> list[Curve]:
    """The curves of runs that have told the score and where it stands on the axis."""
    curves = (
        [
            CurvePoint(
                point.step, as_finite_float(point.seconds), as_finite_float(point.flops), value
            )
            for point in run
            if (value := as_finite_float(point.scores.get(score))) is not None
        ]
        for run in system.curves
    )
    placed = ([point for point in run if getattr(point, axis.name) is not None] for run in curves)
    return [run for run in placed if run]


def _axis_unit(axis: Axis, curves: Sequence[Curve]) -> tuple[float, str]:
    """What the axis is divided by, and what is then counted along it."""
    if axis.name != "seconds":
        return 1, axis.unit_name
    longest = max(point.seconds or 0 for curve in curves for point in curve)
    return next((size, name) for least, size, name in _TIME_UNITS if longest >= least)


def _line(
    plotted: PlottedSystem, curves: Sequence[Curve], score: str, axis: Axis, unit: float
) -> LineSeries:
    factor = 100 if curve_style(score).unit == "share" else 1

    def points(curve: Curve) -> list[tuple[float, float | None]]:
        thinned = downsample(curve, MAX_POINTS)
        return [(getattr(point, axis.name) / unit, factor * point.value) for point in thinned]

    strands = [points(curve) for curve in curves] if len(curves) > 1 else []
    whole = system_line(
        plotted.style_index, plotted.system, points(mean_curve(curves)), run_curves=strands
    )
    return whole._replace(max_markers=MAX_MARKERS)


def _seeds_note(lines: Sequence[LineSeries]) -> Iterator[str]:
    if any(line.run_curves for line in lines):
        yield "Thin: each run. Thick: their mean, at the validations that all runs of a system had."
    else:
        yield "Each system is one run."


# Plots: how good are systems, against what they cost and by what they are asked?
#
# Between cost and quality stands the front (`front`): what is not on it is beaten twice over. Each
# plot is a `Figure`, whose SVG document can stand alone.


def plot_quality_vs_flops(comparison: Comparison) -> Figure:
    """Draw what the training of each system took, and how good it became."""
    costs = [system.cost.training_flops for system in comparison.systems]
    return _plot_tradeoff(
        comparison,
        _scatter_points(comparison, costs),
        cost=1,
        plot_labels=("training FLOPs", "FLOPs of training", "took fewer FLOPs of training"),
        reason="its quality or the FLOPs of its training are not known",
    )


def plot_quality_vs_speed(comparison: Comparison) -> Figure:
    """Draw how fast each system answers, and how well."""
    speeds = [system.cost.sentences_per_second for system in comparison.systems]
    return _plot_tradeoff(
        comparison,
        _scatter_points(comparison, speeds),
        cost=-1,
        plot_labels=("speed", "sentences per second", "is faster"),
        reason="its quality or its speed is not known",
    )


def plot_quality_by_length(comparison: Comparison) -> Figure:
    """Draw how quality changes with the length of the source."""
    title, groups = (
        f"{main_metric_name(comparison)} against source length",
        length_groups(comparison),
    )
    places = {name: index for index, name in enumerate(groups)}
    lines = [
        system_line(
            style_index,
            system,
            [(places[name], as_finite_float(mean)) for name, _, mean in score.by_length],
        )
        for style_index, system, score in plotted_systems(comparison)
    ]
    drawn = [each for each in lines if each.valid_points]
    notes = list(
        missing_system_notes(
            comparison, [each.name for each in drawn], "it was not measured by length"
        )
    )
    if not drawn:
        return Figure(title, None, notes)
    svg = render_line_chart(
        drawn,
        title=title,
        x_label="words of the source; n: sentences of that length",
        y_label=main_metric_label(comparison),
        category_ticks=[
            CategoryTick(at, escape_line(name), f"n={groups[name]:,}")
            for name, at in places.items()
        ],
    )
    return Figure(title, svg, ["Where n is small, a rise or a fall says little.", *notes])


def length_groups(comparison: Comparison) -> Mapping[str, int]:
    """The groups of lengths that any system was measured on, shortest first, and their sizes."""
    # Systems answered the same sentences: where one was measured less, its groups are among these.
    every = [system.scores[0].by_length for system in comparison.systems]
    return {
        name: size for groups in sorted(every, key=len, reverse=True) for name, size, _ in groups
    }


def _scatter_points(
    comparison: Comparison, costs: Sequence[RunStatistics | None]
) -> list[ScatterPoint]:
    """The systems of which both numbers are known; those across must have a logarithm."""
    return [
        ScatterPoint(
            system.name, across.mean, up.mean, style_index, _error_bar(across), _error_bar(up)
        )
        for (style_index, system, score), across in zip(
            plotted_systems(comparison), costs, strict=False
        )
        for up in [score.stats]
        if across
        and (as_finite_float(across.mean) or 0) >= SMALLEST
        and as_finite_float(up.mean) is not None
    ]


def _error_bar(stats: RunStatistics) -> float:
    return as_finite_float(stats.std) or 0.0


def _plot_tradeoff(
    comparison: Comparison,
    dots: Sequence[ScatterPoint],
    *,
    cost: int,
    plot_labels: tuple[str, str, str],
    reason: str,
) -> Figure:
    """Draw dots and their front; `cost` is 1 where less of what is drawn across is better."""
    against, x_label, cheaper = plot_labels
    title = f"{main_metric_name(comparison)} against {against}"
    notes = list(missing_system_notes(comparison, [dot.name for dot in dots], reason))
    if not dots:
        return Figure(title, None, notes)
    gain = 1 if comparison.systems[0].scores[0].direction == "higher" else -1
    front = pareto_front([cost * dot.x for dot in dots], [gain * dot.y for dot in dots])
    best = [dots[index] for index in front]
    svg = render_scatter_plot(
        dots,
        guide_line=step_line([(dot.x, dot.y) for dot in best]),
        title=title,
        x_label=x_label,
        y_label=main_metric_label(comparison),
        is_logarithmic=True,
    )
    return Figure(title, svg, [_front_note(best, cheaper), *_bars_note(dots), *notes])


def _front_note(best: Sequence[ScatterPoint], cheaper: str) -> str:
    names = ", ".join(escape_line(dot.name) for dot in best)
    dashed = "The dashed front: nothing" if len(best) > 1 else "Nothing"
    return f"{dashed} that {cheaper} is as good as {names}."


def _bars_note(dots: Sequence[ScatterPoint]) -> Iterator[str]:
    if any(dot.x_error or dot.y_error for dot in dots):
        yield "Bars: one standard deviation over the runs of a system, to either side."
    else:
        yield "No bars: the systems have one run each, or runs that do not differ."
