"""Scatter: where do things stand between two numbers, and how sure is that?

Laws: a dot stands where its numbers say, and a whisker reaches as far either way as its margin; on
a logarithmic axis, what would reach zero ends at the edge of the plot.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from heedful.errors import DataError
from heedful.plotting.axes import (
    LARGEST,
    PADDING,
    SMALLEST,
    SWATCH,
    AxisScale,
    CategoryTick,
    PlotLabels,
    PlotLayout,
    draw_axes,
    draw_path,
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
    add_text,
    escape_line,
    format_px,
    svg_document,
    to_svg,
)

# Charts: how do numbers change, drawn as lines over a common axis?
#
# A point stands where its numbers say, and carries them as `data-x` and `data-y`, so the picture can
# be measured as well as seen. Lines differ in colour and in the shape of their points, so they can be
# told apart in print and by every kind of eye; their names stand beside their ends, outside the plot,
# where no line can run through them (`axes`).

# Blue, orange, green, pink, brown or yellow, grey: far apart also to eyes that do not tell red from
# green (18 in CIE 1976, where 2 can be seen), and with a contrast of 3 to 1 on the paper.
LIGHT_LINE_COLORS = ("#1e2a80", "#d4620c", "#1b8269", "#c230aa", "#734b01", "#8a92a0")
DARK_LINE_COLORS = ("#80a0ff", "#fb8a3c", "#36d6be", "#ffabfd", "#fde047", "#8da4c0")
# Circle, square, triangle, diamond and the triangle turned, each about as heavy as the others.
MARKER_PATHS = (
    "M-4,0 a4,4 0 1,0 8,0 a4,4 0 1,0 -8,0 Z",
    "M-3.6,-3.6 H3.6 V3.6 H-3.6 Z",
    "M0,-4.8 L4.8,3.6 H-4.8 Z",
    "M0,-5 L5,0 L0,5 L-5,0 Z",
    "M0,4.8 L4.8,-3.6 H-4.8 Z",
)
MAX_LINES = math.lcm(len(LIGHT_LINE_COLORS), len(MARKER_PATHS))

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
.strand, .whisker {{ fill: none; stroke-width: 1.3; }}
.strand {{ opacity: 0.4; }}
.guide {{ fill: none; stroke: {muted}; stroke-width: 1.3; stroke-dasharray: 5 4; }}
.mark {{ stroke: {paper}; stroke-width: 1.2; }}
"""


