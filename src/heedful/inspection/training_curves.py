"""Training curves from the entries of metrics.jsonl.

Missing fields are left out; values that are not finite numbers are counted but not drawn. The time
and the FLOPs that an entry lacks are interpolated from its neighbors. Invariant: a downsampled
curve keeps its first and last point, its minimum and its maximum.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, Literal, NamedTuple, Protocol

from heedful.plotting.axes import LARGEST, SMALLEST

Entry = Mapping[str, Any]
CurveType = Literal["raw", "smoothed", "validation", "plain"]

AXES = ("step", "seconds", "flops")
MAX_POINTS = 2000
_SMOOTHING_FRACTION = 0.02  # of the points of a curve, but at least
_MIN_SMOOTHING_POINTS = 5


class MetricInfo(Protocol):
    """Properties of a metric that a chart needs; `MetricSpec` of a task has them."""

    @property
    def label(self) -> str:
        """Name of the chart."""

    @property
    def higher_is_better(self) -> bool:
        """Whether the highest value is the best."""

    @property
    def unit(self) -> str:
        """Key of the units of `plotting.axes`: fraction, bytes, seconds or none."""


Metrics = Mapping[str, MetricInfo]


class CurveStyle(NamedTuple):
    """How a logged value is drawn."""

    name: str
    unit: str = ""
    is_logarithmic: bool = False
    from_zero: bool = False
    lower_is_better: bool = False


_LOGGED_VALUES = {
    "learning_rate": CurveStyle("Learning rate", from_zero=True),
    "grad_norm": CurveStyle("Gradient norm", is_logarithmic=True),
    "tokens_per_second": CurveStyle("Tokens per second", from_zero=True),
    "peak_memory": CurveStyle("Peak memory", "bytes", from_zero=True),
    "flops": CurveStyle("FLOPs", from_zero=True),
}
# Fields that give the position of an entry, or that are drawn in another way.
_OTHER_FIELDS = {"type", "epoch", "loss", "num_tokens", "num_targets", "num_skipped_steps", *AXES}


class CurvePoint(NamedTuple):
    """A value and its position on each axis."""

    step: float
    seconds: float | None
    flops: float | None
    value: float


class Curve(NamedTuple):
    """A line of a chart."""

    name: str
    type: CurveType
    points: Sequence[CurvePoint]

    def over(self, axis: int) -> list[tuple[float, float]]:
        """Return position and value of the points whose position on this axis is known."""
        positions = [(point[axis], point.value) for point in self.points]
        return [(position, value) for position, value in positions if position is not None]


class CurveChart(NamedTuple):
    """The curves of a logged value."""

    id: str
    style: CurveStyle
    curves: Sequence[Curve]
    num_missing: int = 0  # entries whose value is not a finite number


class Timeline:
    """Time and FLOPs of each step, interpolated between the entries that have them."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        by_step = sorted(entries, key=_step)
        self._known: dict[str, list[tuple[float, float]]] = {}
        for axis in AXES[1:]:
            values = ((_step(entry), as_finite_float(entry.get(axis))) for entry in by_step)
            self._known[axis] = [(step, value) for step, value in values if value]

    def locate(self, entry: Entry) -> tuple[float, float | None, float | None]:
        """Return step, seconds and FLOPs of an entry."""
        seconds, flops = (self._interpolate(axis, entry) for axis in AXES[1:])
        return _step(entry), seconds, flops

    def _interpolate(self, axis: str, entry: Entry) -> float | None:
        step, value, known = _step(entry), as_finite_float(entry.get(axis)), self._known[axis]
        if value is not None or not known:
            return value
        index = bisect_left(known, step, key=itemgetter(0))
        if index == len(known):
            return known[-1][1]
        step_after, value_after = known[index]
        if index == 0:
            return value_after * (step / step_after) if step_after else value_after  # from zero
        step_before, value_before = known[index - 1]
        fraction = (step - step_before) / (step_after - step_before)
        return value_before + fraction * (value_after - value_before)


