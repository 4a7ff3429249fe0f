"""Axes: how is a plot laid out, and what is written round it?

The numbers along an axis cover every value. Names stand to the right of the plot, each as near to
the height that it belongs to as the others let it, and never over one another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from rich.cells import cell_len

from heedful.inspection.drawing import draw_label, number
from heedful.inspection.labels import shortened, visible_line
from heedful.inspection.scales import Scale, ticks, written

WIDTH = 560  # of the plot alone
HEIGHT = 330
PADDING = 26
TITLE_HEIGHT = 34
LABEL_HEIGHT = 30
NOTE_HEIGHT = 16
NAME_HEIGHT = 20
SWATCH = 28
LONGEST_NAME = 32
# No font is known here: this much per terminal cell is room enough in every usual one.
NAME_ADVANCE = 8.2
TICK_ADVANCE = 7.4
TITLE_ADVANCE = 9.6


class Words(NamedTuple):
    """What is written over a plot and along its axes."""

    title: str
    x_label: str
    y_label: str

    @classmethod
    def visible(cls, title: str, x_label: str, y_label: str) -> Words:
        """Write each on one line, no character of it hidden."""
        return cls(*map(visible_line, (title, x_label, y_label)))


class Stop(NamedTuple):
    """A place on the x axis with a name of its own, and perhaps a note below that."""

    at: float
    name: str
    note: str = ""


class Plot(NamedTuple):
    """Where the axes stand, on a page of which size."""

    x: Scale
    y: Scale
    stops: Sequence[Stop]  # what is written along x
    width: float
    height: float


def lay_out(
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    names: Sequence[str],
    words: Words,
    logarithmic: tuple[bool, bool],
    stops: Sequence[Stop] = (),
) -> Plot:
    """Find room for values, names and words; `stops` replace the numbers along x."""
    x_ticks = _around(stops) if stops else ticks(xs, logarithmic[0])
    y_ticks = ticks(ys, logarithmic[1])
    left = PADDING + TICK_ADVANCE * max(map(cell_len, written(y_ticks))) + 10
    top = PADDING + (TITLE_HEIGHT if words.title else 0) + (LABEL_HEIGHT if words.y_label else 6)
    right, bottom = left + WIDTH, top + max(HEIGHT, NAME_HEIGHT * (len(names) - 1))
    beside = NAME_ADVANCE * max(cell_len(short_name(name)) for name in names)
    heading = PADDING + TITLE_ADVANCE * max(map(cell_len, (words.title, words.y_label)))
    numbers = [Stop(tick, label) for tick, label in zip(x_ticks, written(x_ticks), strict=True)]
    return Plot(
        Scale(x_ticks, left, right, logarithmic[0]),
        Scale(y_ticks, bottom, top, logarithmic[1]),
        _readable(stops) if stops else numbers,
        max(right + 14 + SWATCH + 8 + beside, heading) + PADDING,
        bottom + _foot_height(words, stops) + PADDING / 2,
    )


def _around(stops: Sequence[Stop]) -> list[float]:
    places = [stop.at for stop in stops]
    return [min(places) - 0.5, max(places) + 0.5]


def _readable(stops: Sequence[Stop]) -> list[Stop]:
    """The stops that can be written side by side: all, every second, every third."""
    widest = max(cell_len(text) for stop in stops for text in (stop.name, stop.note))
    stride = math.ceil((TICK_ADVANCE * widest + 8) * len(stops) / WIDTH)
    return list(stops[::stride])


def _foot_height(words: Words, stops: Sequence[Stop]) -> float:
    notes = NOTE_HEIGHT if any(stop.note for stop in stops) else 0
    return LABEL_HEIGHT + notes + (LABEL_HEIGHT - 6 if words.x_label else 0)


def short_name(name: str) -> str:
    """A name as it stands beside a plot."""
    return shortened(visible_line(name), LONGEST_NAME)


def draw_axes(root: Element, plot: Plot, words: Words) -> None:
    """Draw the rules behind a plot, and write what they stand for."""
    left, right, bottom, top = plot.x.start, plot.x.end, plot.y.start, plot.y.end
    for tick, label in zip(plot.y.ticks, written(plot.y.ticks), strict=True):
        y = plot.y.place(tick)
        look = "axis" if tick == 0 or y == bottom else "rule"
        draw_path(root, look, f"M{number(left)},{number(y)} H{number(right)}")
        _draw_tick(root, "tick end", label, tick, x=left - 10, y=y + 4)
    for stop in plot.stops:
        x = plot.x.place(stop.at)
        draw_path(root, "axis", f"M{number(x)},{number(bottom)} v5")
        _draw_tick(root, "tick middle", stop.name, stop.at, x=x, y=bottom + 20)
        if stop.note:
            draw_label(root, "tick middle", stop.note, x=x, y=bottom + 20 + NOTE_HEIGHT)
    if words.x_label:
        foot = bottom + _foot_height(words, plot.stops) - 10
        draw_label(root, "axis-label middle", words.x_label, x=(left + right) / 2, y=foot)
    if words.y_label:
        draw_label(root, "axis-label", words.y_label, x=PADDING, y=top - 16)


def _draw_tick(root: Element, look: str, label: str, tick: float, *, x: float, y: float) -> None:
    draw_label(root, look, label, x=x, y=y).set("data-value", exact(tick))


def exact(value: float) -> str:
    """Write a number so that it can be measured: six digits, however small it is."""
    return f"{value:.6g}"


def draw_path(parent: Element, look: str, path: str) -> Element:
    """Draw along a path."""
    return SubElement(parent, "path", {"class": look, "d": path})


def spread(wanted: Iterable[float], plot: Plot) -> list[float]:
    """Move names apart, each as near to the height that it wants as the others let it."""
    heights, top, bottom = list(wanted), plot.y.end, plot.y.start

    def head(group: Sequence[int]) -> float:
        reach = NAME_HEIGHT * (len(group) - 1)
        middle = sum(heights[index] for index in group) / len(group)
        return max(top, min(middle - reach / 2, bottom - reach))

    groups: list[list[int]] = []
    for index in sorted(range(len(heights)), key=lambda index: heights[index]):
        groups.append([index])
        # Two groups that would overlap become one, round the middle of all its heights.
        while len(groups) > 1 and head(groups[-2]) + NAME_HEIGHT * len(groups[-2]) > head(
            groups[-1]
        ):
            groups[-2:] = [groups[-2] + groups[-1]]
    places = {
        index: head(group) + NAME_HEIGHT * row
        for group in groups
        for row, index in enumerate(group)
    }
    return [places[index] for index in range(len(heights))]
