"""Sizing: which is the largest number that fits, in as few trials as possible?

Law: what is found was tried, and had room.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_CLOSE = 0.05  # how near to the largest is near enough
_GROWTH = 64 << 20  # bytes between the smallest and the largest trial that tell them from noise


def largest(fits: Callable[[int], bool], start: int, most: int) -> int:
    """Find about the largest number up to `most` that fits: doubling, then halving the gap."""
    good, bad, rows = 0, most + 1, max(1, min(start, most))
    while good < rows < bad:
        good, bad = (rows, bad) if fits(rows) else (good, rows)
        if bad > most:
            rows = min(2 * good, most)
        elif bad - good <= _CLOSE * good:
            break
        else:
            rows = (good + bad) // 2 if good else bad // 2
    return good


def weigh(measure: Callable[[int], float], start: int, most: int, room: float) -> dict[int, float]:
    """Measure a few numbers of rows, at last about the largest up to `most` that has room."""
    points = dict[int, float]()
    rows = max(1, start // 16)
    while (taken := points.setdefault(rows, measure(rows))) > room and rows > 1:
        rows //= 4 if rows >= 4 else 2
    if taken > room:
        return points
    first = taken
    while (further := min(4 * rows, _next(points, most, room))) > rows:
        rows = further
        taken = points[rows] = measure(rows)
        if taken > room or (taken - first > _GROWTH and len(points) >= 3):
            break
    for _ in range(4):
        rows = _solve(points, most, room)
        if rows in points:
            break
        points[rows] = measure(rows)
        if (1 - _CLOSE) * room <= points[rows] <= room:
            break
    return points


def _next(points: dict[int, float], most: int, room: float) -> int:
    if len(points) > 1:
        return _solve(points, most, room)
    # Of one point it is only known that bytes are no more than in proportion to rows.
    ((rows, taken),) = points.items()
    return min(most, int(rows * room / taken))


def _solve(points: dict[int, float], most: int, room: float) -> int:
    """Where a line through what was measured meets the room, between what did and did not fit."""
    good = max(rows for rows, taken in points.items() if taken <= room)
    bad = min((rows for rows, taken in points.items() if taken > room), default=most + 1)
    known = sorted(rows for rows, taken in points.items() if math.isfinite(taken))
    if bad <= most:
        known = [good, bad]  # where bytes grow faster than rows, what lies between fits
    if len(known) < 2 or not math.isfinite(points[known[-1]]):
        return (good + bad) // 2
    per_row, fixed = np.polyfit(known, [points[rows] for rows in known], deg=1)
    solved = (room - fixed) / per_row if per_row > 0 else most
    return int(min(max(solved, good), bad - 1))
