"""The sheet: all that was asked about a set of outputs, as text and as JSON.

Each metric has a line: its score, the interval it lies in, how far it is from a baseline's, and its
signature. Where sentences were parted, a table follows with a row for each group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from heedful.evaluation.groups import Group
from heedful.evaluation.measures import Measure, Metric, References, several
from heedful.evaluation.resampling import SAMPLES, SEED, Interval, bootstrap
from heedful.evaluation.significance import (
    LEVEL,
    TRIALS,
    Difference,
    approximate_randomisation,
)

MARK = "*"


class Entry(NamedTuple):
    """What is known by one metric."""

    metric: Metric
    interval: Interval | None = None
    difference: Difference | None = None
    groups: Sequence[Group] = ()


def judge(
    measure: Measure,
    outputs: Sequence[str],
    references: References,
    *,
    baseline: Sequence[str] | None = None,
    confidence: bool = False,
) -> Entry:
    """Measure outputs, with an interval if wanted, and beside those of a baseline if given."""
    choices, total = several(references), measure.total
    counted = measure.statistics(outputs, choices)
    metric = Metric(measure.name, float(total(counted.sum(axis=0))), measure.signature(choices))
    interval = bootstrap(counted, total) if confidence else None
    if baseline is None:
        return Entry(metric, interval)
    other = measure.statistics(baseline, choices)
    return Entry(metric, interval, approximate_randomisation(counted, other, total))


def as_json(entry: Entry) -> dict[str, Any]:
    """An entry as plain values; what was not asked for is left out."""
    told: dict[str, Any] = entry.metric._asdict()
    if entry.interval:
        told["interval"] = {**entry.interval._asdict(), "samples": SAMPLES, "seed": SEED}
    if entry.difference:
        value, p = entry.difference
        base = entry.metric.value - value
        told["baseline"] = {"value": base, "difference": value, "p": p, "trials": TRIALS}
    if entry.groups:
        told["groups"] = [
            {"name": name, "size": size, "value": None if metric is None else metric.value}
            for name, size, metric in entry.groups
        ]
    return told


def as_text(entries: Sequence[Entry], *, digits: int = 2) -> Iterator[str]:
    """The lines of all metrics, and what their signs mean."""
    width = max(12, *(len(entry.metric.name) for entry in entries))
    numbers = _aligned(f"{entry.metric.value:{digits + 4}.{digits}f}" for entry in entries)
    beside = zip(
        _aligned(_interval(entry, digits) for entry in entries),
        _aligned(_difference(entry, digits) for entry in entries),
        strict=True,
    )
    for entry, number, cells in zip(entries, numbers, beside, strict=True):
        told = [number, *filter(None, cells), entry.metric.signature]
        yield f"{entry.metric.name:<{width}} {'   '.join(told)}"
    if interval := entries[0].interval:
        yield f"[ ] {100 * interval.level:g} % of {SAMPLES} test sets drawn from these sentences"
    if entries[0].difference:
        yield (
            f"+- from the baseline; {MARK} p < {LEVEL:g}, by approximate randomisation "
            f"({TRIALS} trials)"
        )


def as_table(title: str, unit: str, entries: Sequence[Entry], *, digits: int = 2) -> Iterator[str]:
    """The groups of entries that were parted alike, one to a row."""
    groups = entries[0].groups
    columns = [
        [title, *(group.name for group in groups)],
        [unit, *(str(group.size) for group in groups)],
        *(
            [each.metric.name, *(_value(group, digits) for group in each.groups)]
            for each in entries
        ),
    ]
    widths = [max(map(len, column)) for column in columns]
    for name, *cells in zip(*columns, strict=True):
        aligned = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join([f"{name:<{widths[0]}}", *aligned])


def _interval(entry: Entry, digits: int) -> str:
    if entry.interval is None:
        return ""
    return f"[{entry.interval.low:.{digits}f}, {entry.interval.high:.{digits}f}]"


def _difference(entry: Entry, digits: int) -> str:
    if entry.difference is None:
        return ""
    mark = MARK if entry.difference.is_significant else " "
    return f"{entry.difference.value:+{digits + 5}.{digits}f} p={entry.difference.p:.4f}{mark}"


def _aligned(cells: Iterable[str]) -> list[str]:
    """Make cells of a column equally wide, their ends below one another."""
    column = list(cells)
    width = max(map(len, column))
    return [cell.rjust(width) for cell in column]


def _value(group: Group, digits: int) -> str:
    return "-" if group.metric is None else f"{group.metric.value:.{digits}f}"
