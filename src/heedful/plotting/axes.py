"""Axes: how is a plot laid out, and what is written round it?

The numbers along an axis cover every value. Names stand to the right of the plot, each as near to
the height that it belongs to as the others let it, and never over one another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from rich.cells import cell_len

from heedful.plotting.svg import add_text, escape_line, format_px, truncate

# Scales: which numbers are written along an axis, and where does a value stand on it?
#
# The numbers are round, cover every value, and are so few that each can be read. A value stands
# between its neighbours among them as its size says, or on a logarithmic scale its logarithm.

MAX_TICKS = 8
MAX_FINE_TICKS = 12
# Beyond these, differences and powers of ten leave the range of floating point.
SMALLEST, LARGEST = 1e-300, 1e300


class AxisScale(NamedTuple):
    """An axis: the numbers written on it, and where on the page the first and the last stand."""

    ticks: list[float]
    start: float
    end: float
    is_logarithmic: bool

    def to_pixel(self, value: float) -> float:
        """Say where on the page a value stands."""
        first, last, here = (
            math.log10(each) if self.is_logarithmic else each
            for each in (self.ticks[0], self.ticks[-1], value)
        )
        return self.start + (self.end - self.start) * (here - first) / (last - first)


def compute_ticks(values: Sequence[float], is_logarithmic: bool) -> list[float]:
    """Round numbers of which the first is no more than every value and the last no less."""
    low, high = min(values), max(values)
    return _logarithmic_ticks(low, high) if is_logarithmic else _linear_ticks(low, high)


def _linear_ticks(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten; about equal values, some room on both sides."""
    # Numbers closer than this would all be written alike.
    if high - low <= max(1e-9 * max(abs(low), abs(high)), SMALLEST):
        low, high = low - (abs(low) or 1), high + (abs(high) or 1)
    power = math.floor(math.log10(high - low)) - 1
    for step, digits in _nice_steps(power):
        first, last = math.floor(low / step), math.ceil(high / step)
        if last - first < MAX_TICKS:
            return [round(count * step, digits) for count in range(first, last + 1)]
    raise AssertionError(f"no step spans {low} to {high}")


