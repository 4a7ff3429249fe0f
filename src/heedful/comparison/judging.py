"""Judging: how good are systems, and which of them are better than the baseline for sure?

The score of a system is the mean of its runs' scores. Whether two systems differ is tested by
sentences: the statistics of all runs of a system are added up for each sentence, and a sentence is
exchanged between the systems with all its outputs (approximate randomisation, Riezler & Maxwell
2005). Outputs of several seeds for one sentence are alike, so to exchange them one by one would
call too much significant. Law: with one run each it is the test of `heedful evaluate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from heedful.comparison.results import Judged, Over
from heedful.evaluation.measures import Array, Measure, Metric
from heedful.evaluation.partings import ByLength
from heedful.evaluation.resampling import bootstrap
from heedful.evaluation.significance import Difference, approximate_randomisation

Outputs = Sequence[Sequence[str]]
"""What the runs of one system said, run by run."""


def judge_systems(
    measure: Measure,
    systems: Sequence[Outputs],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    baseline: int = 0,
) -> list[Judged]:
    """Judge each system by a measure."""
    counted = [[measure.statistics(outputs, references) for outputs in runs] for runs in systems]
    overs = [
        Over.of([float(measure.total(run.sum(axis=0))) for run in statistics])
        for statistics in counted
    ]
    return [
        Judged(
            Metric(measure.name, over.mean, measure.signature(references)),
            measure.better,
            over,
            bootstrap(statistics[0], measure.total),
            None if place == baseline else _difference(measure, statistics, counted[baseline], gap),
            _by_length(measure, runs, sources, references),
        )
        for place, (runs, statistics, over) in enumerate(zip(systems, counted, overs, strict=True))
        for gap in [over.mean - overs[baseline].mean]
    ]


def _difference(
    measure: Measure, system: Sequence[Array], baseline: Sequence[Array], gap: float
) -> Difference:
    """Tell how far the means are apart, with the p of statistics added up over runs."""
    # Where one has more runs, those of both are counted several times, until they are as many.
    many = lcm(len(system), len(baseline))
    one, other = (many // len(runs) * sum(runs[1:], runs[0]) for runs in (system, baseline))
    return approximate_randomisation(one, other, measure.total)._replace(value=gap)


def _by_length(
    measure: Measure,
    runs: Outputs,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
) -> list[tuple[str, int, float | None]]:
    parting = ByLength(sources)
    found = [parting.groups(measure, outputs, references) for outputs in runs]
    means = list[tuple[str, int, float | None]]()
    for groups in zip(*found, strict=True):
        values = [group.metric.value for group in groups if group.metric is not None]
        means.append((groups[0].name, groups[0].size, Over.of(values).mean if values else None))
    return means
