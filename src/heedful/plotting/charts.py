"""Line charts and scatter plots as SVG, for papers and for the pages of a run and a comparison.

Each marker has its numbers as `data-x` and `data-y`, and the root has the scales as attributes, so
that a script can read a chart. Series differ in color and in marker shape, and can be distinguished
in print and with color vision deficiency.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from heedful.errors import DataError, check
from heedful.plotting import axes, svg
from heedful.plotting.axes import AxisScale, CategoryTick, PlotFrame, PlotLabels, PlotLayout
from heedful.plotting.svg import add_path, add_text, escape_line, format_px

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
.band {{ stroke: none; opacity: 0.25; }}
.marker {{ stroke: {background}; stroke-width: 1.2; }}
.best {{ fill: {background}; stroke-width: 2; }}
.event {{ fill: none; stroke: {muted}; stroke-dasharray: 5 4; }}
.event.skipped {{ fill: {accent}; stroke: none; }}
"""


def _style(palette: svg.Palette, colors: Sequence[str]) -> str:
    rules = (f".line-{i} {{ stroke: {c}; fill: {c}; }}\n" for i, c in enumerate(colors))
    return "\n" + "".join(rules) + _STYLE.lstrip().format_map(palette._asdict())


_THEMED_STYLE = svg.select_by_scheme(
    _style(svg.LIGHT, LIGHT_LINE_COLORS), _style(svg.DARK, DARK_LINE_COLORS)
)
CHART_STYLE = f"svg {{ {svg.SVG_STYLE}{_THEMED_STYLE} }}\n"
"""The CSS of charts for a page that embeds them."""

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
        return _drop_gaps(self.points)

    @property
    def marker_points(self) -> list[Point]:
        """The points with a marker, the first and the last among them."""
        points, count = self.valid_points, self.max_markers
        if count is None or len(points) <= max(1, count):
            return points
        return [points[index * (len(points) - 1) // (count - 1)] for index in range(count)]


class Band(NamedTuple):
    """The area between two lines with points at the same x."""

    name: str
    low: Sequence[Point]
    high: Sequence[Point]
    style_index: int


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


def _drop_gaps(points: Iterable[PointOrGap]) -> list[Point]:
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
    bands: Sequence[Band] = (),
    frame: PlotFrame = FULL_FRAME,
) -> str:
    """Draw lines over bands as an SVG document; `category_ticks` replace the numbers along x."""
    _check_count(len(lines), "lines")
    for line in lines:
        for points in (line.points, *line.run_curves):
            for index, point in enumerate(points, start=1):
                _check_point(f"chart, line {line.name!r}, point {index}", point, log_axes)
    lines = [line for line in lines if line.valid_points]
    labels = PlotLabels(*map(escape_line, (title, x_label, y_label)))
    if not lines:
        return svg.render_empty(labels.title, "Lines", _THEMED_STYLE)
    curves = [curve for line in lines for curve in (line.points, *line.run_curves)]
    curves += [edge for band in bands for edge in (band.low, band.high)]
    xs, ys = zip(*(point for curve in curves for point in _drop_gaps(curve)), strict=True)
    plot = axes.layout_plot(
        xs,
        ys,
        names=[line.name for line in lines],
        plot_labels=PlotLabels() if frame.is_compact else labels,
        frame=frame,
        log_axes=log_axes,
        category_ticks=category_ticks,
        ends_at_data=not category_ticks,
    )
    root = _begin_plot(plot, labels, _describe_lines(lines, labels), is_compact=frame.is_compact)
    bottom, top = plot.y.start, format_px(plot.y.end)
    for event in events:
        x = format_px(plot.x.to_pixel(event.x))
        is_skipped, line_path = event.type == "skipped", f"M{x},{top} V{format_px(bottom)}"
        path = f"M{x},{format_px(bottom - 7)} l4,7 h-8 Z" if is_skipped else line_path
        SubElement(add_path(root, f"event {event.type}", path), "title").text = event.title
    for band in bands:
        _Series(root, band.name, band.style_index, plot).draw_band(band)
    last_ys = [plot.y.to_pixel(line.valid_points[-1][1]) for line in lines]
    for index, label_y in enumerate(axes.spread_labels(last_ys, plot)):
        line = lines[index]
        style_index = index if line.style_index is None else line.style_index
        series = _Series(root, line.name, style_index, plot)
        series.draw_line(line, None if frame.is_compact else label_y)
    return svg.to_svg(root)


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
    labels = PlotLabels(*map(escape_line, (title, x_label, y_label)))
    if not points:
        return svg.render_empty(labels.title, "Lines", _THEMED_STYLE)
    xs = [point.x + sign * point.x_error for point in points for sign in (-1, 0, 1)]
    ys = [point.y + sign * point.y_error for point in points for sign in (-1, 0, 1)]
    plot = axes.layout_plot(
        [x for x in xs if x >= axes.SMALLEST or not is_logarithmic],
        ys,
        names=[point.name for point in points],
        plot_labels=labels,
        frame=FULL_FRAME,
        log_axes=log_axes,
    )
    positions = (f"{escape_line(dot.name)}: {dot.y:.3g} at {dot.x:.3g}" for dot in points)
    description = f"{labels.y_label} against {labels.x_label}. {'; '.join(positions)}."
    root = _begin_plot(plot, labels, description)
    if len(guide_line) > 1:
        add_path(root, "guide", _path(guide_line, plot))
    label_ys = axes.spread_labels((plot.y.to_pixel(point.y) for point in points), plot)
    for point, label_y in zip(points, label_ys, strict=True):
        series = _Series(root, point.name, point.style_index, plot)
        series.draw_error_bars(point)
        series.add_marker((point.x, point.y), _SCATTER_SIZE)
        series.add_legend_entry(label_y)
    return svg.to_svg(root)


def _check_count(count: int, unit: str) -> None:
    message = f"{count} {unit} cannot be told apart; there are styles for {MAX_LINES}"
    hint = "leave some out, or draw several charts"
    check(count <= MAX_LINES, "chart", message, hint, DataError)


def _check_point(location: str, point: PointOrGap, log_axes: tuple[bool, bool]) -> None:
    for axis, value, is_logarithmic in zip("xy", point, log_axes, strict=True):
        if value is None:
            continue
        message = f"{axis} must be a finite number, but is {value}"
        hint = "leave the point out, or give None for a y that is missing"
        check(abs(value) <= axes.LARGEST, location, message, hint, DataError)  # NaN fails, too
        if is_logarithmic:
            message = f"{axis} must be positive on a logarithmic axis, but is {value:g}"
            hint = f"leave the point out, or make the {axis} axis linear"
            check(value >= axes.SMALLEST, location, message, hint, DataError)


# ----- drawing -----


def _begin_plot(
    plot: PlotLayout, labels: PlotLabels, description: str, *, is_compact: bool = False
) -> Element:
    shown = PlotLabels() if is_compact else labels
    texts = {"title": labels.title or "Lines", "description": description, "heading": shown.title}
    root = svg.svg_document(plot.width, plot.height, **texts, style=_THEMED_STYLE)
    root.attrib |= {"data-x-scale": plot.x.attribute, "data-y-scale": plot.y.attribute}
    axes.draw_axes(root, plot, shown)
    return root


def _describe_lines(lines: Sequence[LineSeries], labels: PlotLabels) -> str:
    ends = []
    for line in lines:
        (x, y), (last_x, last_y) = line.valid_points[0], line.valid_points[-1]
        name = escape_line(line.name)
        ends.append(f"{name}: from {y:.3g} at {x:.3g} to {last_y:.3g} at {last_x:.3g}")
    x_label = labels.x_label or "a common axis"
    return f"{labels.y_label or 'Lines'} over {x_label}. {'; '.join(ends)}."


def _path(points: Iterable[PointOrGap], plot: PlotLayout) -> str:
    """Return the data of a path, with a new subpath after each gap."""
    segments, command = [], "M"
    for x, y in points:
        if y is None:
            command = "M"
        else:
            x_px, y_px = format_px(plot.x.to_pixel(x)), format_px(plot.y.to_pixel(y))
            segments.append(f"{command}{x_px},{y_px}")
            command = "L"
    return " ".join(segments)


class _Series:
    """The SVG group of a named series, with its color and its marker."""

    def __init__(self, root: Element, name: str, style_index: int, plot: PlotLayout) -> None:
        self.name, self.plot = name, plot
        self.marker_path = MARKER_PATHS[style_index % len(MARKER_PATHS)]
        css_class = f"line-{style_index % len(LIGHT_LINE_COLORS)}"
        self.group = SubElement(root, "g", {"class": css_class, "data-name": escape_line(name)})

    def draw_line(self, line: LineSeries, label_y: float | None) -> None:
        """Draw a line, its markers, and its name next to the plot, or none if `label_y` is None."""
        css_class = "line dashed" if line.dashed else "line"
        for curve in line.run_curves:
            add_path(self.group, "run-curve", _path(curve, self.plot))
        add_path(self.group, css_class, _path(line.points, self.plot))
        for point in line.marker_points:
            self.add_marker(point, _COMPACT_SIZE if label_y is None else 1)
        if line.best:
            self.add_marker(line.best).set("class", "best")
        if label_y is not None:
            start = f"M{format_px(self.plot.x.end + 14)},{format_px(label_y)}"
            add_path(self.group, css_class, f"{start} h{axes.SWATCH}")
            self.add_legend_entry(label_y)

    def draw_band(self, band: Band) -> None:
        """Fill the area between the two edges."""
        outline = _path([*band.low, *reversed(band.high)], self.plot)
        path = add_path(self.group, "band", f"{outline} Z")
        SubElement(path, "title").text = escape_line(band.name)

    def add_marker(self, point: Point, size: float = 1) -> Element:
        x, y = point
        marker = self._draw_marker(self.plot.x.to_pixel(x), self.plot.y.to_pixel(y), size)
        exact_x, exact_y = axes.format_exact(x), axes.format_exact(y)
        marker.attrib |= {"data-x": exact_x, "data-y": exact_y}
        label = f"{self.group.get('data-name')}: {exact_y} at {exact_x}"
        SubElement(marker, "title").text = label
        return marker

    def _draw_marker(self, x: float, y: float, size: float = 1) -> Element:
        marker = add_path(self.group, "marker", self.marker_path)
        scale = "" if size == 1 else f" scale({size:g})"
        marker.set("transform", f"translate({format_px(x)} {format_px(y)}){scale}")
        return marker

    def add_legend_entry(self, y: float) -> None:
        left = self.plot.x.end + 14
        self._draw_marker(left + axes.SWATCH / 2, y)
        name = axes.truncate_name(self.name)
        add_text(self.group, "name", name, x=left + axes.SWATCH + 8, y=y + 5)

    def draw_error_bars(self, point: ScatterPoint) -> None:
        """Draw error bars with caps; on a logarithmic axis a bar to zero ends at the edge."""

        def ends(value: float, error: float, scale: AxisScale) -> list[str]:
            low = max(value - error, scale.ticks[0])
            return [format_px(scale.to_pixel(end)) for end in (low, value + error)]

        x, y = self.plot.x.to_pixel(point.x), self.plot.y.to_pixel(point.y)
        if point.x_error:
            left, right = ends(point.x, point.x_error, self.plot.x)
            add_path(self.group, "error-bar", f"M{left},{format_px(y)} H{right}")
            caps = (f"M{end},{format_px(y - _CAP)} v{2 * _CAP}" for end in (left, right))
            add_path(self.group, "error-bar", " ".join(caps))
        if point.y_error:
            low, high = ends(point.y, point.y_error, self.plot.y)
            add_path(self.group, "error-bar", f"M{format_px(x)},{low} V{high}")
            caps = (f"M{format_px(x - _CAP)},{end} h{2 * _CAP}" for end in (low, high))
            add_path(self.group, "error-bar", " ".join(caps))