def _nice_steps(power: int) -> Iterator[tuple[float, int]]:
    for exponent in range(power, power + 4):
        yield from ((float(f"{factor}e{exponent}"), -exponent) for factor in (1, 2, 5))


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; while there is room, also twice and five times each.

    About a single one of them, its neighbours.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    # One power more on either side: logarithms are rounded.
    every = [
        factor * power for power in _powers(range(first - 1, last + 2)) for factor in (1, 2, 5)
    ]
    start = sum(tick <= low for tick in every) - 1
    end = len(every) - sum(tick >= high for tick in every)
    fine = every[start : end + 1] if start < end else every[start - 1 : start + 2]
    if len(fine) <= MAX_FINE_TICKS:
        return fine
    stride = math.ceil((last - first) / (MAX_TICKS - 1))
    # Multiples of the stride, so that 1 is a tick if it is spanned.
    return _powers(range(first // stride * stride, -(-last // stride) * stride + 1, stride))


def _powers(exponents: Iterable[int]) -> list[float]:
    return [float(f"1e{exponent}") for exponent in exponents]


def format_ticks(ticks: Sequence[float]) -> list[str]:
    """Write ticks alike: all as plain numbers, or, if some are far from one, with powers of ten."""
    sizes = [abs(tick) for tick in ticks if tick]
    is_plain = all(1e-3 <= size < 1e6 for size in sizes)
    return [f"{tick:,.10g}" if is_plain else _format_power(tick) for tick in ticks]


_SUPERSCRIPTS = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)


def _format_power(tick: float) -> str:
    if tick in {0, 1, 10}:
        return f"{tick:g}"
    factor, power = f"{tick:.9e}".split("e")
    raised = "10" + str(int(power)).translate(_SUPERSCRIPTS)
    return {"1": raised, "-1": "-" + raised}.get(
        short := f"{float(factor):.10g}", f"{short}\u00b7{raised}"
    )


WIDTH = 560  # of the plot alone
HEIGHT = 330
PADDING = 26
TITLE_HEIGHT = 34
LABEL_HEIGHT = 30
NOTE_HEIGHT = 16
NAME_HEIGHT = 20
SWATCH = 28
MAX_NAME_LENGTH = 32
# No font is known here: this much per terminal cell is room enough in every usual one.
NAME_ADVANCE = 8.2
TICK_ADVANCE = 7.4
TITLE_ADVANCE = 9.6


class PlotLabels(NamedTuple):
    """What is written over a plot and along its axes."""

    title: str
    x_label: str
    y_label: str

    @classmethod
    def escaped(cls, title: str, x_label: str, y_label: str) -> PlotLabels:
        """Write each on one line, no character of it hidden."""
        return cls(*map(escape_line, (title, x_label, y_label)))


class CategoryTick(NamedTuple):
    """A place on the x axis with a name of its own, and perhaps a note below that."""

    position: float
    name: str
    sublabel: str = ""


class PlotLayout(NamedTuple):
    """Where the axes stand, on a page of which size."""

    x: AxisScale
    y: AxisScale
    category_ticks: Sequence[CategoryTick]  # what is written along x
    width: float
    height: float


def layout_plot(
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    names: Sequence[str],
    plot_labels: PlotLabels,
    log_axes: tuple[bool, bool],
    category_ticks: Sequence[CategoryTick] = (),
) -> PlotLayout:
    """Find room for values, names and words; `category_ticks` replace the numbers along x."""
    x_ticks = _tick_range(category_ticks) if category_ticks else compute_ticks(xs, log_axes[0])
    y_ticks = compute_ticks(ys, log_axes[1])
    left = PADDING + TICK_ADVANCE * max(map(cell_len, format_ticks(y_ticks))) + 10
    top = (
        PADDING
        + (TITLE_HEIGHT if plot_labels.title else 0)
        + (LABEL_HEIGHT if plot_labels.y_label else 6)
    )
    right, bottom = left + WIDTH, top + max(HEIGHT, NAME_HEIGHT * (len(names) - 1))
    beside = NAME_ADVANCE * max(cell_len(truncate_name(name)) for name in names)
    heading = PADDING + TITLE_ADVANCE * max(map(cell_len, (plot_labels.title, plot_labels.y_label)))
    numbers = [
        CategoryTick(tick, label)
        for tick, label in zip(x_ticks, format_ticks(x_ticks), strict=True)
    ]
    return PlotLayout(
        AxisScale(x_ticks, left, right, log_axes[0]),
        AxisScale(y_ticks, bottom, top, log_axes[1]),
        _thin_ticks(category_ticks) if category_ticks else numbers,
        max(right + 14 + SWATCH + 8 + beside, heading) + PADDING,
        bottom + _footer_height(plot_labels, category_ticks) + PADDING / 2,
    )


def _tick_range(category_ticks: Sequence[CategoryTick]) -> list[float]:
    places = [stop.position for stop in category_ticks]
    return [min(places) - 0.5, max(places) + 0.5]


def _thin_ticks(category_ticks: Sequence[CategoryTick]) -> list[CategoryTick]:
    """The stops that can be written side by side: all, every second, every third."""
    widest = max(cell_len(text) for stop in category_ticks for text in (stop.name, stop.sublabel))
    stride = math.ceil((TICK_ADVANCE * widest + 8) * len(category_ticks) / WIDTH)
    return list(category_ticks[::stride])


def _footer_height(plot_labels: PlotLabels, category_ticks: Sequence[CategoryTick]) -> float:
    notes = NOTE_HEIGHT if any(stop.sublabel for stop in category_ticks) else 0
    return LABEL_HEIGHT + notes + (LABEL_HEIGHT - 6 if plot_labels.x_label else 0)


def truncate_name(name: str) -> str:
    """A name as it stands beside a plot."""
    return truncate(escape_line(name), MAX_NAME_LENGTH)


def draw_axes(root: Element, plot: PlotLayout, plot_labels: PlotLabels) -> None:
    """Draw the rules behind a plot, and write what they stand for."""
    left, right, bottom, top = plot.x.start, plot.x.end, plot.y.start, plot.y.end
    for tick, label in zip(plot.y.ticks, format_ticks(plot.y.ticks), strict=True):
        y = plot.y.to_pixel(tick)
        look = "axis" if tick == 0 or y == bottom else "rule"
        draw_path(root, look, f"M{format_px(left)},{format_px(y)} H{format_px(right)}")
        _draw_tick(root, "tick end", label, tick, x=left - 10, y=y + 4)
    for stop in plot.category_ticks:
        x = plot.x.to_pixel(stop.position)
        draw_path(root, "axis", f"M{format_px(x)},{format_px(bottom)} v5")
        _draw_tick(root, "tick middle", stop.name, stop.position, x=x, y=bottom + 20)
        if stop.sublabel:
            add_text(root, "tick middle", stop.sublabel, x=x, y=bottom + 20 + NOTE_HEIGHT)
    if plot_labels.x_label:
        foot = bottom + _footer_height(plot_labels, plot.category_ticks) - 10
        add_text(root, "axis-label middle", plot_labels.x_label, x=(left + right) / 2, y=foot)
    if plot_labels.y_label:
        add_text(root, "axis-label", plot_labels.y_label, x=PADDING, y=top - 16)


def _draw_tick(
    root: Element, css_class: str, label: str, tick: float, *, x: float, y: float
) -> None:
    add_text(root, css_class, label, x=x, y=y).set("data-value", format_exact(tick))


def format_exact(value: float) -> str:
    """Write a number so that it can be measured: six digits, however small it is."""
    return f"{value:.6g}"


def draw_path(parent: Element, css_class: str, path: str) -> Element:
    """Draw along a path."""
    return SubElement(parent, "path", {"class": css_class, "d": path})


def spread_labels(positions: Iterable[float], plot: PlotLayout) -> list[float]:
    """Move names apart, each as near to the height that it wants as the others let it."""
    heights, top, bottom = list(positions), plot.y.end, plot.y.start

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
    label_positions = {
        index: head(group) + NAME_HEIGHT * row
        for group in groups
        for row, index in enumerate(group)
    }
    return [label_positions[index] for index in range(len(heights))]
