"""Figures: what do all pictures of a comparison have in common?

A system has the same colour, mark and dash in all of them. What is not known of a system is left
out, and a note says so; where nothing is left there is no picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from heedful.comparison.results import Comparison, Judged, System
from heedful.inspection.chart import LIGHT_LINES, MOST_LINES, Line
from heedful.inspection.labels import visible_line

Points = Sequence[tuple[float, float | None]]


class Figure(NamedTuple):
    """A picture, and what a reader should know of it."""

    title: str
    svg: str | None  # a document that can stand alone; None where there is nothing to draw
    notes: Sequence[str]


class Shown(NamedTuple):
    """A system that can be drawn, and which of the looks it has."""

    look: int
    system: System
    judged: Judged  # by the metric that decides


def shown(comparison: Comparison) -> list[Shown]:
    """The systems that are told apart in a picture: those that there are looks for."""
    return [
        Shown(look, system, system.judged[0])
        for look, system in enumerate(comparison.systems[:MOST_LINES])
    ]


def line(look: int, system: System, points: Points, *, strands: Sequence[Points] = ()) -> Line:
    """A line in the look of its system."""
    is_dashed = look >= len(LIGHT_LINES)  # where colours come again
    return Line(system.name, points, dashed=is_dashed, look=look, strands=strands)


def quality(comparison: Comparison) -> str:
    """The name of the metric that decides."""
    return visible_line(comparison.systems[0].judged[0].metric.name)


def quality_label(comparison: Comparison) -> str:
    """That name, and which way is better."""
    return f"{quality(comparison)} ({comparison.systems[0].judged[0].better} is better)"


def missing(comparison: Comparison, names: Iterable[str], reason: str) -> Iterator[str]:
    """Say which systems are not among the names that were drawn, and why."""
    drawn, every = set(names), [system.name for system in comparison.systems]
    lost = [name for name in every[:MOST_LINES] if name not in drawn]
    if lost:
        yield f"Left out: {', '.join(map(visible_line, lost))}: {reason}."
    if len(every) > MOST_LINES:
        yield f"Only the first {MOST_LINES} systems are drawn: more cannot be told apart."
