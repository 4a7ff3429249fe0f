"""The sheet: all that was asked about a set of outputs, as text and as JSON.

Each metric has a line: its score, the interval it lies in, how far it is from a baseline's, and its
signature. Where sentences were parted, a table follows with a row for each group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from heedful.evaluation.base import Metric, MetricScore, References, as_multi_reference
from heedful.evaluation.breakdowns import GroupScore
from heedful.evaluation.significance import (
    NUM_BOOTSTRAP_SAMPLES,
    NUM_TRIALS,
    SEED,
    SIGNIFICANCE_LEVEL,
    Difference,
    Interval,
    approximate_randomization,
    bootstrap_interval,
)

SIGNIFICANCE_MARK = "*"


class ScoreEntry(NamedTuple):
    """What is known by one metric."""

    score: MetricScore
    interval: Interval | None = None
    difference: Difference | None = None
    groups: Sequence[GroupScore] = ()


def score_outputs(
    metric: Metric,
    outputs: Sequence[str],
    references: References,
    *,
    baseline: Sequence[str] | None = None,
    confidence: bool = False,
) -> ScoreEntry:
    """Measure outputs, with an interval if wanted, and beside those of a baseline if given."""
    choices, total = as_multi_reference(references), metric.compute
    counted = metric.sentence_statistics(outputs, choices)
    result = MetricScore(metric.name, float(total(counted.sum(axis=0))), metric.signature(choices))
    interval = bootstrap_interval(counted, total) if confidence else None
    if baseline is None:
        return ScoreEntry(result, interval)
    other = metric.sentence_statistics(baseline, choices)
    return ScoreEntry(result, interval, approximate_randomization(counted, other, total))


def entry_to_dict(entry: ScoreEntry) -> dict[str, Any]:
    """An entry as plain values; what was not asked for is left out."""
    fields: dict[str, Any] = entry.score._asdict()
    if entry.interval:
        fields["interval"] = {
            **entry.interval._asdict(),
            "num_logged_samples": NUM_BOOTSTRAP_SAMPLES,
            "seed": SEED,
        }
    if entry.difference:
        value, p = entry.difference
        base = entry.score.value - value
        fields["baseline"] = {"value": base, "difference": value, "p": p, "trials": NUM_TRIALS}
    if entry.groups:
        fields["groups"] = [
            {"name": name, "size": size, "value": None if metric is None else metric.value}
            for name, size, metric in entry.groups
        ]
    return fields


def format_entries(entries: Sequence[ScoreEntry], *, digits: int = 2) -> Iterator[str]:
    """The lines of all metrics, and what their signs mean."""
    width = max(12, *(len(entry.score.name) for entry in entries))
    numbers = _pad_cells(f"{entry.score.value:{digits + 4}.{digits}f}" for entry in entries)
    difference = zip(
        _pad_cells(_format_interval(entry, digits) for entry in entries),
        _pad_cells(_format_difference(entry, digits) for entry in entries),
        strict=True,
    )
    for entry, number, cells in zip(entries, numbers, difference, strict=True):
        columns = [number, *filter(None, cells), entry.score.signature]
        yield f"{entry.score.name:<{width}} {'   '.join(columns)}"
    if interval := entries[0].interval:
        yield f"[ ] {100 * interval.level:g} % of {NUM_BOOTSTRAP_SAMPLES} test sets drawn from these sentences"
    if entries[0].difference:
        yield (
            f"+- from the baseline; {SIGNIFICANCE_MARK} p < {SIGNIFICANCE_LEVEL:g}, by approximate randomisation "
            f"({NUM_TRIALS} trials)"
        )


def format_group_table(
    title: str, unit: str, entries: Sequence[ScoreEntry], *, digits: int = 2
) -> Iterator[str]:
    """The groups of entries that were parted alike, one to a row."""
    groups = entries[0].groups
    columns = [
        [title, *(group.name for group in groups)],
        [unit, *(str(group.size) for group in groups)],
        *(
            [each.score.name, *(_format_score(group, digits) for group in each.groups)]
            for each in entries
        ),
    ]
    widths = [max(map(len, column)) for column in columns]
    for name, *cells in zip(*columns, strict=True):
        aligned = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join([f"{name:<{widths[0]}}", *aligned])


def _format_interval(entry: ScoreEntry, digits: int) -> str:
    if entry.interval is None:
        return ""
    return f"[{entry.interval.low:.{digits}f}, {entry.interval.high:.{digits}f}]"


def _format_difference(entry: ScoreEntry, digits: int) -> str:
    if entry.difference is None:
        return ""
    mark = SIGNIFICANCE_MARK if entry.difference.is_significant else " "
    return (
        f"{entry.difference.value:+{digits + 5}.{digits}f} p={entry.difference.p_value:.4f}{mark}"
    )


def _pad_cells(cells: Iterable[str]) -> list[str]:
    """Make cells of a column equally wide, their ends below one another."""
    column = list(cells)
    width = max(map(len, column))
    return [cell.rjust(width) for cell in column]


def _format_score(group: GroupScore, digits: int) -> str:
    return "-" if group.score is None else f"{group.score.value:.{digits}f}"
