"""Evaluation of all systems of a comparison on the same test set.

`ParallelEvaluationSet` scores predicted texts against references, `TextEvaluationSet` has the
scores of models of running text. Runs are warmed up and take turns, so that other
load affects all equally.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import lcm
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from typing_extensions import override

from heedful.comparison.results import RunStatistics, SystemScore
from heedful.data.text.pair_dataset import Pair
from heedful.errors import RunError, check
from heedful.evaluation.base import Metric, MetricScore, ReferenceLists, as_multi_reference
from heedful.evaluation.breakdowns import Breakdown, LengthBreakdown
from heedful.evaluation.registry import compared_texts
from heedful.evaluation.significance import bootstrap_interval, compare_systems
from heedful.runs import load
from heedful.tasks.evaluation import SystemOutputs
from heedful.tasks.prediction import Predictor
from heedful.tasks.task import Task

BATCH_SIZE = 128  # texts per turn: several batches of a model
NUM_WARMUP = 16  # texts
NUM_ROUNDS = 2  # over running text
MAX_EXAMPLES = 8

Item = TypeVar("Item")
RunFolders = Sequence[Sequence[tuple[Path, ...]]]
"""The runs of each system; an ensemble of several folders counts as one run."""
Batches = Sequence[Sequence[str]]
ProgressWrapper = Callable[[Batches], Iterable[Sequence[str]]]
"""Yields the batches, and may show a progress bar."""


class SystemResult(NamedTuple):
    """Scores and speed of a system."""

    scores: Sequence[SystemScore]
    num_parameters: int
    sentences_per_second: RunStatistics
    tokens_per_second: RunStatistics
    outputs: Sequence[str] = ()  # of the first run, for the examples


class EvaluationResults(NamedTuple):
    """Results of all systems, and the examples."""

    results: Sequence[SystemResult]
    sources: Sequence[str] = ()
    references: Sequence[str] = ()


@dataclass(frozen=True)
class EvaluationSet(ABC):
    """The test set of a comparison."""

    title: str
    sources: Sequence[str]

    @property
    def size(self) -> int:
        """Number of sentences."""
        return len(self.sources)

    @abstractmethod
    def evaluate(self, systems: RunFolders, *, baseline: int, device: str) -> EvaluationResults:
        """Evaluate the runs of each system; `baseline` is the index of a system."""


def group_by_system(items: Sequence[Item], systems: RunFolders) -> list[list[Item]]:
    """Group items, one per run, by system."""
    stream = iter(items)
    return [list(islice(stream, len(runs))) for runs in systems]


def load_runs(systems: RunFolders, *, device: str, settings: Sequence[str] = ()) -> list[Predictor]:
    """Load the predictor of each run of each system."""
    runs = [run for system in systems for run in system]
    return [
        load(folder, device=device, settings=settings, ensemble_with=others)
        for folder, *others in runs
    ]


def count_parameters(predictor: Any) -> int:
    """Return the number of parameters of all members; shared ones count once."""
    members = (predictor, *getattr(predictor, "ensemble_with", ()))
    return sum(weight.numel() for member in members for weight in member.model.parameters())


# ----- predictions against references -----


class AdditionalTestSet(NamedTuple):
    """An additional test set: systems are scored on it by the main metric only."""

    name: str
    sources: Sequence[str]
    references: ReferenceLists

    @classmethod
    def from_pairs(cls, name: str, pairs: Sequence[Pair]) -> Self:
        """Make a test set of pairs."""
        return cls(name, [pair.source for pair in pairs], [pair.references for pair in pairs])


@dataclass
class DecodingResult:
    """Outputs of a run so far, and how long they took."""

    outputs: list[str]
    seconds: float = 0.0
    num_tokens: int = 0  # of the outputs, by the tokenizer of the run


@dataclass(frozen=True)
class ParallelEvaluationSet(EvaluationSet):
    """Sources and references."""

    references: ReferenceLists
    metrics: Sequence[Metric]
    additional_sets: Sequence[AdditionalTestSet] = ()
    beam_size: int | None = None
    with_progress: ProgressWrapper = iter
    system_outputs: type[SystemOutputs] = SystemOutputs
    gold_alignments: Sequence[str] | None = None

    @override
    def evaluate(self, systems: RunFolders, *, baseline: int, device: str) -> EvaluationResults:
        overrides = [f"decoding.beam_size={self.beam_size}"] if self.beam_size else []
        predictors = load_runs(systems, device=device, settings=overrides)
        by_run = decode_interleaved(predictors, self.sources, self.with_progress)
        decoded = group_by_system(by_run, systems)
        main = AdditionalTestSet("", self.sources, self.references)
        outputs = self._outputs(predictors, main, by_run)
        scores = [self._score(metric, outputs, systems, main, baseline) for metric in self.metrics]
        for test in self.additional_sets:
            by_run = decode_interleaved(predictors, test.sources, self.with_progress)
            outputs, metric = self._outputs(predictors, test, by_run), self.metrics[0]
            columns = self._score(metric, outputs, systems, test, baseline)
            scores.append([column.renamed(f"{metric.name}, {test.name}") for column in columns])
        rows = select_examples([runs[0].outputs for runs in decoded])
        members = group_by_system(predictors, systems)
        results = []
        for index, system_scores in enumerate(zip(*scores, strict=True)):
            num_parameters = count_parameters(members[index][0])
            speeds = [self.size / run.seconds for run in decoded[index]]
            token_speeds = [run.num_tokens / run.seconds for run in decoded[index]]
            sentence_stats, token_stats = map(RunStatistics.from_values, (speeds, token_speeds))
            examples = [decoded[index][0].outputs[row] for row in rows]
            results.append(
                SystemResult(system_scores, num_parameters, sentence_stats, token_stats, examples)
            )
        sources = [self.sources[row] for row in rows]
        return EvaluationResults(results, sources, [self.references[row][0] for row in rows])

    def _outputs(
        self,
        predictors: Sequence[Predictor],
        test: AdditionalTestSet,
        decoded: Sequence[DecodingResult],
    ) -> list[SystemOutputs]:
        """Return what metrics score: the decoded texts, or what the model says of references."""
        outputs = []
        for predictor, result in zip(predictors, decoded, strict=True):
            run = self.system_outputs(
                predictor, test.sources, test.references, lambda predictions, total: predictions
            )
            run.texts = result.outputs  # so that they are not decoded again
            outputs.append(run)
        return outputs

    def _score(
        self,
        metric: Metric,
        outputs: Sequence[SystemOutputs],
        systems: RunFolders,
        test: AdditionalTestSet,
        baseline: int,
    ) -> list[SystemScore]:
        """Score each system on a test set by one metric."""
        lines = group_by_system([run.metric_inputs(metric) for run in outputs], systems)
        return score_systems(
            metric,
            lines,
            test.sources,
            test.references,
            gold_alignments=self.gold_alignments,
            baseline=baseline,
        )


def select_examples(outputs: Sequence[Sequence[str]]) -> list[int]:
    """Return evenly spaced sentences, first of those for which the outputs of systems differ."""
    is_equal = [len({*texts}) == 1 for texts in zip(*outputs, strict=True)]
    chosen = evenly_spaced([row for row, equal in enumerate(is_equal) if not equal], MAX_EXAMPLES)
    others = [row for row, equal in enumerate(is_equal) if equal]
    return sorted([*chosen, *evenly_spaced(others, MAX_EXAMPLES - len(chosen))])


def evenly_spaced(rows: Sequence[int], max_count: int) -> list[int]:
    """Return at most `max_count` rows."""
    count = min(max_count, len(rows))
    return [rows[index * len(rows) // count] for index in range(count)]


def decode_interleaved(
    predictors: Sequence[Predictor], sources: Sequence[str], with_progress: ProgressWrapper = iter
) -> list[DecodingResult]:
    """Let predictors decode all sources by turns, another first in each round.

    Invariant: the outputs do not depend on the batches.
    """
    for predictor in predictors:
        list(predictor.predict(sources[:NUM_WARMUP]))
    results = [DecodingResult([]) for _ in predictors]
    batches = [sources[start : start + BATCH_SIZE] for start in range(0, len(sources), BATCH_SIZE)]
    for batch_index, batch in enumerate(with_progress(batches)):
        for turn in range(len(predictors)):
            index = (batch_index + turn) % len(predictors)
            start = time.perf_counter()
            predictions = list(predictors[index].predict(batch))
            results[index].seconds += time.perf_counter() - start
            results[index].outputs += [prediction.text for prediction in predictions]
            results[index].num_tokens += sum(len(prediction.tokens) for prediction in predictions)
    return results


def score_systems(
    metric: Metric,
    systems: Sequence[Sequence[Sequence[str]]],
    sources: Sequence[str],
    references: ReferenceLists,
    *,
    gold_alignments: Sequence[str] | None = None,
    baseline: int = 0,
) -> list[SystemScore]:
    """Score each system, given the lines of its runs: outputs, or what else the metric reads.

    The score is the mean over runs. The significance test swaps sentences with the outputs of all
    runs, whose statistics are summed: outputs of multiple seeds for a sentence are alike, and to
    swap them one by one would call too much significant. Invariant: with one run per system it is
    the test of `heedful evaluate`.
    """
    texts = compared_texts(metric, references, sources, gold_alignments)
    references = as_multi_reference(texts)
    statistics = [
        [metric.sentence_statistics(outputs, references) for outputs in runs] for runs in systems
    ]
    values = [[float(metric.compute(run.sum(axis=0))) for run in runs] for runs in statistics]
    stats = list(map(RunStatistics.from_values, values))
    scores, breakdown = [], LengthBreakdown(sources)
    for index, runs in enumerate(systems):
        difference = None
        if index != baseline:
            pair = statistics[index], statistics[baseline]
            count = lcm(*map(len, pair))  # each is repeated to the same total number of runs
            one, other = (count // len(arrays) * sum(arrays[1:], arrays[0]) for arrays in pair)
            mean_difference = stats[index].mean - stats[baseline].mean
            difference = compare_systems(one, other, metric.compute)._replace(value=mean_difference)
        score = MetricScore(metric.name, stats[index].mean, metric.signature(references))
        interval = bootstrap_interval(statistics[index][0], metric.compute)
        by_length = _scores_by_length(metric, breakdown, runs, references)
        scores.append(
            SystemScore(score, metric.direction, stats[index], interval, difference, by_length)
        )
    return scores


def _scores_by_length(
    metric: Metric, breakdown: Breakdown, runs: Sequence[Sequence[str]], references: ReferenceLists
) -> list[tuple[str, int, float | None]]:
    by_run = [breakdown.score_groups(metric, outputs, references) for outputs in runs]
    means: list[tuple[str, int, float | None]] = []
    for groups in zip(*by_run, strict=True):
        values = [group.score.value for group in groups if group.score is not None]
        mean = RunStatistics.from_values(values).mean if values else None
        means.append((groups[0].name, groups[0].size, mean))
    return means


@dataclass(frozen=True)
class TextEvaluationSet(EvaluationSet):
    """Lines of running text, which are the sources."""

    task: Task

    @override
    def evaluate(self, systems: RunFolders, *, baseline: int, device: str) -> EvaluationResults:
        del baseline  # there are no sentences to test a difference by
        predictors = load_runs(systems, device=device)
        evaluation = self.task.evaluation
        keys = [evaluation.comparison_key(predictor, self.sources) for predictor in predictors]
        names = ["+".join(map(str, run)) for runs in systems for run in runs]
        message = f"predicts other targets than {names[0]}"
        for name, key in zip(names, keys, strict=True):
            check(key == keys[0], name, message, evaluation.comparison_hint, RunError)
        for predictor in predictors:
            predictor.evaluate(self.sources[:NUM_WARMUP])
        scores: list[list[MetricScore]] = [[] for _ in predictors]
        seconds = [0.0] * len(predictors)
        for _ in range(NUM_ROUNDS):
            for index, predictor in enumerate(predictors):
                start = time.perf_counter()
                scores[index] = predictor.evaluate(self.sources)
                seconds[index] += time.perf_counter() - start
        runs = list(zip(predictors, scores, seconds, strict=True))
        return EvaluationResults([self._result(group) for group in group_by_system(runs, systems)])

    def _result(self, runs: Sequence[tuple[Predictor, list[MetricScore], float]]) -> SystemResult:
        """Return the result of a system from predictor, scores and seconds of each run."""
        by_name = [{score.name: score for score in scores} for _, scores, _ in runs]
        scores = []
        for name, direction in self.task.evaluation.compared_scores.items():
            if name in by_name[0]:
                stats = RunStatistics.from_values([run[name].value for run in by_name])
                score = by_name[0][name]._replace(value=stats.mean)
                scores.append(SystemScore(score, direction, stats))
        line_speeds = [NUM_ROUNDS * self.size / seconds for _, _, seconds in runs]
        token_speeds = [
            NUM_ROUNDS * predictor.count_tokens(self.sources) / seconds
            for predictor, _, seconds in runs
        ]
        line_stats, token_stats = map(RunStatistics.from_values, (line_speeds, token_speeds))
        return SystemResult(scores, count_parameters(runs[0][0]), line_stats, token_stats)
