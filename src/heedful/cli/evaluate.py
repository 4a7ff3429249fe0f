"""`heedful evaluate`: score the outputs of a run or a file against references.

Of a run whose task has no references, such as a language model, it prints the model's own scores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from heedful.cli.options import (
    BeamSize,
    Device,
    handle_stdout_errors,
    with_file_options,
    with_progress,
)
from heedful.cli.references import (
    EvaluationFiles,
    GroupBy,
    ReferenceSet,
    check_options,
    check_supported,
    find_test_source,
    read_matching_lines,
    references_from_files,
    references_from_recipe,
)
from heedful.errors import ConfigError, check
from heedful.tasks.file_options import Files, Split

if TYPE_CHECKING:
    from heedful.evaluation.base import Metric, References
    from heedful.evaluation.breakdowns import Breakdown
    from heedful.evaluation.score_table import ScoreEntry
    from heedful.recipes import Recipe
    from heedful.tasks.prediction import SystemOutputs


@with_file_options("test")
def evaluate(
    run: Annotated[
        Path | None, typer.Argument(help="folder written by `heedful train`; not with --outputs")
    ] = None,
    file: Annotated[
        str | None, typer.Argument(help="test file of a run that takes one, such as --text")
    ] = None,
    *,
    files: Mapping[Split, Files],
    outputs: Annotated[str | None, typer.Option(help="outputs of any system, line by line")] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="comma-separated, such as ter,rouge-l", show_default="bleu,chrf,exact-match"
        ),
    ] = None,
    gold_alignments: Annotated[
        str | None, typer.Option(help="for aer: gold word alignments of the references")
    ] = None,
    group_by: Annotated[
        GroupBy | None, typer.Option(help="also score groups of the test set")
    ] = None,
    training_targets: Annotated[
        str | None, typer.Option(help="for --group-by word-frequency: target texts of training")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="for --group-by sentence-type: one label per line")
    ] = None,
    confidence: Annotated[bool, typer.Option("--confidence", help="add 95 % intervals")] = False,
    baseline: Annotated[
        str | None, typer.Option(help="outputs or a run to compare with", metavar="FILE|RUN")
    ] = None,
    beam: BeamSize = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    device: Device = "auto",
) -> None:
    """Score outputs: exact match, BLEU and chrF, or other metrics, each with its signature.

    Outputs are the lines of a file, or those of a run for a test set: the given files, or the test
    set of its recipe. Differences from a baseline are marked if p < 0.05.

    Metrics of a run also include perplexity (of the references), aer (word alignments of the
    references against gold alignments) and attention-entropy (of the outputs).

    A language model is scored by perplexity per token, word and character, with at least half a
    context before each token; a masked one by the tokens it predicts behind fixed masks.

    Example: heedful evaluate runs/de-en --source test.de --target test.en

    Example: heedful evaluate --outputs out.txt --target test.en --metrics bleu,ter --confidence

    Example: heedful evaluate runs/new --baseline runs/old --group-by length

    Example: heedful evaluate runs/new --metrics perplexity,aer --gold-alignments gold.txt

    Example: heedful evaluate runs/shakespeare test.txt
    """
    named = EvaluationFiles(
        dict(files["test"]), outputs, baseline, training_targets, labels, gold_alignments
    )
    names = [name.strip() for name in metrics.split(",")] if metrics else []
    check_options(run, named, group_by, computes_aer="aer" in names)
    options = EvaluationOptions(names, group_by, confidence, beam, device)
    if run is None:
        _print(_score_files(named, options), as_json=as_json)
        return
    recipe, predictor = _load(str(run), options)
    if file is not None:
        named = _with_single_file(named, file, recipe)
    needs_references = {
        "--metrics": metrics,
        "--group-by": group_by,
        "--confidence": confidence,
        "--baseline": baseline,
    }
    check_supported(recipe.task, needs_references, beam=beam)
    score = _score_run if recipe.task.has_references else _score_model
    _print(score(predictor, recipe, named, options), as_json=as_json)


class EvaluationOptions(NamedTuple):
    """How to score."""

    metrics: Sequence[str]  # empty: the defaults of the task
    group_by: GroupBy | None
    confidence: bool
    beam_size: int | None
    device: str


class EvaluationResult(NamedTuple):
    """Scores and how they are printed."""

    title: str
    entries: list[ScoreEntry]
    tables: Sequence[str] = ()  # lines below the scores
    digits: int = 2


def _load(run: str, options: EvaluationOptions) -> tuple[Recipe, Any]:
    """Load a run; its recipe can be trusted because its files have been verified."""
    from heedful.runs import Run, load

    overrides = [f"decoding.beam_size={options.beam_size}"] if options.beam_size else []
    predictor = load(run, device=options.device, overrides=overrides)
    return Run(run).read_recipe(), predictor


def _with_single_file(named: EvaluationFiles, file: str, recipe: Recipe) -> EvaluationFiles:
    option, *others = recipe.task.file_options.options
    check(
        not others,
        "FILE",
        f"this run {recipe.task.description}",
        f"give {recipe.task.file_options.usage('test')}",
    )
    return named._replace(test={**named.test, option.name: file})


# ----- outputs against references


class FileOutputs(NamedTuple):
    """The lines of a file; the same for every metric."""

    texts: Sequence[str]

    def metric_inputs(self, metric: Metric) -> Sequence[str]:
        """Return the lines."""
        del metric
        return self.texts


def _score_files(files: EvaluationFiles, options: EvaluationOptions) -> EvaluationResult:
    from heedful.evaluation.registry import DEFAULT_METRICS, METRICS, MODEL_METRICS, get_metrics

    names = options.metrics or DEFAULT_METRICS
    metrics = get_metrics(names, location="--metrics", registry={**METRICS, **MODEL_METRICS})
    test = references_from_files(files)
    system = FileOutputs(read_matching_lines(str(files.outputs), test))
    return _score(metrics, system, test, files, options)


def _score_run(
    predictor: Any, recipe: Recipe, files: EvaluationFiles, options: EvaluationOptions
) -> EvaluationResult:
    from heedful.evaluation.registry import get_metrics

    task = recipe.task
    metrics = get_metrics(
        options.metrics or task.default_metrics,
        location="--metrics",
        registry=task.evaluation_metrics,
    )
    test = references_from_recipe(recipe, files.test)
    system = _run_outputs(recipe, predictor, test)
    result = _score(metrics, system, test, files, options)
    details = list(task.format_details(system, test.references))
    return result._replace(tables=[*result.tables, *details])


def _run_outputs(recipe: Recipe, predictor: Any, test: ReferenceSet) -> SystemOutputs:
    return recipe.task.build_outputs(
        predictor,
        test.sources or [],
        test.references,
        lambda predictions, total: with_progress(predictions, total=total),
    )


def _score(
    metrics: Sequence[Metric],
    system: SystemOutputs | FileOutputs,
    test: ReferenceSet,
    files: EvaluationFiles,
    options: EvaluationOptions,
) -> EvaluationResult:
    from heedful.evaluation.registry import METRICS
    from heedful.evaluation.score_table import score_outputs

    gold = read_matching_lines(files.gold_alignments, test) if files.gold_alignments else None
    breakdown = _build_breakdown(options.group_by, files, test)
    baseline = _load_baseline(files.baseline, test, options) if files.baseline else None
    entries = []
    for metric in metrics:
        is_aer = gold is not None and metric is METRICS["aer"]
        references: References = gold if gold is not None and is_aer else test.references
        lines = system.metric_inputs(metric)
        entry = score_outputs(
            metric,
            lines,
            references,
            baseline=baseline.metric_inputs(metric) if baseline else None,
            confidence=options.confidence,
        )
        groups = breakdown.score_groups(metric, lines, references) if breakdown else []
        entries.append(entry._replace(groups=groups))
    return _with_tables(EvaluationResult(test.title, entries), system, test, breakdown)


def _load_baseline(
    path: str, test: ReferenceSet, options: EvaluationOptions
) -> SystemOutputs | FileOutputs:
    if not Path(path).is_dir():
        return FileOutputs(read_matching_lines(path, test))
    check(test.sources is not None, "--baseline", "a run needs source texts", "add --source FILE")
    return _run_outputs(*_load(path, options), test)


def _with_tables(
    result: EvaluationResult,
    system: SystemOutputs | FileOutputs,
    test: ReferenceSet,
    breakdown: Breakdown | None,
) -> EvaluationResult:
    """Add the table of groups, and for --group-by word-frequency the recall of words."""
    from heedful.evaluation.breakdowns import WordFrequencyBreakdown, word_recall
    from heedful.evaluation.score_table import ScoreEntry, format_group_table

    if breakdown is None:
        return result
    entries = result.entries
    tables = ["", *format_group_table(breakdown.title, "outputs", entries)]
    if isinstance(breakdown, WordFrequencyBreakdown):
        groups = breakdown.recall_by_count(system.texts, test.references)
        recall = ScoreEntry(word_recall(system.texts, test.references), groups=groups)
        tables += ["", *format_group_table("count in training", "words", [recall])]
        entries = [*entries, recall]
    return result._replace(entries=entries, tables=tables)


def _build_breakdown(
    group_by: GroupBy | None, files: EvaluationFiles, test: ReferenceSet
) -> Breakdown | None:
    from heedful.data.text_files import read_lines
    from heedful.evaluation import breakdowns

    if group_by is None:
        return None
    if group_by == "word-frequency":
        path = files.training_targets
        texts = read_lines(path) if path else test.training_targets
        if texts is None:
            raise ConfigError(
                "--group-by word-frequency",
                "the training data is not known",
                "add --training-targets FILE with the target texts of training",
            )
        return breakdowns.WordFrequencyBreakdown(breakdowns.count_words(texts), test.references)
    if group_by == "sentence-type" and files.labels:
        return breakdowns.LabelBreakdown(read_matching_lines(files.labels, test))
    if test.sources is None:
        other = ", or --labels FILE" if group_by == "sentence-type" else ""
        raise ConfigError(
            f"--group-by {group_by}",
            "the source texts are not known",
            f"add --source FILE{other}",
        )
    by_source = {
        "length": breakdowns.LengthBreakdown,
        "sentence-type": breakdowns.SentenceTypeBreakdown,
    }
    return by_source[group_by](test.sources)


# ----- models without references


def _score_model(
    predictor: Any, recipe: Recipe, files: EvaluationFiles, options: EvaluationOptions
) -> EvaluationResult:
    from heedful.evaluation.score_table import ScoreEntry

    del options
    source = find_test_source(recipe, files.test)
    examples = source.read()
    scores = predictor.evaluate(examples)
    title = f"{len(examples)} {recipe.task.example_format.name} of {source.describe()}"
    return EvaluationResult(title, [ScoreEntry(score) for score in scores], digits=4)


# ----- printing


def _print(result: EvaluationResult, *, as_json: bool) -> None:
    with handle_stdout_errors():
        for line in _format_json(result.entries) if as_json else _format_text(result):
            typer.echo(line)


def _format_json(entries: Sequence[ScoreEntry]) -> Iterable[str]:
    from heedful.evaluation.score_table import entry_to_dict

    return [json.dumps([entry_to_dict(entry) for entry in entries], indent=2)]


def _format_text(result: EvaluationResult) -> Iterator[str]:
    from heedful.evaluation.score_table import format_entries

    yield result.title
    yield from format_entries(result.entries, digits=result.digits)
    yield from result.tables
