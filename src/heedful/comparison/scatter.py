"""Scatter: where do things stand between two numbers, and how sure is that?

Laws: a dot stands where its numbers say, and a whisker reaches as far either way as its margin; on
a logarithmic axis, what would reach zero ends at the edge of the plot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from heedful.inspection.axes import Plot, Words, draw_axes, draw_path, lay_out, spread
from heedful.inspection.chart import (
    begin,
    begin_group,
    draw_name,
    draw_nothing,
    draw_point,
    refuse_too_many,
    refuse_without_place,
)
from heedful.inspection.drawing import number, write
from heedful.inspection.labels import visible_line
from heedful.inspection.scales import SMALLEST, Scale

_SIZE = 1.4  # of a mark, beside those on lines
_CAP = 4  # pixels from a whisker's end to either side


class Dot(NamedTuple):
    """A name and where it stands, with how far it may be off, either way."""

    name: str
    x: float
    y: float
    look: int  # which colour and mark
    x_margin: float = 0.0
    y_margin: float = 0.0


def scatter(
    dots: Sequence[Dot],
    *,
    guide: Sequence[tuple[float, float]] = (),
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    is_logarithmic: bool = False,
) -> str:
    """Draw dots, over a guide to the eye, as a complete SVG document; x may be logarithmic."""
    _refuse_the_impossible(dots, is_logarithmic)
    words = Words.visible(title, x_label, y_label)
    if not dots:
        return draw_nothing(words.title)
    xs = [x for dot in dots for x in _reach(dot.x, dot.x_margin, is_logarithmic)]
    ys = [y for dot in dots for y in _reach(dot.y, dot.y_margin, False)]
    names, logarithmic = [dot.name for dot in dots], (is_logarithmic, False)
    plot = lay_out(xs, ys, names=names, words=words, logarithmic=logarithmic)
    root = begin(plot.width, plot.height, title=words.title, description=_said(dots, words))
    draw_axes(root, plot, words)
    _draw_guide(root, guide, plot)
    places = spread((plot.y.place(dot.y) for dot in dots), plot)
    for dot, place in zip(dots, places, strict=True):
        _draw_dot(root, dot, plot=plot, place=place)
    return write(root)


def _refuse_the_impossible(dots: Sequence[Dot], is_logarithmic: bool) -> None:
    refuse_too_many(len(dots), "dots")
    for dot in dots:
        refuse_without_place(f"chart, dot {dot.name!r}", (dot.x, dot.y), (is_logarithmic, False))


def _said(dots: Iterable[Dot], words: Words) -> str:
    """Say in words where each dot stands."""
    told = (f"{visible_line(dot.name)}: {dot.y:.3g} at {dot.x:.3g}" for dot in dots)
    return f"{words.y_label} against {words.x_label}. {'; '.join(told)}."


def _reach(value: float, margin: float, is_logarithmic: bool) -> list[float]:
    """The ends of a whisker that have a place, and what it is about."""
    ends = [value - margin, value, value + margin]
    return [end for end in ends if not is_logarithmic or end >= SMALLEST]


def _draw_guide(root: Element, guide: Sequence[tuple[float, float]], plot: Plot) -> None:
    if len(guide) > 1:
        corners = (f"{number(plot.x.place(x))},{number(plot.y.place(y))}" for x, y in guide)
        draw_path(root, "guide", "M" + " L".join(corners))


def _draw_dot(root: Element, dot: Dot, *, plot: Plot, place: float) -> None:
    group = begin_group(root, dot.name, dot.look)
    x, y = plot.x.place(dot.x), plot.y.place(dot.y)
    if dot.x_margin:
        low, high = _ends(dot.x, dot.x_margin, plot.x)
        draw_path(group, "whisker", f"M{low},{number(y)} H{high}")
        draw_path(group, "whisker", _caps((low, high), y - _CAP, across=True))
    if dot.y_margin:
        low, high = _ends(dot.y, dot.y_margin, plot.y)
        draw_path(group, "whisker", f"M{number(x)},{low} V{high}")
        draw_path(group, "whisker", _caps((low, high), x - _CAP, across=False))
    draw_point(group, dot.look, dot.x, dot.y, plot=plot, size=_SIZE)
    draw_name(group, dot.name, dot.look, plot=plot, place=place)


def _ends(value: float, margin: float, scale: Scale) -> tuple[str, str]:
    low = max(value - margin, scale.ticks[0])
    return number(scale.place(low)), number(scale.place(value + margin))


def _caps(ends: Iterable[str], start: float, *, across: bool) -> str:
    """The short strokes at the ends of a whisker, which goes across or up."""
    if across:
        return " ".join(f"M{end},{number(start)} v{2 * _CAP}" for end in ends)
    return " ".join(f"M{number(start)},{end} h{2 * _CAP}" for end in ends)
