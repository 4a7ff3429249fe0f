"""Answering: what does each run make of the same texts, and how fast?

Runs take turns, a piece of the test set at a time, and another begins in every round: whatever else
the machine does meanwhile hits all alike. Before that each has translated a few texts that are not
counted, since the first ones pay for what is set up once. Law: what comes out does not depend on
the pieces (`translator`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import lcm
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from heedful.comparison.results import RunStatistics, SystemScore
from heedful.errors import RunError
from heedful.evaluation.base import Array, Metric, MetricScore
from heedful.evaluation.breakdowns import LengthBreakdown
from heedful.evaluation.significance import (
    Difference,
    approximate_randomization,
    bootstrap_interval,
)
from heedful.runs import load
from heedful.tasks.task import Predictor, Task

BATCH_SIZE = 128  # texts to a turn: several batches
NUM_WARMUP = 16  # texts

Batches = Sequence[Sequence[str]]
ProgressWrapper = Callable[[Batches], Iterable[Sequence[str]]]
"""Gives pieces on, and may show how many there have been."""


class DecodingResult(NamedTuple):
    """What a run said, and what that took."""

    outputs: list[str]
    seconds: float
    num_tokens: int  # of outputs, as this run cuts them


def decode_interleaved(
    predictors: Sequence[Predictor],
    sources: Sequence[str],
    *,
    with_progress: ProgressWrapper = iter,
) -> list[DecodingResult]:
    """Let all translators answer all sources, by turns."""
    for predictor in predictors:
        list(predictor.predict(sources[:NUM_WARMUP]))
    results = [DecodingResult([], 0.0, 0) for _ in predictors]
    batches = [sources[start : start + BATCH_SIZE] for start in range(0, len(sources), BATCH_SIZE)]
    for batch_index, batch in enumerate(with_progress(batches)):
        for turn in range(len(predictors)):
            index = (batch_index + turn) % len(predictors)
            results[index] = _extend_result(results[index], predictors[index], batch)
    return results


def _extend_result(
    result: DecodingResult, predictor: Predictor, sources: Sequence[str]
) -> DecodingResult:
    start = time.perf_counter()
    predictions = list(predictor.predict(sources))
    seconds = time.perf_counter() - start
    return DecodingResult(
        [*result.outputs, *(prediction.text for prediction in predictions)],
        result.seconds + seconds,
        result.num_tokens + sum(len(prediction.tokens) for prediction in predictions),
    )


# Judging: how good are systems, and which of them are better than the baseline for sure?
#
# The score of a system is the mean of its runs' scores. Whether two systems differ is tested by
# sentences: the statistics of all runs of a system are added up for each sentence, and a sentence is
# exchanged between the systems with all its outputs (approximate randomisation, Riezler & Maxwell
# 2005). Outputs of several seeds for one sentence are alike, so to exchange them one by one would
# call too much significant. Law: with one run each it is the test of `heedful evaluate`.

Outputs = Sequence[Sequence[str]]
"""What the runs of one system said, run by run."""


def score_systems(
    metric: Metric,
    systems: Sequence[Outputs],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    baseline: int = 0,
) -> list[SystemScore]:
    """Judge each system by a measure."""
    counted = [
        [metric.sentence_statistics(outputs, references) for outputs in runs] for runs in systems
    ]
    overs = [
        RunStatistics.from_values([float(metric.compute(run.sum(axis=0))) for run in statistics])
        for statistics in counted
    ]
    return [
        SystemScore(
            MetricScore(metric.name, over.mean, metric.signature(references)),
            metric.direction,
            over,
            bootstrap_interval(statistics[0], metric.compute),
            None
            if index == baseline
            else _compare_to_baseline(metric, statistics, counted[baseline], gap),
            _scores_by_length(metric, runs, sources, references),
        )
        for index, (runs, statistics, over) in enumerate(zip(systems, counted, overs, strict=True))
        for gap in [over.mean - overs[baseline].mean]
    ]


def _compare_to_baseline(
    metric: Metric, system: Sequence[Array], baseline: Sequence[Array], gap: float
) -> Difference:
    """Tell how far the means are apart, with the p of statistics added up over runs."""
    # Where one has more runs, those of both are counted several times, until they are as many.
    many = lcm(len(system), len(baseline))
    one, other = (many // len(runs) * sum(runs[1:], runs[0]) for runs in (system, baseline))
    return approximate_randomization(one, other, metric.compute)._replace(value=gap)


def _scores_by_length(
    metric: Metric,
    runs: Outputs,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
) -> list[tuple[str, int, float | None]]:
    breakdown = LengthBreakdown(sources)
    found = [breakdown.score_groups(metric, outputs, references) for outputs in runs]
    means = list[tuple[str, int, float | None]]()
    for groups in zip(*found, strict=True):
        values = [group.score.value for group in groups if group.score is not None]
        means.append(
            (
                groups[0].name,
                groups[0].size,
                RunStatistics.from_values(values).mean if values else None,
            )
        )
    return means


# Exams: what are all systems of a comparison asked?
#
# Systems that translate answer the same sources and are held against the same references. Language
# models read the same text and are measured by how much it surprises them. Each exam is held with
# every run of every system, and tells of each system what can be known by it.

MAX_EXAMPLES = 8

Item = TypeVar("Item")


class SystemResult(NamedTuple):
    """What an exam has told of one system."""

    scores: Sequence[SystemScore]
    num_parameters: int
    sentences_per_second: RunStatistics
    tokens_per_second: RunStatistics
    outputs: Sequence[str]  # of the first run, for the examples


class EvaluationResults(NamedTuple):
    """What an exam has told of all systems, and what it asked, as far as it is shown."""

    results: Sequence[SystemResult]
    sources: Sequence[str] = ()
    references: Sequence[str] = ()


class EvaluationSet(Protocol):
    """What all systems are asked."""

    @property
    def title(self) -> str:
        """What they are tested on."""
        ...

    @property
    def size(self) -> int:
        """How many sentences there are."""
        ...

    def evaluate(
        self, systems: Sequence[Sequence[Path]], *, baseline: int, device: str
    ) -> EvaluationResults:
        """Ask the runs of each system."""
        ...


@dataclass(frozen=True)
class ParallelEvaluationSet:
    """Sources to be answered, and what the answers should be."""

    title: str
    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    metrics: Sequence[Metric]
    beam_size: int | None = None
    with_progress: ProgressWrapper = iter

    @property
    def size(self) -> int:
        """How many sentences there are."""
        return len(self.sources)

    def evaluate(
        self, systems: Sequence[Sequence[Path]], *, baseline: int, device: str
    ) -> EvaluationResults:
        """Let the runs of each system translate, by turns, and judge what they said."""
        overrides = [f"decoding.beam_size={self.beam_size}"] if self.beam_size else []
        translators = [
            load(run, device=device, overrides=overrides) for runs in systems for run in runs
        ]
        found = decode_interleaved(translators, self.sources, with_progress=self.with_progress)
        answers = group_by_system(found, systems)
        said = [[each.outputs for each in runs] for runs in answers]
        judged = [
            score_systems(measure, said, self.sources, self.references, baseline=baseline)
            for measure in self.metrics
        ]
        shown = self._examples([runs[0] for runs in said])
        sizes = [count_parameters(each.model) for each in translators]
        results = [
            self._result(column, size[0], runs, shown)
            for column, size, runs in zip(
                zip(*judged, strict=True), group_by_system(sizes, systems), answers, strict=True
            )
        ]
        shown_sources = [self.sources[row] for row in shown]
        return EvaluationResults(results, shown_sources, [self.references[row][0] for row in shown])

    def _result(
        self,
        scores: Sequence[SystemScore],
        size: int,
        runs: Sequence[DecodingResult],
        shown: Sequence[int],
    ) -> SystemResult:
        return SystemResult(
            scores,
            size,
            RunStatistics.from_values([len(self.sources) / run.seconds for run in runs]),
            RunStatistics.from_values([run.num_tokens / run.seconds for run in runs]),
            [runs[0].outputs[row] for row in shown],
        )

    def _examples(self, system_outputs: Sequence[Sequence[str]]) -> list[int]:
        """Choose sentences from all over the test set, those first that systems answered unlike."""
        unlike = [
            row
            for row, outputs in enumerate(zip(*system_outputs, strict=True))
            if len({*outputs}) > 1
        ]
        alike = sorted({*range(self.size)} - {*unlike})
        chosen = evenly_spaced(unlike, MAX_EXAMPLES)
        return sorted([*chosen, *evenly_spaced(alike, MAX_EXAMPLES - len(chosen))])


def group_by_system(items: Sequence[Item], systems: Sequence[Sequence[Path]]) -> list[list[Item]]:
    """Part what was found run by run into systems."""
    stream = iter(items)
    return [list(islice(stream, len(runs))) for runs in systems]


def evenly_spaced(rows: Sequence[int], max_count: int) -> list[int]:
    """Take at most so many, as evenly as can be."""
    count = min(max_count, len(rows))
    return [rows[index * len(rows) // count] for index in range(count)]


def count_parameters(model: object) -> int:
    """Count the numbers that a model has learned; shared ones count once."""
    from torch import nn

    assert isinstance(model, nn.Module), type(model)
    return sum(weight.numel() for weight in model.parameters())


# Exams of running text: how much does the same text surprise each language model?
#
# Each model reads the text as `heedful evaluate` lets it, in turns with the others, after a few lines
# that are not counted. Perplexity per token tells models apart only where they cut text alike; per
# word or per character it always does, so those come first. Masked models are asked for hidden
# tokens: they are compared only where the same ones were hidden.

NUM_ROUNDS = 2


@dataclass(frozen=True)
class TextEvaluationSet:
    """Running text to be read."""

    title: str
    lines: Sequence[str]
    task: Task

    @property
    def size(self) -> int:
        """How many lines there are."""
        return len(self.lines)

    def evaluate(
        self, systems: Sequence[Sequence[Path]], *, baseline: int, device: str
    ) -> EvaluationResults:
        """Let the runs of each system read, by turns."""
        del baseline  # what is found of a text has no sentences to be exchanged
        folders = [run for runs in systems for run in runs]
        writers = [load(run, device=device) for run in folders]
        lengths = self._count_tokens(folders, writers)
        metrics, seconds = self._score_interleaved(writers)
        found = [
            _RunScores(
                writer, run_metrics, NUM_ROUNDS * self.size / taken, NUM_ROUNDS * length / taken
            )
            for writer, run_metrics, taken, length in zip(
                writers, metrics, seconds, lengths, strict=True
            )
        ]
        return EvaluationResults(
            [_result(runs, self.task) for runs in group_by_system(found, systems)]
        )

    def _score_interleaved(
        self, writers: Sequence[Predictor]
    ) -> tuple[list[list[MetricScore]], list[float]]:
        """Let all read the text, by turns, and say how it surprised them and how long it took."""
        for writer in writers:
            writer.evaluate(self.lines[:NUM_WARMUP])
        metrics, seconds = list[list[MetricScore]](), [0.0] * len(writers)
        for _ in range(NUM_ROUNDS):
            metrics = []
            for index, writer in enumerate(writers):
                began = time.perf_counter()
                metrics.append(writer.evaluate(self.lines))
                seconds[index] += time.perf_counter() - began
        return metrics, seconds

    def _count_tokens(self, folders: Sequence[Path], writers: Sequence[Predictor]) -> list[int]:
        """Return the number of tokens that each run makes of the text."""
        keys = [self.task.comparison_key(writer, self.lines) for writer in writers]
        for folder, key in zip(folders, keys, strict=True):
            if key != keys[0]:
                raise _masking_differs_error(folder, folders[0])
        return [writer.count_tokens(self.lines) for writer in writers]


class _RunScores(NamedTuple):
    writer: Predictor
    metrics: Sequence[MetricScore]
    lines_per_second: float
    tokens_per_second: float


def _masking_differs_error(folder: Path, first: Path) -> RunError:
    return RunError(
        str(folder),
        f"other tokens would be hidden from this run than from {first}",
        "compare masked language models with the same `text`, `data.lm_batching` and `model.masking`",
    )


def _result(runs: Sequence[_RunScores], task: Task) -> SystemResult:
    values = [{metric.name: metric for metric in run.metrics} for run in runs]
    scores = list[SystemScore]()
    for name, better in task.compared_scores.items():
        if name in values[0]:
            over = RunStatistics.from_values([each[name].value for each in values])
            scores.append(SystemScore(values[0][name]._replace(value=over.mean), better, over))
    return SystemResult(
        scores,
        count_parameters(runs[0].writer.model),
        RunStatistics.from_values([run.lines_per_second for run in runs]),
        RunStatistics.from_values([run.tokens_per_second for run in runs]),
        outputs=(),
    )
