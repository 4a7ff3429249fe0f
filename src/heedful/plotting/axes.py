"""Axes of a chart: ticks, units, layout and labels.

Ticks are round numbers that cover all values; along x a line chart ends where its data end. Series
names are to the right of the plot, each as near to the end of its line as possible. Invariant: no
two names overlap.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from rich.cells import cell_len

from heedful.plotting import svg
from heedful.plotting.svg import add_path, add_text, escape_line, format_px, truncate

MAX_TICKS = 8
MAX_FINE_TICKS = 12
# Beyond these, differences and powers of ten leave the range of floating point.
SMALLEST, LARGEST = 1e-150, 1e150

# ----- numbers and units -----


class DisplayUnit(NamedTuple):
    """Divisor of values before they are shown, and the suffix of their labels."""

    size: float = 1
    suffix: str = ""


PLAIN = DisplayUnit()
# By unit: the least value shown in each display unit.
_UNITS: dict[str, Sequence[tuple[float, DisplayUnit]]] = {
    "": [(0, PLAIN)],
    "fraction": [(0, DisplayUnit(0.01, " %"))],
    "bytes": [(2**30, DisplayUnit(2**30, " GiB")), (0, DisplayUnit(2**20, " MiB"))],
    "seconds": [
        (10_800, DisplayUnit(3600, " h")),
        (180, DisplayUnit(60, " min")),
        (0, DisplayUnit(1, " s")),
    ],
}
_SUPERSCRIPTS = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)


def display_unit(unit: str, largest: float) -> DisplayUnit:
    """Return the unit in which values up to `largest` are shown."""
    return next(shown for least, shown in _UNITS[unit] if largest >= least)


def format_value(value: float, unit: str = "", digits: int = 4) -> str:
    """Format a number for readers: 1,234 or 2.5 10^9 in superscripts, 12 MiB, 50 %, 2:30 min."""
    if unit == "seconds" and value >= 60:
        total, suffix = (round(value), "min") if value < 3600 else (round(value / 60), "h")
        return f"{total // 60}:{total % 60:02} {suffix}"
    size, suffix = display_unit(unit, abs(value))
    shown = value / size
    if shown and not 1e-3 <= abs(shown) < 1e7:
        return _format_power(float(f"{shown:.{digits - 1}e}")) + suffix
    return f"{shown if shown % 1 == 0 else float(f'{shown:.{digits}g}'):,.10g}{suffix}"


def format_ticks(ticks: Sequence[float], unit: DisplayUnit = PLAIN) -> list[str]:
    """Format all ticks of an axis the same way: all plain, or all with powers of ten."""
    shown = [tick / unit.size for tick in ticks]
    is_plain = all(1e-3 <= abs(tick) < 1e6 for tick in shown if tick)
    return [(f"{tick:,.10g}" if is_plain else _format_power(tick)) + unit.suffix for tick in shown]


def _format_power(value: float) -> str:
    if value in {0, 1, 10}:
        return f"{value:g}"
    mantissa, exponent = f"{value:.9e}".split("e")
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    factor = f"{float(mantissa):.10g}"
    return {"1": power, "-1": "-" + power}.get(factor, f"{factor}\u00b7{power}")


def format_exact(value: float) -> str:
    """Format a number for attributes: six significant digits."""
    return f"{value:.6g}"


# ----- scales -----


class AxisScale(NamedTuple):
    """An axis from its first to its last tick, or between limits, from pixel `start` to `end`."""

    ticks: list[float]
    start: float
    end: float
    is_logarithmic: bool
    unit: DisplayUnit = PLAIN
    limits: tuple[float, float] | None = None

    @property
    def range(self) -> tuple[float, float]:
        """The values at `start` and `end`."""
        return self.limits or (self.ticks[0], self.ticks[-1])

    def cut(self, low: float, high: float) -> "AxisScale":
        """Return an axis between these values, if two ticks at least are left."""
        ticks = [tick for tick in self.ticks if low <= tick <= high]
        return self._replace(ticks=ticks, limits=(low, high)) if len(ticks) > 1 else self

    def to_pixel(self, value: float) -> float:
        """Return the pixel of a value."""
        first, last, position = (
            math.log10(number) if self.is_logarithmic else number for number in (*self.range, value)
        )
        return self.start + (self.end - self.start) * (position - first) / (last - first)

    @property
    def attribute(self) -> str:
        """First and last value, start and end, and the type of scale, for the script of a page."""
        numbers = (*self.range, self.start, self.end)
        return " ".join([*map(repr, numbers), "log" if self.is_logarithmic else "linear"])

    @property
    def tick_labels(self) -> list[str]:
        """The ticks as they are shown."""
        return format_ticks(self.ticks, self.unit)


def compute_ticks(
    values: Sequence[float],
    is_logarithmic: bool,
    unit: DisplayUnit = PLAIN,
    max_ticks: int = MAX_TICKS,
) -> list[float]:
    """Return numbers that are round in the unit shown and cover all values."""
    low, high, size = min(values), max(values), unit.size
    if is_logarithmic:
        return _logarithmic_ticks(low, high)
    return [tick * size for tick in _linear_ticks(low / size, high / size, max_ticks)]


def _linear_ticks(low: float, high: float, max_ticks: int) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten; about equal values get space around."""
    # Numbers closer than this would have the same label.
    if high - low <= max(1e-9 * max(abs(low), abs(high)), SMALLEST):
        low, high = low - (abs(low) or 1), high + (abs(high) or 1)
    power = math.floor(math.log10(high - low)) - 1
    for exponent in range(power, power + 4):
        for factor in (1, 2, 5):
            step = float(f"{factor}e{exponent}")
            first, last = math.floor(low / step), math.ceil(high / step)
            if last - first < max_ticks:
                return [round(count * step, -exponent) for count in range(first, last + 1)]
    raise AssertionError(f"no step spans {low} to {high}")


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, and twice and five times them while they fit."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    # One power more on either side, because logarithms are rounded.
    powers = [float(f"1e{exponent}") for exponent in range(first - 1, last + 2)]
    candidates = [factor * power for power in powers for factor in (1, 2, 5)]
    start = sum(tick <= low for tick in candidates) - 1
    end = len(candidates) - sum(tick >= high for tick in candidates)
    # Around a value that is a tick itself, its neighbors.
    fine = candidates[start : end + 1] if start < end else candidates[start - 1 : start + 2]
    if len(fine) <= MAX_FINE_TICKS:
        return fine
    stride = math.ceil((last - first) / (MAX_TICKS - 1))
    # Multiples of the stride, so that 1 is a tick if it is in the range.
    exponents = range(first // stride * stride, -(-last // stride) * stride + 1, stride)
    return [float(f"1e{exponent}") for exponent in exponents]


# ----- layout -----

WIDTH, HEIGHT = 560, 330  # of the plot alone
LABEL_HEIGHT = 30
NOTE_HEIGHT = 16
NAME_HEIGHT = 20
SWATCH = 28
MAX_NAME_LENGTH = 32
# Pixels per terminal cell, enough in every common font.
NAME_ADVANCE, TICK_ADVANCE, TITLE_ADVANCE = 8.2, 7.4, 9.6


class PlotFrame(NamedTuple):
    """Size and units of a plot. A compact one has neither title nor names, and a fixed width."""

    width: float = WIDTH
    height: float = HEIGHT
    is_compact: bool = False
    units: tuple[str, str] = ("", "")
    included: tuple[Sequence[float], Sequence[float]] = ((), ())  # values that x and y must cover


class PlotLabels(NamedTuple):
    """Title of a plot, and labels of its axes."""

    title: str = ""
    x_label: str = ""
    y_label: str = ""


class CategoryTick(NamedTuple):
    """A named position on the x axis, optionally with a second line."""

    position: float
    name: str
    sublabel: str = ""


class PlotLayout(NamedTuple):
    """Axes of a plot and the size of the document."""

    x: AxisScale
    y: AxisScale
    x_ticks: Sequence[CategoryTick]
    width: float
    height: float


def layout_plot(
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    names: Sequence[str],
    plot_labels: PlotLabels,
    frame: PlotFrame,
    log_axes: tuple[bool, bool],
    category_ticks: Sequence[CategoryTick] = (),
    ends_at_data: bool = False,
) -> PlotLayout:
    """Lay out a plot of these values; `category_ticks` replace the numbers along x.

    `ends_at_data`: the x axis has no space beside the data, up to the next tick.
    """
    if category_ticks:
        positions = [tick.position for tick in category_ticks]
        xs = [min(positions) - 0.5, max(positions) + 0.5]
    x, y = (_scale(values, frame, axis, log_axes[axis]) for axis, values in enumerate((xs, ys)))
    if ends_at_data:
        x_values = [*xs, *frame.included[0]]
        x = x.cut(min(x_values), max(x_values))
    x_ticks = list(map(CategoryTick, x.ticks, x.tick_labels))
    if category_ticks:
        x, x_ticks = x._replace(ticks=list(xs)), _thin_ticks(category_ticks, frame.width)
    padding = 4 if frame.is_compact else svg.PADDING
    left = padding + TICK_ADVANCE * max(map(cell_len, y.tick_labels)) + 10
    top = padding + (svg.TITLE_HEIGHT if plot_labels.title else 0)
    top += LABEL_HEIGHT if plot_labels.y_label else 6
    right, bottom = left + frame.width, top + frame.height
    if frame.is_compact:
        left, right = max(left, 60), frame.width - 16
        width, height = frame.width, bottom + LABEL_HEIGHT
    else:
        bottom = max(bottom, top + NAME_HEIGHT * (len(names) - 1))
        name_width = NAME_ADVANCE * max(cell_len(truncate_name(name)) for name in names)
        heading = max(map(cell_len, (plot_labels.title, plot_labels.y_label)))
        width = max(right + 14 + SWATCH + 8 + name_width, padding + TITLE_ADVANCE * heading)
        width += padding
        height = bottom + _footer_height(plot_labels, x_ticks) + padding / 2
    x, y = x._replace(start=left, end=right), y._replace(start=bottom, end=top)
    return PlotLayout(x, y, x_ticks, width, height)


def _scale(values: Sequence[float], frame: PlotFrame, axis: int, is_logarithmic: bool) -> AxisScale:
    """Return the scale of an axis, not placed yet."""
    values = [*values, *frame.included[axis]]
    unit = display_unit(frame.units[axis], max(map(abs, values)))
    max_ticks = MAX_TICKS
    if frame.is_compact:
        max_ticks = 3 + int(frame.height / 45) if axis else max(3, int(frame.width / 70))
    ticks = compute_ticks(values, is_logarithmic, unit, max_ticks)
    return AxisScale(ticks, 0, 1, is_logarithmic, unit)


def _thin_ticks(category_ticks: Sequence[CategoryTick], width: float) -> list[CategoryTick]:
    """Return the ticks whose labels fit side by side: all, every second, every third."""
    widest = max(cell_len(text) for tick in category_ticks for text in (tick.name, tick.sublabel))
    stride = math.ceil((TICK_ADVANCE * widest + 8) * len(category_ticks) / width)
    return list(category_ticks[::stride])


def _footer_height(plot_labels: PlotLabels, x_ticks: Sequence[CategoryTick]) -> float:
    notes = NOTE_HEIGHT if any(tick.sublabel for tick in x_ticks) else 0
    return LABEL_HEIGHT + notes + (LABEL_HEIGHT - 6 if plot_labels.x_label else 0)


def truncate_name(name: str) -> str:
    """Return a series name as it is written next to a plot."""
    return truncate(escape_line(name), MAX_NAME_LENGTH)


def draw_axes(root: Element, plot: PlotLayout, plot_labels: PlotLabels) -> None:
    """Draw grid lines, ticks and axis labels."""
    left, right, bottom, top = plot.x.start, plot.x.end, plot.y.start, plot.y.end
    for tick, label in zip(plot.y.ticks, plot.y.tick_labels, strict=True):
        y = plot.y.to_pixel(tick)
        css_class = "axis" if tick == 0 or y == bottom else "rule"
        add_path(root, css_class, f"M{format_px(left)},{format_px(y)} H{format_px(right)}")
        text = add_text(root, "tick end", label, x=left - 10, y=y + 4)
        text.set("data-value", format_exact(tick))
    for x_tick in plot.x_ticks:
        x = plot.x.to_pixel(x_tick.position)
        add_path(root, "axis", f"M{format_px(x)},{format_px(bottom)} v5")
        text = add_text(root, "tick middle", x_tick.name, x=x, y=bottom + 20)
        text.set("data-value", format_exact(x_tick.position))
        if x_tick.sublabel:
            add_text(root, "tick middle", x_tick.sublabel, x=x, y=bottom + 20 + NOTE_HEIGHT)
    if plot_labels.x_label:
        y = bottom + _footer_height(plot_labels, plot.x_ticks) - 10
        add_text(root, "axis-label middle", plot_labels.x_label, x=(left + right) / 2, y=y)
    if plot_labels.y_label:
        add_text(root, "axis-label", plot_labels.y_label, x=svg.PADDING, y=top - 16)


def spread_labels(positions: Iterable[float], plot: PlotLayout) -> list[float]:
    """Move names apart vertically, each as near to its own position as the others allow."""
    heights, top, bottom = list(positions), plot.y.end, plot.y.start

    def start(group: Sequence[int]) -> float:
        reach = NAME_HEIGHT * (len(group) - 1)
        middle = sum(heights[index] for index in group) / len(group)
        return max(top, min(middle - reach / 2, bottom - reach))

    groups: list[list[int]] = []
    for index in sorted(range(len(heights)), key=heights.__getitem__):
        groups.append([index])
        # Two groups that would overlap become one, around the mean of its positions.
        while len(groups) > 1:
            upper, lower = groups[-2:]
            if start(upper) + NAME_HEIGHT * len(upper) <= start(lower):
                break
            groups[-2:] = [upper + lower]
    label_ys = [0.0] * len(heights)
    for group in groups:
        for row, index in enumerate(group):
            label_ys[index] = start(group) + NAME_HEIGHT * row
    return label_ys
