"""Scores of a set of outputs as a text table and as JSON.

A line has score, confidence interval, difference from a baseline and signature of a metric.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from heedful.evaluation import significance
from heedful.evaluation.base import Metric, MetricScore, References, as_multi_reference
from heedful.evaluation.breakdowns import GroupScore
from heedful.evaluation.significance import Difference, Interval

SIGNIFICANCE_MARK = "*"


class ScoreEntry(NamedTuple):
    """Result of a metric."""

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
    """Score outputs, optionally with a confidence interval and against a baseline's outputs."""
    choices = as_multi_reference(references)
    statistics = metric.sentence_statistics(outputs, choices)
    value = float(metric.compute(statistics.sum(axis=0)))
    score = MetricScore(metric.name, value, metric.signature(choices))
    interval = significance.bootstrap_interval(statistics, metric.compute) if confidence else None
    if baseline is None:
        return ScoreEntry(score, interval)
    baseline_statistics = metric.sentence_statistics(baseline, choices)
    difference = significance.compare_systems(statistics, baseline_statistics, metric.compute)
    return ScoreEntry(score, interval, difference)


def entry_to_dict(entry: ScoreEntry) -> dict[str, Any]:
    """Return an entry as JSON values; values that were not computed are left out."""
    fields: dict[str, Any] = entry.score._asdict()
    if entry.interval:
        sampling = {"num_samples": significance.NUM_BOOTSTRAP_SAMPLES, "seed": significance.SEED}
        fields["interval"] = entry.interval._asdict() | sampling
    if entry.difference:
        difference, p_value = entry.difference
        fields["baseline"] = {
            "value": entry.score.value - difference,
            "difference": difference,
            "p_value": p_value,
            "num_trials": significance.NUM_TRIALS,
        }
    if entry.groups:
        fields["groups"] = [
            {"name": name, "size": size, "value": None if score is None else score.value}
            for name, size, score in entry.groups
        ]
    return fields


def format_entries(entries: Sequence[ScoreEntry], *, digits: int = 2) -> Iterator[str]:
    """Yield a line for each metric, and the legend."""
    rows = []
    for score, interval, difference, _ in entries:
        row = [f"{score.value:{digits + 4}.{digits}f}", "", ""]
        if interval:
            row[1] = f"[{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
        if difference:
            mark = SIGNIFICANCE_MARK if difference.is_significant else " "
            row[2] = f"{difference.value:+{digits + 5}.{digits}f} p={difference.p_value:.4f}{mark}"
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    name_width = max(12, *(len(entry.score.name) for entry in entries))
    for entry, row in zip(entries, rows, strict=True):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True) if width]
        line = "   ".join([*cells, entry.score.signature])
        yield f"{entry.score.name:<{name_width}} {line}"
    if interval := entries[0].interval:
        level, num_samples = 100 * interval.level, significance.NUM_BOOTSTRAP_SAMPLES
        yield f"[ ] {level:g} % of {num_samples} bootstrap samples"
    if entries[0].difference:
        yield (
            f"+- from the baseline; {SIGNIFICANCE_MARK} p < {significance.SIGNIFICANCE_LEVEL:g}, "
            f"by approximate randomization ({significance.NUM_TRIALS} trials)"
        )


def format_group_table(
    title: str, unit: str, entries: Sequence[ScoreEntry], *, digits: int = 2
) -> Iterator[str]:
    """Yield a table with a row for each group and a column for each metric."""
    groups = entries[0].groups
    sizes = [str(group.size) for group in groups]
    columns = [[title, *(group.name for group in groups)], [unit, *sizes]]
    for entry in entries:
        scores = ("-" if g.score is None else f"{g.score.value:.{digits}f}" for g in entry.groups)
        columns.append([entry.score.name, *scores])
    widths = [max(map(len, column)) for column in columns]
    for name, *cells in zip(*columns, strict=True):
        aligned = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join([f"{name:<{widths[0]}}", *aligned])
