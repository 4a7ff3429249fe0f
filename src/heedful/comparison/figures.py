"""Figures of a comparison: quality against cost, by source length, and learning curves.

A system has the same color, marker and dash in each figure. Systems without the numbers are left
out, which a note says; without any system there is no figure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

from heedful.comparison.results import Comparison, RunStatistics, System
from heedful.inspection import training_curves
from heedful.inspection.training_curves import CurvePoint, CurveStyle, as_finite_float
from heedful.plotting import charts
from heedful.plotting.axes import SMALLEST, CategoryTick, PlotFrame
from heedful.plotting.charts import MAX_LINES, LineSeries, PointOrGap
from heedful.plotting.svg import escape_line
from heedful.tasks.registry import all_metrics

MAX_POINTS = 200  # of a learning curve
MAX_MARKERS = 8


class Figure(NamedTuple):
    """A figure and its notes."""

    title: str
    svg: str | None  # a complete document; None if there is nothing to draw
    notes: Sequence[str]


def main_metric_name(comparison: Comparison) -> str:
    """Return the name of the metric that systems are ranked by."""
    return escape_line(comparison.systems[0].scores[0].score.name)


def main_metric_label(comparison: Comparison) -> str:
    """Return the name and the direction of the main metric."""
    return f"{main_metric_name(comparison)} ({comparison.systems[0].scores[0].direction} is better)"


def missing_system_notes(
    comparison: Comparison, names: Iterable[str], reason: str
) -> Iterator[str]:
    """Yield notes on the systems that are not among the drawn names."""
    drawn, all_names = set(names), [system.name for system in comparison.systems]
    missing = [name for name in all_names[:MAX_LINES] if name not in drawn]
    if missing:
        yield f"Left out: {', '.join(map(escape_line, missing))}: {reason}."
    if len(all_names) > MAX_LINES:
        yield f"Only the first {MAX_LINES} systems are drawn: more cannot be told apart."


def _system_line(index: int, system: System, points: Sequence[PointOrGap]) -> LineSeries:
    is_dashed = index >= len(charts.LIGHT_LINE_COLORS)  # where colors repeat
    return LineSeries(system.name, points, dashed=is_dashed, style_index=index)


# ----- quality against cost -----


def plot_quality_vs_flops(comparison: Comparison) -> Figure:
    """Plot the main metric against the training FLOPs."""
    name, cheaper = "training FLOPs", "needs fewer training FLOPs"
    return _plot_tradeoff(comparison, "training_flops", name, name, cheaper, cost_sign=1)


def plot_quality_vs_speed(comparison: Comparison) -> Figure:
    """Plot the main metric against the decoding speed."""
    field, x_label, cheaper = "sentences_per_second", "sentences per second", "is faster"
    return _plot_tradeoff(comparison, field, "speed", x_label, cheaper, cost_sign=-1)


def _plot_tradeoff(
    comparison: Comparison, field: str, name: str, x_label: str, cheaper: str, *, cost_sign: int
) -> Figure:
    """Plot systems and their Pareto front; `cost_sign` is 1 if a lower x is better, else -1."""
    title = f"{main_metric_name(comparison)} against {name}"
    points = []
    for index, system in enumerate(comparison.systems[:MAX_LINES]):
        cost: RunStatistics | None = getattr(system.cost, field)
        quality = system.scores[0].stats
        has_logarithm = cost and (as_finite_float(cost.mean) or 0) >= SMALLEST
        if cost and has_logarithm and as_finite_float(quality.mean) is not None:
            errors = [as_finite_float(stats.std) or 0.0 for stats in (cost, quality)]
            points.append(charts.ScatterPoint(system.name, cost.mean, quality.mean, index, *errors))
    reason, drawn = f"score or {name} unknown", [point.name for point in points]
    notes = list(missing_system_notes(comparison, drawn, reason))
    if not points:
        return Figure(title, None, notes)
    quality_sign = 1 if comparison.systems[0].scores[0].direction == "higher" else -1
    front = pareto_front(
        [cost_sign * point.x for point in points], [quality_sign * point.y for point in points]
    )
    best = [points[index] for index in front]
    svg = charts.render_scatter_plot(
        points,
        guide_line=step_line([(point.x, point.y) for point in best]),
        title=title,
        x_label=x_label,
        y_label=main_metric_label(comparison),
        is_logarithmic=True,
    )
    names = ", ".join(escape_line(point.name) for point in best)
    prefix = "Dashed: the Pareto front; no" if len(best) > 1 else "No"
    front_note = f"{prefix} system that {cheaper} is as good as {names}."
    bars_note = "No error bars: one run per system, or runs that do not differ."
    if any(point.x_error or point.y_error for point in points):
        bars_note = "Error bars: one standard deviation over the runs of a system."
    return Figure(title, svg, [front_note, bars_note, *notes])


def pareto_front(costs: Sequence[float], qualities: Sequence[float]) -> list[int]:
    """Return the indices of the points that no other dominates, by increasing cost.

    A point dominates another if it costs no more and is no worse, and they are not equal.
    """
    points = list(zip(costs, qualities, strict=True))
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda index: (costs[index], -qualities[index])):
        # All points before this one cost no more, so it must be better, or equal in both.
        last = points[front[-1]] if front else None
        if last is None or qualities[index] > last[1] or points[index] == last:
            front.append(index)
    return front


def step_line(front: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of the staircase along a front: first across, then up."""
    corners = [(later[0], earlier[1]) for earlier, later in pairwise(front)]
    steps = [point for pair in zip(front, corners, strict=False) for point in pair]
    return [*steps, *front[-1:]]