def as_finite_float(value: object) -> float | None:
    """Return the value if it is a finite number that is not too large to be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        return None
    return float(value) if abs(value) >= SMALLEST else 0.0


def _step(entry: Entry) -> float:
    return as_finite_float(entry.get("step")) or 0.0


def entries_of_type(entries: Iterable[Entry], entry_type: str) -> list[Entry]:
    """Return the entries of a type by step; of several for a step, the last."""
    by_step = {
        _step(entry): entry
        for entry in entries
        if entry.get("type") == entry_type and as_finite_float(entry.get("step")) is not None
    }
    return [by_step[step] for step in sorted(by_step)]


def curve_style(name: str, metrics: Metrics) -> CurveStyle:
    """Return how values of this name are drawn."""
    if name in metrics:
        info = metrics[name]
        return CurveStyle(info.label, info.unit, lower_is_better=not info.higher_is_better)
    return _LOGGED_VALUES.get(name) or CurveStyle(name.replace("_", " ").capitalize())


def ordered_names(names: Iterable[str], metrics: Metrics) -> list[str]:
    """Return names in display order: metrics, other logged values, then by alphabet."""
    order = {name: index for index, name in enumerate([*metrics, *_LOGGED_VALUES])}
    return sorted(set(names), key=lambda name: (order.get(name, len(order)), name))


def logged_names(entries: Sequence[Entry], metrics: Metrics) -> list[str]:
    """Return the names of all logged values except the loss and the position."""
    values = [pair for entry in entries for pair in entry.items()]
    names = {name for name, value in values if isinstance(value, int | float)}
    return ordered_names(names - _OTHER_FIELDS, metrics)


def make_charts(entries: Sequence[Entry], metrics: Metrics) -> list[CurveChart]:
    """Return each chart that has a point; the loss first."""
    training = entries_of_type(entries, "training")
    validations = entries_of_type(entries, "validation")
    timeline = Timeline([*training, *validations])
    charts = [_loss_chart(training, validations, timeline, curve_style("loss", metrics))]
    for name in logged_names(validations, metrics):
        charts.append(_chart(name, metrics, validations, timeline, "validation"))
    for name in [*logged_names(training, metrics), "flops"]:
        charts.append(_chart(name, metrics, training, timeline, "plain"))
    charts.append(_auxiliary_loss_chart(training, timeline))
    return [chart for chart in charts if any(curve.points for curve in chart.curves)]


def _loss_chart(
    training: Sequence[Entry], validations: Sequence[Entry], timeline: Timeline, style: CurveStyle
) -> CurveChart:
    raw, held_out = (_points(entries, "loss", timeline) for entries in (training, validations))
    curves = [
        Curve("training", "raw", downsample(raw)),
        Curve("training, smoothed", "smoothed", downsample(smooth(raw))),
        Curve("validation", "validation", downsample(held_out)),
    ]
    num_missing = len(training) + len(validations) - len(raw) - len(held_out)
    return CurveChart("loss", style, curves, num_missing)


def _chart(
    name: str, metrics: Metrics, entries: Sequence[Entry], timeline: Timeline, kind: CurveType
) -> CurveChart:
    values, style = [entry for entry in entries if name in entry], curve_style(name, metrics)
    points = _points(values, name, timeline)
    if any(point.value < SMALLEST for point in points):
        style = style._replace(is_logarithmic=False)
    curves = [Curve("", kind, downsample(points))]
    return CurveChart(name, style, curves, len(values) - len(points))


def _auxiliary_loss_chart(training: Sequence[Entry], timeline: Timeline) -> CurveChart:
    logged = [(entry, entry.get("auxiliary_losses")) for entry in training]
    losses = [(entry, values) for entry, values in logged if isinstance(values, dict)]
    entries = [{**entry, **values} for entry, values in losses]
    curves = [
        Curve(name, "plain", downsample(_points(entries, name, timeline)))
        for name in sorted({name for _, values in losses for name in values})
    ]
    return CurveChart("auxiliary_losses", CurveStyle("Auxiliary losses"), curves)


def _points(entries: Iterable[Entry], name: str, timeline: Timeline) -> list[CurvePoint]:
    return [
        CurvePoint(*timeline.locate(entry), value)
        for entry in entries
        if (value := as_finite_float(entry.get(name))) is not None
    ]


def smooth(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the centered moving average.

    It starts at the first point, with a window that grows, and ends with the mean of the last ones.
    """
    reach = round(max(_MIN_SMOOTHING_POINTS, _SMOOTHING_FRACTION * len(points)) / 2)
    sums = [0.0, *accumulate(point.value for point in points)]
    smoothed = []
    for index, point in enumerate(points):
        first, end = max(0, index - reach), min(len(points), index + min(index, reach) + 1)
        smoothed.append(point._replace(value=(sums[end] - sums[first]) / (end - first)))
    return smoothed


def downsample(points: Sequence[CurvePoint], max_points: int = MAX_POINTS) -> list[CurvePoint]:
    """Keep at most `max_points`: the ends, and the minimum and maximum of each window."""
    if len(points) <= max_points:
        return list(points)
    num_windows = max_points // 2 - 1
    kept = {0, len(points) - 1}
    for window in range(num_windows):
        start, end = (bound * len(points) // num_windows for bound in (window, window + 1))
        kept.add(min(range(start, end), key=lambda index: points[index].value))
        kept.add(max(range(start, end), key=lambda index: points[index].value))
    return [points[index] for index in sorted(kept)]
