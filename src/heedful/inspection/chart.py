"""Charts: how do numbers change, drawn as lines over a common axis?

A point stands where its numbers say, and carries them as `data-x` and `data-y`, so the picture can
be measured as well as seen. Lines differ in colour and in the shape of their points, so they can be
told apart in print and by every kind of eye; their names stand beside their ends, outside the plot,
where no line can run through them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from rich.cells import cell_len

from heedful.errors import DataError
from heedful.inspection.colours import DARK, LIGHT, Palette
from heedful.inspection.drawing import document, draw_label, number, write
from heedful.inspection.labels import NOTHING_TO_DRAW, shortened, visible_line
from heedful.inspection.scales import LARGEST, SMALLEST, Scale, ticks, written

WIDTH = 560  # of the plot alone
HEIGHT = 330
PADDING = 26
TITLE_HEIGHT = 34
LABEL_HEIGHT = 30
NAME_HEIGHT = 20
SWATCH = 28
LONGEST_NAME = 32
# No font is known here: this much per terminal cell is room enough in every usual one.
NAME_ADVANCE = 8.2
TICK_ADVANCE = 7.4
TITLE_ADVANCE = 9.6

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
.mark {{ stroke: {paper}; stroke-width: 1.2; }}
"""


class Line(NamedTuple):
    """A name and its points (x, y), in the order in which they are joined; y is None for a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False

    @property
    def known(self) -> list[tuple[float, float]]:
        """The points that are there."""
        return [(x, y) for x, y in self.points if y is not None]


def chart(
    lines: Sequence[Line],
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    logarithmic: tuple[bool, bool] = (False, False),
) -> str:
    """Draw lines over a common x axis as a complete SVG document."""
    _refuse_the_impossible(lines, logarithmic)
    drawn = [line for line in lines if line.known]
    words = [visible_line(each) for each in (title, x_label, y_label)]
    if not drawn:
        return _nothing(words[0])
    plot = _plot(drawn, words, logarithmic)
    root = _begin(plot.width, plot.height, title=words[0], description=_description(drawn, words))
    _draw_axes(root, plot, words)
    places = _spread([plot.y.place(line.known[-1][1]) for line in drawn], plot.y.end, plot.y.start)
    for index, (line, place) in enumerate(zip(drawn, places, strict=True)):
        _draw_line(root, line, index, plot=plot, place=place)
    return write(root)


def _nothing(title: str) -> str:
    root = _begin(350, 90, title=title, description=NOTHING_TO_DRAW)
    draw_label(root, "note", NOTHING_TO_DRAW, x=PADDING, y=64)
    return write(root)


def _begin(width: float, height: float, *, title: str, description: str) -> Element:
    root = document(width, height, title=title or "Lines", description=description)
    dark = f"@media (prefers-color-scheme: dark) {{{_style(DARK, DARK_LINES)}}}"
    SubElement(root, "style").text = _style(LIGHT, LIGHT_LINES) + dark
    if title:
        draw_label(root, "title", title, x=PADDING, y=PADDING + 14)
    return root


def _style(palette: Palette, colours: Iterable[str]) -> str:
    rules = (f".line-{i} {{ stroke: {c}; fill: {c}; }}\n" for i, c in enumerate(colours))
    return "\n" + "".join(rules) + _STYLE.lstrip().format_map(palette._asdict())


def _description(lines: Sequence[Line], words: Sequence[str]) -> str:
    """Say in words what the picture shows: where each line begins and where it ends."""
    _, x_label, y_label = words
    told = (
        f"{visible_line(line.name)}: from {y:.3g} at {x:.3g} to {last_y:.3g} at {last_x:.3g}"
        for line in lines
        for (x, y), (last_x, last_y) in [(line.known[0], line.known[-1])]
    )
    return f"{y_label or 'Lines'} over {x_label or 'a common axis'}. {'; '.join(told)}."


# --- what cannot be drawn ------------------------------------------------------------------


def _refuse_the_impossible(lines: Sequence[Line], logarithmic: tuple[bool, bool]) -> None:
    if len(lines) > MOST_LINES:
        raise DataError(
            "chart",
            f"{len(lines)} lines cannot be told apart; there are looks for {MOST_LINES}",
            "leave some out, or draw several charts",
        )
    for line in lines:
        for order, point in enumerate(line.points, start=1):
            at = f"chart, line {line.name!r}, point {order}"
            for axis, value, is_logarithmic in zip("xy", point, logarithmic, strict=True):
                if value is not None:
                    _refuse_without_place(at, axis, value, is_logarithmic)


def _refuse_without_place(at: str, axis: str, value: float, is_logarithmic: bool) -> None:
    if not abs(value) <= LARGEST:  # nor NaN
        remedy = "leave the point out, or give None for a y that is missing"
        raise DataError(at, f"{axis} is {value}, which has no place on an axis", remedy)
    if is_logarithmic and value < SMALLEST:
        raise DataError(
            at,
            f"{axis} is {value:g}, but a logarithmic axis holds only numbers above zero",
            f"leave the point out, or make the {axis} axis an ordinary one",
        )


# --- the measures of the page --------------------------------------------------------------


class _Plot(NamedTuple):
    """Where the axes stand, on a page of which size."""

    x: Scale
    y: Scale
    width: float
    height: float


def _plot(lines: Sequence[Line], words: Sequence[str], logarithmic: tuple[bool, bool]) -> _Plot:
    title, x_label, y_label = words
    x_ticks, y_ticks = (
        ticks([point[axis] for line in lines for point in line.known], logarithmic[axis])
        for axis in (0, 1)
    )
    left = PADDING + TICK_ADVANCE * max(map(cell_len, written(y_ticks))) + 10
    top = PADDING + (TITLE_HEIGHT if title else 0) + (LABEL_HEIGHT if y_label else 6)
    right, bottom = left + WIDTH, top + max(HEIGHT, NAME_HEIGHT * (len(lines) - 1))
    names = NAME_ADVANCE * max(cell_len(_name(line)) for line in lines)
    heading = PADDING + TITLE_ADVANCE * max(cell_len(title), cell_len(y_label))
    return _Plot(
        Scale(x_ticks, left, right, logarithmic[0]),
        Scale(y_ticks, bottom, top, logarithmic[1]),
        max(right + 14 + SWATCH + 8 + names, heading) + PADDING,
        bottom + LABEL_HEIGHT + (LABEL_HEIGHT - 6 if x_label else 0) + PADDING / 2,
    )


def _name(line: Line) -> str:
    return shortened(visible_line(line.name), LONGEST_NAME)


def _spread(wanted: Sequence[float], top: float, bottom: float) -> list[float]:
    """Move names apart, each as near to its line's end as the others let it."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        # Two groups that would overlap become one, round the middle of all its ends.
        while len(groups) > 1 and _foot(groups[-2], wanted, top, bottom) + NAME_HEIGHT > _head(
            groups[-1], wanted, top, bottom
        ):
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [0.0] * len(wanted)
    for group in groups:
        head = _head(group, wanted, top, bottom)
        for row, index in enumerate(group):
            places[index] = head + NAME_HEIGHT * row
    return places


