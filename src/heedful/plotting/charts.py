"""Line charts and scatter plots as SVG, for papers and for the pages of a run and a comparison.

Every marker stands at its numbers and carries them as `data-x` and `data-y`, so that a chart can be
measured; the scales are attributes of the root, so that a script can read it. Series differ in
color and in marker shape, and can be told apart in print and with color vision deficiency.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from heedful.errors import DataError, check
from heedful.plotting.axes import (
    LARGEST,
    PADDING,
    SMALLEST,
    SWATCH,
    AxisScale,
    CategoryTick,
    PlotFrame,
    PlotLabels,
    PlotLayout,
    draw_axes,
    format_exact,
    layout_plot,
    spread_labels,
    truncate_name,
)
from heedful.plotting.svg import (
    DARK,
    LIGHT,
    NOTHING_TO_DRAW,
    Palette,
    add_path,
    add_text,
    escape_line,
    format_px,
    svg_document,
    to_svg,
)

# Blue, orange, green, pink, brown or yellow, gray: at least 15 apart in CIE 1976 without red or
# green cones, too, and with a contrast of 3 to 1 on the background.
LIGHT_LINE_COLORS = ("#1e2a80", "#d4620c", "#1b8269", "#c230aa", "#734b01", "#8a92a0")
DARK_LINE_COLORS = ("#80a0ff", "#fb8a3c", "#36d6be", "#ffabfd", "#fde047", "#8da4c0")
# Circle, square, triangle, diamond and inverted triangle of about the same area.
MARKER_PATHS = (
    "M-4,0 a4,4 0 1,0 8,0 a4,4 0 1,0 -8,0 Z",
    "M-3.6,-3.6 H3.6 V3.6 H-3.6 Z",
    "M0,-4.8 L4.8,3.6 H-4.8 Z",
    "M0,-5 L5,0 L0,5 L-5,0 Z",
    "M0,4.8 L4.8,-3.6 H-4.8 Z",
)
MAX_LINES = math.lcm(len(LIGHT_LINE_COLORS), len(MARKER_PATHS))

FULL_FRAME = PlotFrame()

_SCATTER_SIZE = 1.4  # of a marker, relative to those on lines
_COMPACT_SIZE = 0.6
_CAP = 4  # pixels to either side of the end of an error bar

_STYLE = """
.rule, .axis {{ fill: none; stroke: {rule}; }}
.axis {{ stroke: {muted}; }}
.tick {{ font-size: 12px; fill: {muted}; font-variant-numeric: tabular-nums; }}
.middle {{ text-anchor: middle; }}
.end {{ text-anchor: end; }}
.axis-label {{ font-size: 13px; }}
.name {{ font-size: 14px; stroke: none; }}
.line {{ fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }}
.dashed {{ stroke-dasharray: 3 6; }}
.run-curve, .error-bar {{ fill: none; stroke-width: 1.3; }}
.run-curve {{ opacity: 0.4; }}
.guide {{ fill: none; stroke: {muted}; stroke-width: 1.3; stroke-dasharray: 5 4; }}
.marker {{ stroke: {background}; stroke-width: 1.2; }}
.best {{ fill: {background}; stroke-width: 2; }}
.event {{ fill: none; stroke: {muted}; stroke-dasharray: 5 4; }}
.event.skipped {{ fill: {accent}; stroke: none; }}
"""

Point = tuple[float, float]
PointOrGap = tuple[float, float | None]
"""x and y; y is None for a gap."""


class LineSeries(NamedTuple):
    """A named line through points."""

    name: str
    points: Sequence[PointOrGap]
    dashed: bool = False
    style_index: int | None = None  # color and marker; by default the index of the line
    run_curves: Sequence[Sequence[PointOrGap]] = ()  # thin lines of the same color behind it
    max_markers: int | None = None  # evenly spaced; by default every point has one
    best: Point | None = None  # the point with a ring

    @property
    def valid_points(self) -> list[Point]:
        """The points without the gaps."""
        return drop_gaps(self.points)

    @property
    def marker_points(self) -> list[Point]:
        """The points with a marker, the first and the last among them."""
        points, count = self.valid_points, self.max_markers
        if count is None or len(points) <= max(1, count):
            return points
        return [points[index * (len(points) - 1) // (count - 1)] for index in range(count)]


class ScatterPoint(NamedTuple):
    """A named point with error bars of `x_error` and `y_error` to either side."""

    name: str
    x: float
    y: float
    style_index: int
    x_error: float = 0.0
    y_error: float = 0.0


class ChartEvent(NamedTuple):
    """Something that happened at an x: a dashed line, or a triangle for the type `skipped`."""

    x: float
    type: str
    title: str


def drop_gaps(points: Iterable[PointOrGap]) -> list[Point]:
    """Return the points whose y is not None."""
    return [(x, y) for x, y in points if y is not None]


def render_line_chart(
    lines: Sequence[LineSeries],
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    log_axes: tuple[bool, bool] = (False, False),
    category_ticks: Sequence[CategoryTick] = (),
    events: Sequence[ChartEvent] = (),
    frame: PlotFrame = FULL_FRAME,
) -> str:
    """Draw lines over a common x axis as an SVG document.

    `category_ticks` replace the numbers along x. A compact chart has neither names nor labels.
    """
    _check_count(len(lines), "lines")
    for line in lines:
        for points in (line.points, *line.run_curves):
            for index, point in enumerate(points, start=1):
                _check_point(f"chart, line {line.name!r}, point {index}", point, log_axes)
    drawn = [line for line in lines if line.valid_points]
    labels = PlotLabels.escaped(title, x_label, y_label)
    if not drawn:
        return render_empty(labels.title)
    curves = [curve for line in drawn for curve in (line.points, *line.run_curves)]
    xs, ys = zip(*(point for curve in curves for point in drop_gaps(curve)), strict=True)
    description = _describe_lines(drawn, labels)
    labels = PlotLabels("", "", "") if frame.is_compact else labels
    names = [line.name for line in drawn]
    plot = layout_plot(
        xs,
        ys,
        names=names,
        plot_labels=labels,
        frame=frame,
        log_axes=log_axes,
        category_ticks=category_ticks,
    )
    root = _begin_plot(plot, labels, title=escape_line(title), description=description)
    for event in events:
        _draw_event(root, event, plot)
    label_ys = spread_labels((plot.y.to_pixel(line.valid_points[-1][1]) for line in drawn), plot)
    for index, (line, label_y) in enumerate(zip(drawn, label_ys, strict=True)):
        style_index = index if line.style_index is None else line.style_index
        _draw_line(root, line._replace(style_index=style_index), plot, label_y, frame.is_compact)
    return to_svg(root)


def render_scatter_plot(
    points: Sequence[ScatterPoint],
    *,
    guide_line: Sequence[Point] = (),
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    is_logarithmic: bool = False,
) -> str:
    """Draw points over a dashed guide line as an SVG document; x may be logarithmic."""
    log_axes = (is_logarithmic, False)
    _check_count(len(points), "points")
    for point in points:
        _check_point(f"chart, point {point.name!r}", (point.x, point.y), log_axes)
    labels = PlotLabels.escaped(title, x_label, y_label)
    if not points:
        return render_empty(labels.title)
    xs = [point.x + sign * point.x_error for point in points for sign in (-1, 0, 1)]
    ys = [point.y + sign * point.y_error for point in points for sign in (-1, 0, 1)]
    xs = [x for x in xs if x >= SMALLEST or not is_logarithmic]
    names = [point.name for point in points]
    plot = layout_plot(xs, ys, names=names, plot_labels=labels, frame=FULL_FRAME, log_axes=log_axes)
    positions = (f"{escape_line(dot.name)}: {dot.y:.3g} at {dot.x:.3g}" for dot in points)
    description = f"{labels.y_label} against {labels.x_label}. {'; '.join(positions)}."
    root = _begin_plot(plot, labels, title=labels.title, description=description)
    if len(guide_line) > 1:
        add_path(root, "guide", " ".join(_path_segments(guide_line, plot)))
    label_ys = spread_labels((plot.y.to_pixel(point.y) for point in points), plot)
    for point, label_y in zip(points, label_ys, strict=True):
        group = _add_series_group(root, point.name, point.style_index)
        _draw_error_bars(group, point, plot)
        _add_marker(group, point.style_index, (point.x, point.y), plot, _SCATTER_SIZE)
        _add_legend_entry(group, point.name, point.style_index, plot, label_y)
    return to_svg(root)


def render_empty(title: str) -> str:
    """Draw a document that says that there is nothing to draw."""
    root = _begin_chart(350, 90, title=title, description=NOTHING_TO_DRAW)
    if title:
        add_text(root, "title", title, x=PADDING, y=PADDING + 14)
    add_text(root, "note", NOTHING_TO_DRAW, x=PADDING, y=64)
    return to_svg(root)


def chart_style() -> str:
    """Return the CSS of charts for a page that embeds them."""
    root = _begin_chart(1, 1, title="", description="")
    return f"svg {{ {''.join(style.text or '' for style in root.iter('style'))} }}\n"


# ----- checks -----


def _check_count(count: int, unit: str) -> None:
    check(
        count <= MAX_LINES,
        "chart",
        f"{count} {unit} cannot be told apart; there are styles for {MAX_LINES}",
        "leave some out, or draw several charts",
        DataError,
    )


def _check_point(location: str, point: PointOrGap, log_axes: tuple[bool, bool]) -> None:
    for axis, value, is_logarithmic in zip("xy", point, log_axes, strict=True):
        if value is None:
            continue
        check(
            abs(value) <= LARGEST,  # False for NaN, too
            location,
            f"{axis} must be a finite number, but is {value}",
            "leave the point out, or give None for a y that is missing",
            DataError,
        )
        check(
            value >= SMALLEST or not is_logarithmic,
            location,
            f"{axis} must be positive on a logarithmic axis, but is {value:g}",
            f"leave the point out, or make the {axis} axis linear",
            DataError,
        )


# ----- drawing -----


def _begin_chart(width: float, height: float, *, title: str, description: str) -> Element:
    root = svg_document(width, height, title=title or "Lines", description=description)
    light, dark = _style(LIGHT, LIGHT_LINE_COLORS), _style(DARK, DARK_LINE_COLORS)
    SubElement(root, "style").text = f"{light}@media (prefers-color-scheme: dark) {{{dark}}}"
    return root


def _begin_plot(plot: PlotLayout, labels: PlotLabels, *, title: str, description: str) -> Element:
    root = _begin_chart(plot.width, plot.height, title=title, description=description)
    root.set("data-x-scale", plot.x.attribute)
    root.set("data-y-scale", plot.y.attribute)
    if labels.title:
        add_text(root, "title", labels.title, x=PADDING, y=PADDING + 14)
    draw_axes(root, plot, labels)
    return root


def _style(palette: Palette, colors: Iterable[str]) -> str:
    rules = (f".line-{i} {{ stroke: {c}; fill: {c}; }}\n" for i, c in enumerate(colors))
    return "\n" + "".join(rules) + _STYLE.lstrip().format_map(palette._asdict())


def _describe_lines(lines: Sequence[LineSeries], labels: PlotLabels) -> str:
    ends = (
        f"{escape_line(line.name)}: from {y:.3g} at {x:.3g} to {last_y:.3g} at {last_x:.3g}"
        for line in lines
        for (x, y), *_, (last_x, last_y) in [[*line.valid_points, line.valid_points[-1]]]
    )
    x_label = labels.x_label or "a common axis"
    return f"{labels.y_label or 'Lines'} over {x_label}. {'; '.join(ends)}."


def _draw_event(root: Element, event: ChartEvent, plot: PlotLayout) -> None:
    x, bottom, top = format_px(plot.x.to_pixel(event.x)), plot.y.start, format_px(plot.y.end)
    path = f"M{x},{top} V{format_px(bottom)}"
    if event.type == "skipped":
        path = f"M{x},{format_px(bottom - 7)} l4,7 h-8 Z"
    SubElement(add_path(root, f"event {event.type}", path), "title").text = event.title


def _draw_line(
    root: Element, line: LineSeries, plot: PlotLayout, label_y: float, is_compact: bool
) -> None:
    """Draw a line, its markers, and unless the chart is compact its name beside the plot."""
    assert line.style_index is not None
    css_class = "line dashed" if line.dashed else "line"
    group = _add_series_group(root, line.name, line.style_index)
    for curve in line.run_curves:
        add_path(group, "run-curve", " ".join(_path_segments(curve, plot)))
    add_path(group, css_class, " ".join(_path_segments(line.points, plot)))
    for point in line.marker_points:
        _add_marker(group, line.style_index, point, plot, _COMPACT_SIZE if is_compact else 1)
    if line.best:
        _add_marker(group, line.style_index, line.best, plot).set("class", "best")
    if not is_compact:
        left = plot.x.end + 14
        add_path(group, css_class, f"M{format_px(left)},{format_px(label_y)} h{SWATCH}")
        _add_legend_entry(group, line.name, line.style_index, plot, label_y)


def _add_series_group(root: Element, name: str, style_index: int) -> Element:
    css_class = f"line-{style_index % len(LIGHT_LINE_COLORS)}"
    return SubElement(root, "g", {"class": css_class, "data-name": escape_line(name)})


def _add_marker(
    group: Element, style_index: int, point: Point, plot: PlotLayout, size: float = 1
) -> Element:
    x, y = point
    marker = _add_marker_path(group, style_index, plot.x.to_pixel(x), plot.y.to_pixel(y), size)
    marker.set("data-x", format_exact(x))
    marker.set("data-y", format_exact(y))
    label = f"{group.get('data-name')}: {format_exact(y)} at {format_exact(x)}"
    SubElement(marker, "title").text = label
    return marker


def _add_marker_path(
    group: Element, style_index: int, x: float, y: float, size: float = 1
) -> Element:
    marker = add_path(group, "marker", MARKER_PATHS[style_index % len(MARKER_PATHS)])
    scale = "" if size == 1 else f" scale({size:g})"
    marker.set("transform", f"translate({format_px(x)} {format_px(y)}){scale}")
    return marker


def _add_legend_entry(
    group: Element, name: str, style_index: int, plot: PlotLayout, label_y: float
) -> None:
    left = plot.x.end + 14
    _add_marker_path(group, style_index, left + SWATCH / 2, label_y)
    add_text(group, "name", truncate_name(name), x=left + SWATCH + 8, y=label_y + 5)


def _path_segments(points: Iterable[PointOrGap], plot: PlotLayout) -> Iterator[str]:
    """Yield the segments of a path, with a new subpath after each gap."""
    command = "M"
    for x, y in points:
        if y is None:
            command = "M"
        else:
            yield f"{command}{format_px(plot.x.to_pixel(x))},{format_px(plot.y.to_pixel(y))}"
            command = "L"


def _draw_error_bars(group: Element, point: ScatterPoint, plot: PlotLayout) -> None:
    x, y = plot.x.to_pixel(point.x), plot.y.to_pixel(point.y)
    if point.x_error:
        ends = _error_bar_ends(point.x, point.x_error, plot.x)
        caps = " ".join(f"M{end},{format_px(y - _CAP)} v{2 * _CAP}" for end in ends)
        add_path(group, "error-bar", f"M{ends[0]},{format_px(y)} H{ends[1]}")
        add_path(group, "error-bar", caps)
    if point.y_error:
        ends = _error_bar_ends(point.y, point.y_error, plot.y)
        caps = " ".join(f"M{format_px(x - _CAP)},{end} h{2 * _CAP}" for end in ends)
        add_path(group, "error-bar", f"M{format_px(x)},{ends[0]} V{ends[1]}")
        add_path(group, "error-bar", caps)


def _error_bar_ends(value: float, error: float, scale: AxisScale) -> tuple[str, str]:
    """Return the pixels of both ends; on a logarithmic axis a bar to zero ends at the edge."""
    low = max(value - error, scale.ticks[0])
    return format_px(scale.to_pixel(low)), format_px(scale.to_pixel(value + error))