class LineSeries(NamedTuple):
    """A name and its points (x, y), in the order in which they are joined; y is None for a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False
    style_index: int | None = (
        None  # which colour and mark; by its place among the lines unless given
    )
    run_curves: Sequence[
        Sequence[tuple[float, float | None]]
    ] = ()  # thin lines behind, of its look
    max_markers: int | None = None  # on so many of its points, spread evenly; on all unless given

    @property
    def valid_points(self) -> list[tuple[float, float]]:
        """The points that are there."""
        return drop_gaps(self.points)

    @property
    def marker_points(self) -> list[tuple[float, float]]:
        """The points that carry a mark, the first and the last among them."""
        most, last = self.max_markers, len(self.valid_points) - 1
        if most is None or last < most:
            return self.valid_points
        return [self.valid_points[place * last // (most - 1)] for place in range(most)]


def drop_gaps(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """The points that are no gaps."""
    return [(x, y) for x, y in points if y is not None]


def render_line_chart(
    lines: Sequence[LineSeries],
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    log_axes: tuple[bool, bool] = (False, False),
    category_ticks: Sequence[CategoryTick] = (),
) -> str:
    """Draw lines over a common x axis as a complete SVG document.

    `category_ticks` are written along x in the place of numbers.
    """
    _chart_check_points(lines, log_axes)
    drawn = [line for line in lines if line.valid_points]
    words = PlotLabels.escaped(title, x_label, y_label)
    if not drawn:
        return render_empty(words.title)
    names, points = (
        [line.name for line in drawn],
        [point for line in drawn for point in _all_points(line)],
    )
    xs, ys = ([point[axis] for point in points] for axis in (0, 1))
    plot = layout_plot(
        xs, ys, names=names, plot_labels=words, log_axes=log_axes, category_ticks=category_ticks
    )
    root = begin_chart(
        plot.width, plot.height, title=words.title, description=_chart_describe(drawn, words)
    )
    draw_axes(root, plot, words)
    label_ys = spread_labels((plot.y.to_pixel(line.valid_points[-1][1]) for line in drawn), plot)
    for index, (line, place) in enumerate(zip(drawn, label_ys, strict=True)):
        look = index if line.style_index is None else line.style_index
        _draw_series(root, line, look, plot=plot, label_y=place)
    return to_svg(root)


def _all_points(line: LineSeries) -> list[tuple[float, float]]:
    return [
        *line.valid_points,
        *(point for run_curve in line.run_curves for point in drop_gaps(run_curve)),
    ]


def render_empty(title: str) -> str:
    """Draw a picture that says that there is nothing to draw."""
    root = begin_chart(350, 90, title=title, description=NOTHING_TO_DRAW)
    add_text(root, "note", NOTHING_TO_DRAW, x=PADDING, y=64)
    return to_svg(root)


def begin_chart(width: float, height: float, *, title: str, description: str) -> Element:
    """Begin a picture of lines or points: its size, its words, its style."""
    root = svg_document(width, height, title=title or "Lines", description=description)
    dark = f"@media (prefers-color-scheme: dark) {{{_style(DARK, DARK_LINE_COLORS)}}}"
    SubElement(root, "style").text = _style(LIGHT, LIGHT_LINE_COLORS) + dark
    if title:
        add_text(root, "title", title, x=PADDING, y=PADDING + 14)
    return root


def _style(palette: Palette, colours: Iterable[str]) -> str:
    rules = (f".line-{i} {{ stroke: {c}; fill: {c}; }}\n" for i, c in enumerate(colours))
    return "\n" + "".join(rules) + _STYLE.lstrip().format_map(palette._asdict())


def _chart_describe(lines: Sequence[LineSeries], plot_labels: PlotLabels) -> str:
    """Say in words what the picture shows: where each line begins and where it ends."""
    descriptions = (
        f"{escape_line(line.name)}: from {y:.3g} at {x:.3g} to {last_y:.3g} at {last_x:.3g}"
        for line in lines
        for (x, y), (last_x, last_y) in [(line.valid_points[0], line.valid_points[-1])]
    )
    across = plot_labels.x_label or "a common axis"
    return f"{plot_labels.y_label or 'Lines'} over {across}. {'; '.join(descriptions)}."


# --- what cannot be drawn ------------------------------------------------------------------
def _chart_check_points(lines: Sequence[LineSeries], log_axes: tuple[bool, bool]) -> None:
    check_line_count(len(lines), "lines")
    for line in lines:
        for points in (line.points, *line.run_curves):
            for order, point in enumerate(points, start=1):
                at = f"chart, line {line.name!r}, point {order}"
                check_plottable(at, point, log_axes)


def check_line_count(count: int, what: str) -> None:
    """Refuse more than there are looks for."""
    if count > MAX_LINES:
        raise DataError(
            "chart",
            f"{count} {what} cannot be told apart; there are looks for {MAX_LINES}",
            "leave some out, or draw several charts",
        )


def check_plottable(
    location: str, point: tuple[float, float | None], log_axes: tuple[bool, bool]
) -> None:
    """Refuse a point with a number that no axis, or no logarithmic one, has a place for."""
    for axis, value, is_logarithmic in zip("xy", point, log_axes, strict=True):
        if value is not None:
            _check_finite(location, axis, value, is_logarithmic)


def _check_finite(location: str, axis: str, value: float, is_logarithmic: bool) -> None:
    if not abs(value) <= LARGEST:  # nor NaN
        remedy = "leave the point out, or give None for a y that is missing"
        raise DataError(location, f"{axis} is {value}, which has no place on an axis", remedy)
    if is_logarithmic and value < SMALLEST:
        raise DataError(
            location,
            f"{axis} is {value:g}, but a logarithmic axis holds only numbers above zero",
            f"leave the point out, or make the {axis} axis an ordinary one",
        )


# --- the marks on it -----------------------------------------------------------------------
def _draw_series(
    root: Element, line: LineSeries, style_index: int, *, plot: PlotLayout, label_y: float
) -> None:
    """Draw a line, its points over it, and its name with a piece of it beside the plot."""
    style = "line dashed" if line.dashed else "line"
    group = add_series_group(root, line.name, style_index)
    for run_curve in line.run_curves:
        draw_path(group, "strand", " ".join(_path_segments(run_curve, plot)))
    draw_path(group, style, " ".join(_path_segments(line.points, plot)))
    for x, y in line.marker_points:
        add_marker(group, style_index, x, y, plot=plot)
    left = plot.x.end + 14
    draw_path(group, style, f"M{format_px(left)},{format_px(label_y)} h{SWATCH}")
    add_legend_entry(group, line.name, style_index, plot=plot, label_y=label_y)


def add_series_group(root: Element, name: str, style_index: int) -> Element:
    """Begin all that is drawn of a line or a point, in its colour."""
    colour = f"line-{style_index % len(LIGHT_LINE_COLORS)}"
    return SubElement(root, "g", {"class": colour, "data-name": escape_line(name)})


def add_marker(
    group: Element, style_index: int, x: float, y: float, *, plot: PlotLayout, size: float = 1
) -> None:
    """Draw a point where its numbers say; they are read when it is pointed at."""
    point = _add_marker_path(
        group, style_index, x=plot.x.to_pixel(x), y=plot.y.to_pixel(y), size=size
    )
    point.set("data-x", format_exact(x))
    point.set("data-y", format_exact(y))
    SubElement(
        point, "title"
    ).text = f"{group.get('data-name')}: {format_exact(y)} at {format_exact(x)}"


def add_legend_entry(
    group: Element, name: str, style_index: int, *, plot: PlotLayout, label_y: float
) -> None:
    """Draw a name beside the plot, after its mark."""
    left = plot.x.end + 14
    _add_marker_path(group, style_index, x=left + SWATCH / 2, y=label_y)
    add_text(group, "name", truncate_name(name), x=left + SWATCH + 8, y=label_y + 5)


def _add_marker_path(
    group: Element, style_index: int, *, x: float, y: float, size: float = 1
) -> Element:
    point = draw_path(group, "mark", MARKER_PATHS[style_index % len(MARKER_PATHS)])
    scale = "" if size == 1 else f" scale({size:g})"
    point.set("transform", f"translate({format_px(x)} {format_px(y)}){scale}")
    return point


def _path_segments(points: Iterable[tuple[float, float | None]], plot: PlotLayout) -> Iterator[str]:
    """The path along points, begun anew after each gap."""
    pen = "M"
    for x, y in points:
        if y is None:
            pen = "M"
        else:
            yield f"{pen}{format_px(plot.x.to_pixel(x))},{format_px(plot.y.to_pixel(y))}"
            pen = "L"


_SIZE = 1.4  # of a mark, beside those on lines
_CAP = 4  # pixels from a whisker's end to either side


class ScatterPoint(NamedTuple):
    """A name and where it stands, with how far it may be off, either way."""

    name: str
    x: float
    y: float
    style_index: int  # which colour and mark
    x_error: float = 0.0
    y_error: float = 0.0


def render_scatter_plot(
    points: Sequence[ScatterPoint],
    *,
    guide_line: Sequence[tuple[float, float]] = (),
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    is_logarithmic: bool = False,
) -> str:
    """Draw dots, over a guide to the eye, as a complete SVG document; x may be logarithmic."""
    _scatter_check_points(points, is_logarithmic)
    words = PlotLabels.escaped(title, x_label, y_label)
    if not points:
        return render_empty(words.title)
    xs = [x for dot in points for x in _error_bar_range(dot.x, dot.x_error, is_logarithmic)]
    ys = [y for dot in points for y in _error_bar_range(dot.y, dot.y_error, False)]
    names, logarithmic = [dot.name for dot in points], (is_logarithmic, False)
    plot = layout_plot(xs, ys, names=names, plot_labels=words, log_axes=logarithmic)
    root = begin_chart(
        plot.width, plot.height, title=words.title, description=_scatter_describe(points, words)
    )
    draw_axes(root, plot, words)
    _draw_guide(root, guide_line, plot)
    places = spread_labels((plot.y.to_pixel(dot.y) for dot in points), plot)
    for dot, place in zip(points, places, strict=True):
        _draw_dot(root, dot, plot=plot, label_y=place)
    return to_svg(root)


def _scatter_check_points(points: Sequence[ScatterPoint], is_logarithmic: bool) -> None:
    check_line_count(len(points), "dots")
    for dot in points:
        check_plottable(f"chart, dot {dot.name!r}", (dot.x, dot.y), (is_logarithmic, False))


def _scatter_describe(points: Iterable[ScatterPoint], plot_labels: PlotLabels) -> str:
    """Say in words where each dot stands."""
    descriptions = (f"{escape_line(dot.name)}: {dot.y:.3g} at {dot.x:.3g}" for dot in points)
    return f"{plot_labels.y_label} against {plot_labels.x_label}. {'; '.join(descriptions)}."


def _error_bar_range(value: float, margin: float, is_logarithmic: bool) -> list[float]:
    """The ends of a whisker that have a place, and what it is about."""
    ends = [value - margin, value, value + margin]
    return [end for end in ends if not is_logarithmic or end >= SMALLEST]


def _draw_guide(root: Element, guide_line: Sequence[tuple[float, float]], plot: PlotLayout) -> None:
    if len(guide_line) > 1:
        corners = (
            f"{format_px(plot.x.to_pixel(x))},{format_px(plot.y.to_pixel(y))}"
            for x, y in guide_line
        )
        draw_path(root, "guide", "M" + " L".join(corners))


def _draw_dot(root: Element, dot: ScatterPoint, *, plot: PlotLayout, label_y: float) -> None:
    group = add_series_group(root, dot.name, dot.style_index)
    x, y = plot.x.to_pixel(dot.x), plot.y.to_pixel(dot.y)
    if dot.x_error:
        low, high = _error_bar_ends(dot.x, dot.x_error, plot.x)
        draw_path(group, "whisker", f"M{low},{format_px(y)} H{high}")
        draw_path(group, "whisker", _caps((low, high), y - _CAP, across=True))
    if dot.y_error:
        low, high = _error_bar_ends(dot.y, dot.y_error, plot.y)
        draw_path(group, "whisker", f"M{format_px(x)},{low} V{high}")
        draw_path(group, "whisker", _caps((low, high), x - _CAP, across=False))
    add_marker(group, dot.style_index, dot.x, dot.y, plot=plot, size=_SIZE)
    add_legend_entry(group, dot.name, dot.style_index, plot=plot, label_y=label_y)


def _error_bar_ends(value: float, margin: float, scale: AxisScale) -> tuple[str, str]:
    low = max(value - margin, scale.ticks[0])
    return format_px(scale.to_pixel(low)), format_px(scale.to_pixel(value + margin))


def _caps(ends: Iterable[str], start: float, *, across: bool) -> str:
    """The short strokes at the ends of a whisker, which goes across or up."""
    if across:
        return " ".join(f"M{end},{format_px(start)} v{2 * _CAP}" for end in ends)
    return " ".join(f"M{format_px(start)},{end} h{2 * _CAP}" for end in ends)
