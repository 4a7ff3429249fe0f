"""Charts: how do numbers change, drawn as lines over a common axis?

A point stands where its numbers say, and carries them as `data-x` and `data-y`, so the picture can
be measured as well as seen. Lines differ in colour and in the shape of their points, so they can be
told apart in print and by every kind of eye; their names stand beside their ends, outside the plot,
where no line can run through them (`axes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from heedful.errors import DataError
from heedful.inspection.axes import (
    PADDING,
    SWATCH,
    Plot,
    Stop,
    Words,
    draw_axes,
    draw_path,
    exact,
    lay_out,
    short_name,
    spread,
)
from heedful.inspection.colours import DARK, LIGHT, Palette
from heedful.inspection.drawing import document, draw_label, number, write
from heedful.inspection.labels import NOTHING_TO_DRAW, visible_line
from heedful.inspection.scales import LARGEST, SMALLEST

# Blue, orange, green, pink, brown or yellow, grey: far apart also to eyes that do not tell red from
# green (18 in CIE 1976, where 2 can be seen), and with a contrast of 3 to 1 on the paper.
LIGHT_LINES = ("#1e2a80", "#d4620c", "#1b8269", "#c230aa", "#734b01", "#8a92a0")
DARK_LINES = ("#80a0ff", "#fb8a3c", "#36d6be", "#ffabfd", "#fde047", "#8da4c0")
# Circle, square, triangle, diamond and the triangle turned, each about as heavy as the others.
MARKS = (
    "M-4,0 a4,4 0 1,0 8,0 a4,4 0 1,0 -8,0 Z",
    "M-3.6,-3.6 H3.6 V3.6 H-3.6 Z",
    "M0,-4.8 L4.8,3.6 H-4.8 Z",
    "M0,-5 L5,0 L0,5 L-5,0 Z",
    "M0,4.8 L4.8,-3.6 H-4.8 Z",
)
MOST_LINES = math.lcm(len(LIGHT_LINES), len(MARKS))

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


class Line(NamedTuple):
    """A name and its points (x, y), in the order in which they are joined; y is None for a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False
    look: int | None = None  # which colour and mark; by its place among the lines unless given
    strands: Sequence[Sequence[tuple[float, float | None]]] = ()  # thin lines behind, of its look
    most_marks: int | None = None  # on so many of its points, spread evenly; on all unless given

    @property
    def known(self) -> list[tuple[float, float]]:
        """The points that are there."""
        return known(self.points)

    @property
    def marked(self) -> list[tuple[float, float]]:
        """The points that carry a mark, the first and the last among them."""
        most, last = self.most_marks, len(self.known) - 1
        if most is None or last < most:
            return self.known
        return [self.known[place * last // (most - 1)] for place in range(most)]


def known(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """The points that are no gaps."""
    return [(x, y) for x, y in points if y is not None]


def chart(
    lines: Sequence[Line],
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    logarithmic: tuple[bool, bool] = (False, False),
    stops: Sequence[Stop] = (),
) -> str:
    """Draw lines over a common x axis as a complete SVG document.

    `stops` are written along x in the place of numbers.
    """
    _refuse_the_impossible(lines, logarithmic)
    drawn = [line for line in lines if line.known]
    words = Words.visible(title, x_label, y_label)
    if not drawn:
        return draw_nothing(words.title)
    names, points = [line.name for line in drawn], [point for line in drawn for point in _all(line)]
    xs, ys = ([point[axis] for point in points] for axis in (0, 1))
    plot = lay_out(xs, ys, names=names, words=words, logarithmic=logarithmic, stops=stops)
    root = begin(plot.width, plot.height, title=words.title, description=_said(drawn, words))
    draw_axes(root, plot, words)
    places = spread((plot.y.place(line.known[-1][1]) for line in drawn), plot)
    for index, (line, place) in enumerate(zip(drawn, places, strict=True)):
        look = index if line.look is None else line.look
        _draw_line(root, line, look, plot=plot, place=place)
    return write(root)


def _all(line: Line) -> list[tuple[float, float]]:
    return [*line.known, *(point for strand in line.strands for point in known(strand))]


def draw_nothing(title: str) -> str:
    """Draw a picture that says that there is nothing to draw."""
    root = begin(350, 90, title=title, description=NOTHING_TO_DRAW)
    draw_label(root, "note", NOTHING_TO_DRAW, x=PADDING, y=64)
    return write(root)


def begin(width: float, height: float, *, title: str, description: str) -> Element:
    """Begin a picture of lines or points: its size, its words, its style."""
    root = document(width, height, title=title or "Lines", description=description)
    dark = f"@media (prefers-color-scheme: dark) {{{_style(DARK, DARK_LINES)}}}"
    SubElement(root, "style").text = _style(LIGHT, LIGHT_LINES) + dark
    if title:
        draw_label(root, "title", title, x=PADDING, y=PADDING + 14)
    return root


def _style(palette: Palette, colours: Iterable[str]) -> str:
    rules = (f".line-{i} {{ stroke: {c}; fill: {c}; }}\n" for i, c in enumerate(colours))
    return "\n" + "".join(rules) + _STYLE.lstrip().format_map(palette._asdict())


def _said(lines: Sequence[Line], words: Words) -> str:
    """Say in words what the picture shows: where each line begins and where it ends."""
    told = (
        f"{visible_line(line.name)}: from {y:.3g} at {x:.3g} to {last_y:.3g} at {last_x:.3g}"
        for line in lines
        for (x, y), (last_x, last_y) in [(line.known[0], line.known[-1])]
    )
    across = words.x_label or "a common axis"
    return f"{words.y_label or 'Lines'} over {across}. {'; '.join(told)}."


# --- what cannot be drawn ------------------------------------------------------------------


def _refuse_the_impossible(lines: Sequence[Line], logarithmic: tuple[bool, bool]) -> None:
    refuse_too_many(len(lines), "lines")
    for line in lines:
        for points in (line.points, *line.strands):
            for order, point in enumerate(points, start=1):
                at = f"chart, line {line.name!r}, point {order}"
                refuse_without_place(at, point, logarithmic)


def refuse_too_many(count: int, what: str) -> None:
    """Refuse more than there are looks for."""
    if count > MOST_LINES:
        raise DataError(
            "chart",
            f"{count} {what} cannot be told apart; there are looks for {MOST_LINES}",
            "leave some out, or draw several charts",
        )


def refuse_without_place(
    at: str, point: tuple[float, float | None], logarithmic: tuple[bool, bool]
) -> None:
    """Refuse a point with a number that no axis, or no logarithmic one, has a place for."""
    for axis, value, is_logarithmic in zip("xy", point, logarithmic, strict=True):
        if value is not None:
            _refuse_number(at, axis, value, is_logarithmic)


def _refuse_number(at: str, axis: str, value: float, is_logarithmic: bool) -> None:
    if not abs(value) <= LARGEST:  # nor NaN
        remedy = "leave the point out, or give None for a y that is missing"
        raise DataError(at, f"{axis} is {value}, which has no place on an axis", remedy)
    if is_logarithmic and value < SMALLEST:
        raise DataError(
            at,
            f"{axis} is {value:g}, but a logarithmic axis holds only numbers above zero",
            f"leave the point out, or make the {axis} axis an ordinary one",
        )


# --- the marks on it -----------------------------------------------------------------------


def _draw_line(root: Element, line: Line, look: int, *, plot: Plot, place: float) -> None:
    """Draw a line, its points over it, and its name with a piece of it beside the plot."""
    style = "line dashed" if line.dashed else "line"
    group = begin_group(root, line.name, look)
    for strand in line.strands:
        draw_path(group, "strand", " ".join(_pieces(strand, plot)))
    draw_path(group, style, " ".join(_pieces(line.points, plot)))
    for x, y in line.marked:
        draw_point(group, look, x, y, plot=plot)
    left = plot.x.end + 14
    draw_path(group, style, f"M{number(left)},{number(place)} h{SWATCH}")
    draw_name(group, line.name, look, plot=plot, place=place)


def begin_group(root: Element, name: str, look: int) -> Element:
    """Begin all that is drawn of a line or a point, in its colour."""
    colour = f"line-{look % len(LIGHT_LINES)}"
    return SubElement(root, "g", {"class": colour, "data-name": visible_line(name)})


def draw_point(
    group: Element, look: int, x: float, y: float, *, plot: Plot, size: float = 1
) -> None:
    """Draw a point where its numbers say; they are read when it is pointed at."""
    point = _draw_mark(group, look, x=plot.x.place(x), y=plot.y.place(y), size=size)
    point.set("data-x", exact(x))
    point.set("data-y", exact(y))
    SubElement(point, "title").text = f"{group.get('data-name')}: {exact(y)} at {exact(x)}"


def draw_name(group: Element, name: str, look: int, *, plot: Plot, place: float) -> None:
    """Draw a name beside the plot, after its mark."""
    left = plot.x.end + 14
    _draw_mark(group, look, x=left + SWATCH / 2, y=place)
    draw_label(group, "name", short_name(name), x=left + SWATCH + 8, y=place + 5)


def _draw_mark(group: Element, look: int, *, x: float, y: float, size: float = 1) -> Element:
    point = draw_path(group, "mark", MARKS[look % len(MARKS)])
    scale = "" if size == 1 else f" scale({size:g})"
    point.set("transform", f"translate({number(x)} {number(y)}){scale}")
    return point


def _pieces(points: Iterable[tuple[float, float | None]], plot: Plot) -> Iterator[str]:
    """The path along points, begun anew after each gap."""
    pen = "M"
    for x, y in points:
        if y is None:
            pen = "M"
        else:
            yield f"{pen}{number(plot.x.place(x))},{number(plot.y.place(y))}"
            pen = "L"