def _head(group: Sequence[int], wanted: Sequence[float], top: float, bottom: float) -> float:
    reach = NAME_HEIGHT * (len(group) - 1)
    head = sum(wanted[index] for index in group) / len(group) - reach / 2
    return max(top, min(head, bottom - reach))


def _foot(group: Sequence[int], wanted: Sequence[float], top: float, bottom: float) -> float:
    return _head(group, wanted, top, bottom) + NAME_HEIGHT * (len(group) - 1)


# --- the marks on it -----------------------------------------------------------------------


def _draw_axes(root: Element, plot: _Plot, words: Sequence[str]) -> None:
    _, x_label, y_label = words
    left, right, bottom, top = plot.x.start, plot.x.end, plot.y.start, plot.y.end
    for tick, label in zip(plot.y.ticks, written(plot.y.ticks), strict=True):
        y = plot.y.place(tick)
        look = "axis" if tick == 0 or y == bottom else "rule"
        _draw_path(root, look, f"M{number(left)},{number(y)} H{number(right)}")
        _draw_tick(root, "tick end", label, tick, x=left - 10, y=y + 4)
    for tick, label in zip(plot.x.ticks, written(plot.x.ticks), strict=True):
        x = plot.x.place(tick)
        _draw_path(root, "axis", f"M{number(x)},{number(bottom)} v5")
        _draw_tick(root, "tick middle", label, tick, x=x, y=bottom + 20)
    middle = (left + right) / 2
    if x_label:
        draw_label(root, "axis-label middle", x_label, x=middle, y=bottom + LABEL_HEIGHT + 14)
    if y_label:
        draw_label(root, "axis-label", y_label, x=PADDING, y=top - 16)


def _draw_tick(root: Element, look: str, label: str, tick: float, *, x: float, y: float) -> None:
    draw_label(root, look, label, x=x, y=y).set("data-value", _exact(tick))


def _exact(value: float) -> str:
    """Write a number so that it can be measured: six digits, however small it is."""
    return f"{value:.6g}"


def _draw_path(parent: Element, look: str, path: str) -> Element:
    return SubElement(parent, "path", {"class": look, "d": path})


def _draw_line(root: Element, line: Line, index: int, *, plot: _Plot, place: float) -> None:
    """Draw a line, its points over it, and its name with a piece of it beside the plot."""
    name, look = visible_line(line.name), "line dashed" if line.dashed else "line"
    colour, mark = index % len(LIGHT_LINES), MARKS[index % len(MARKS)]
    group = SubElement(root, "g", {"class": f"line-{colour}", "data-name": name})
    _draw_path(group, look, " ".join(_pieces(line, plot)))
    for x, y in line.known:
        point = _draw_mark(group, mark, x=plot.x.place(x), y=plot.y.place(y))
        point.set("data-x", _exact(x))
        point.set("data-y", _exact(y))
        SubElement(point, "title").text = f"{name}: {_exact(y)} at {_exact(x)}"
    left = plot.x.end + 14
    _draw_path(group, look, f"M{number(left)},{number(place)} h{SWATCH}")
    _draw_mark(group, mark, x=left + SWATCH / 2, y=place)
    draw_label(group, "name", _name(line), x=left + SWATCH + 8, y=place + 5)


def _draw_mark(group: Element, mark: str, *, x: float, y: float) -> Element:
    point = _draw_path(group, "mark", mark)
    point.set("transform", f"translate({number(x)} {number(y)})")
    return point


def _pieces(line: Line, plot: _Plot) -> Iterator[str]:
    """The path along a line, begun anew after each gap."""
    pen = "M"
    for x, y in line.points:
        if y is None:
            pen = "M"
        else:
            yield f"{pen}{number(plot.x.place(x))},{number(plot.y.place(y))}"
            pen = "L"