# ----- quality by source length -----


def plot_quality_by_length(comparison: Comparison) -> Figure:
    """Plot the main metric over groups of source lengths."""
    title = f"{main_metric_name(comparison)} against source length"
    groups = length_groups(comparison)
    positions = {name: index for index, name in enumerate(groups)}
    lines = []
    for index, system in enumerate(comparison.systems[:MAX_LINES]):
        scores = system.scores[0].by_length
        points = [(positions[name], as_finite_float(score)) for name, _, score in scores]
        line = _system_line(index, system, points)
        if line.valid_points:
            lines.append(line)
    names = [line.name for line in lines]
    notes = list(missing_system_notes(comparison, names, "no scores by length"))
    if not lines:
        return Figure(title, None, notes)
    svg = charts.render_line_chart(
        lines,
        title=title,
        x_label="words of the source; n: number of sentences",
        y_label=main_metric_label(comparison),
        category_ticks=[
            CategoryTick(position, escape_line(name), f"n={groups[name]:,}")
            for name, position in positions.items()
        ],
    )
    return Figure(title, svg, ["Where n is small, differences are not reliable.", *notes])


def length_groups(comparison: Comparison) -> Mapping[str, int]:
    """Return the groups of lengths with their sizes, shortest first."""
    # All systems have the same sentences: the groups of one are among those of the longest list.
    by_system = [system.scores[0].by_length for system in comparison.systems]
    longest_first = sorted(by_system, key=len, reverse=True)
    return {name: size for groups in longest_first for name, size, _ in groups}


# ----- learning curves -----


class Axis(NamedTuple):
    """The x-axis of learning curves."""

    name: str  # field of `CurvePoint`
    title: str
    label: str
    unit: str = ""


AXES = (
    Axis("step", "Steps", "steps"),
    Axis("seconds", "Time", "time", "seconds"),
    Axis("flops", "FLOPs", "FLOPs"),
)


def validation_metrics(comparison: Comparison) -> list[str]:
    """Return the names of validation metrics, "loss" first."""
    points = [point for system in comparison.systems for run in system.curves for point in run]
    names = (name for point in points for name in point.scores)
    return training_curves.ordered_names(names, all_metrics())


def validation_metric_style(name: str) -> CurveStyle:
    """Return label, unit and direction of a validation metric."""
    return training_curves.curve_style(name, all_metrics())


def plot_learning_curves(comparison: Comparison, score: str, axis: Axis) -> Figure:
    """Plot a validation metric of each system over an axis.

    A thin line is a run, a thick line the mean of the runs of a system at the steps that all have.
    """
    style = validation_metric_style(score)
    name = escape_line(style.name)
    lines = []
    for index, system in enumerate(comparison.systems[:MAX_LINES]):
        curves = _run_curves(system, score, axis)
        if curves:
            line = _system_line(index, system, _points(mean_curve(curves), axis))
            runs = [_points(curve, axis) for curve in curves] if len(curves) > 1 else []
            lines.append(line._replace(run_curves=runs, max_markers=MAX_MARKERS))
    title, reason = f"Validation {name} over {axis.label}", f"no {name} over {axis.label}"
    notes = list(missing_system_notes(comparison, [line.name for line in lines], reason))
    if not lines:
        return Figure(title, None, notes)
    svg = charts.render_line_chart(
        lines,
        title=title,
        x_label=f"{axis.label} of training",
        y_label=name,
        frame=PlotFrame(units=(axis.unit, style.unit)),
    )
    means_note = "Thin: runs. Thick: mean of a system's runs, at the validations all of them had."
    has_means = any(line.run_curves for line in lines)
    return Figure(title, svg, [means_note if has_means else "Each system has one run.", *notes])


def _run_curves(system: System, score: str, axis: Axis) -> list[list[CurvePoint]]:
    """Return the curves of the runs that have points on this axis."""
    curves = []
    for run in system.curves:
        points = [
            CurvePoint(step, as_finite_float(seconds), as_finite_float(flops), value)
            for step, seconds, flops, scores in run
            if (value := as_finite_float(scores.get(score))) is not None
        ]
        curves.append([point for point in points if getattr(point, axis.name) is not None])
    return [curve for curve in curves if curve]


def _points(curve: Sequence[CurvePoint], axis: Axis) -> list[PointOrGap]:
    points = training_curves.downsample(curve, MAX_POINTS)
    return [(getattr(point, axis.name), point.value) for point in points]


def mean_curve(curves: Sequence[Sequence[CurvePoint]]) -> list[CurvePoint]:
    """Return the mean of curves at the steps that all have; if there are none, the first curve."""
    by_step = [{point.step: point for point in curve} for curve in curves]

    def mean_if_known(values: Sequence[float | None]) -> float | None:
        numbers = [value for value in values if value is not None]
        return mean(numbers) if len(numbers) == len(values) else None

    means = []
    for step in sorted(set(by_step[0]).intersection(*by_step)):
        _, seconds, flops, values = zip(*(run[step] for run in by_step), strict=True)
        means.append(CurvePoint(step, mean_if_known(seconds), mean_if_known(flops), mean(values)))
    return means or list(curves[0])
