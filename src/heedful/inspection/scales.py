"""Scales: which numbers are written along an axis, and where does a value stand on it?

The numbers are round, cover every value, and are so few that each can be read. A value stands
between its neighbours among them as its size says, or on a logarithmic scale its logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MOST_TICKS = 8
MOST_FINE_TICKS = 12
# Beyond these, differences and powers of ten leave the range of floating point.
SMALLEST, LARGEST = 1e-300, 1e300


class Scale(NamedTuple):
    """An axis: the numbers written on it, and where on the page the first and the last stand."""

    ticks: list[float]
    start: float
    end: float
    is_logarithmic: bool

    def place(self, value: float) -> float:
        """Say where on the page a value stands."""
        first, last, here = (
            math.log10(each) if self.is_logarithmic else each
            for each in (self.ticks[0], self.ticks[-1], value)
        )
        return self.start + (self.end - self.start) * (here - first) / (last - first)


def ticks(values: Sequence[float], is_logarithmic: bool) -> list[float]:
    """Round numbers of which the first is no more than every value and the last no less."""
    low, high = min(values), max(values)
    return _logarithmic_ticks(low, high) if is_logarithmic else _even_ticks(low, high)


def _even_ticks(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten; about equal values, some room on both sides."""
    # Numbers closer than this would all be written alike.
    if high - low <= max(1e-9 * max(abs(low), abs(high)), SMALLEST):
        low, high = low - (abs(low) or 1), high + (abs(high) or 1)
    power = math.floor(math.log10(high - low)) - 1
    for step, digits in _round_steps(power):
        first, last = math.floor(low / step), math.ceil(high / step)
        if last - first < MOST_TICKS:
            return [round(count * step, digits) for count in range(first, last + 1)]
    raise AssertionError(f"no step spans {low} to {high}")


def _round_steps(power: int) -> Iterator[tuple[float, int]]:
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
    if len(fine) <= MOST_FINE_TICKS:
        return fine
    stride = math.ceil((last - first) / (MOST_TICKS - 1))
    # Multiples of the stride, so that 1 is a tick if it is spanned.
    return _powers(range(first // stride * stride, -(-last // stride) * stride + 1, stride))


def _powers(exponents: Iterable[int]) -> list[float]:
    return [float(f"1e{exponent}") for exponent in exponents]


def written(ticks: Sequence[float]) -> list[str]:
    """Write ticks alike: all as plain numbers, or, if some are far from one, with powers of ten."""
    sizes = [abs(tick) for tick in ticks if tick]
    is_plain = all(1e-3 <= size < 1e6 for size in sizes)
    return [f"{tick:,.10g}" if is_plain else _with_power(tick) for tick in ticks]


_RAISED = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)


def _with_power(tick: float) -> str:
    if tick in {0, 1, 10}:
        return f"{tick:g}"
    factor, power = f"{tick:.9e}".split("e")
    raised = "10" + str(int(power)).translate(_RAISED)
    return {"1": raised, "-1": "-" + raised}.get(
        short := f"{float(factor):.10g}", f"{short}\u00b7{raised}"
    )
