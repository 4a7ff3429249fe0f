"""`heedful evaluate`: score the outputs of a run or a file against references.

Of a run whose task has no references, such as a language model, it prints the model's own scores.
Options that would have no effect are rejected before anything is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from typer import Argument, Option

from heedful.cli.options import GoldAlignments, with_file_options
from heedful.errors import ConfigError, check
from heedful.tasks.command_line import EnsembleWith, Files, Split
from heedful.tasks.registry import all_file_options
from heedful.terminal import (
    AsJSON,
    Backend,
    BeamSize,
    Device,
    Dtype,
    DtypeName,
    Overrides,
    backend_overrides,
    echo,
    handle_stdout_errors,
    page_option,
    save_text,
    with_progress,
)

if TYPE_CHECKING:
    from heedful.evaluation.base import Metric
    from heedful.evaluation.breakdowns import Breakdown
    from heedful.evaluation.score_table import ScoreEntry
    from heedful.experiment.test_sets import ReferenceSet
    from heedful.recipes import Recipe
    from heedful.tasks.evaluation import SystemOutputs

RunFolder = Annotated[
    Path | None, Argument(help="folder written by `heedful train`; not with --outputs")
]
_FILE_FLAGS = (options.single_file.flag("test") for options in all_file_options())
TestFile = Annotated[
    str | None, Argument(help=f"test file of the run's task: as {', '.join(_FILE_FLAGS)}")
]
OutputsFile = Annotated[str | None, Option(help="outputs of any system, line by line")]
MetricNames = Annotated[
    str | None,
    Option(
        "--metrics",
        "--metric",
        help="comma-separated, such as ter,rouge-l",
        show_default="bleu,chrf,exact-match",
    ),
]
GroupName = Literal["length", "word-frequency", "sentence-type"]
GroupBy = Annotated[GroupName | None, Option(help="also score groups of the test set")]
TrainingTargets = Annotated[
    str | None, Option(help="for --group-by word-frequency: target texts of training")
]
Labels = Annotated[str | None, Option(help="for --group-by sentence-type: one label per line")]
Confidence = Annotated[bool, Option("--confidence", help="add 95 % intervals")]
Baseline = Annotated[
    str | None, Option(help="outputs or a run to compare with", metavar="FILE|RUN")
]

HTMLFile = Annotated[
    Path | None, page_option("write a page: confusions of labels or tags, calibration of forecasts")
]


@with_file_options("test")
def evaluate(
    run: RunFolder = None,
    file: TestFile = None,
    *,
    files: Mapping[Split, Files],
    ensemble_with: EnsembleWith = None,
    outputs: OutputsFile = None,
    metrics: MetricNames = None,
    gold_alignments: GoldAlignments = None,
    group_by: GroupBy = None,
    training_targets: TrainingTargets = None,
    labels: Labels = None,
    confidence: Confidence = False,
    baseline: Baseline = None,
    beam: BeamSize = None,
    html: HTMLFile = None,
    backend: Backend = None,
    overrides: Overrides = None,
    as_json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = "fp32",
) -> None:
    """Score outputs: exact match, BLEU and chrF, or other metrics, each with its signature.

    Outputs are the lines of a file, or those of a run for a test set: the given files, or the test
    set of its recipe. Differences from a baseline are marked if p < 0.05.

    Metrics of a run also include perplexity (of the references), aer, alignment-precision and
    alignment-recall (word alignments of the references against gold alignments),
    attention-entropy (of the outputs), and exact-match@5 and @10 (any of so many outputs).
    A language model is scored by perplexity per token, word and character, with at least half a
    context before each token; a masked one by the tokens it predicts behind fixed masks.

    Example: heedful evaluate runs/de-en --source test.de --target test.en
    Example: heedful evaluate --outputs out.txt --target test.en --metrics bleu,ter
    Example: heedful evaluate runs/new --baseline runs/old --group-by length --confidence
    Example: heedful evaluate runs/new --metrics aer --gold-alignments gold.txt
    Example: heedful evaluate runs/shakespeare test.txt
    Example: heedful evaluate runs/trec-1 --ensemble-with runs/trec-2 test.tsv
    Example: heedful evaluate runs/pos dev.conllu --html confusions.html
    Example: heedful evaluate runs/flights flights.csv --html calibration.html
    """
    options = EvaluationOptions(
        files=dict(files["test"]),
        ensemble_with=ensemble_with or (),
        outputs=outputs,
        baseline=baseline,
        training_targets=training_targets,
        labels=labels,
        gold_alignments=gold_alignments,
        metrics=[name.strip() for name in metrics.split(",")] if metrics else [],
        group_by=group_by,
        confidence=confidence,
        beam_size=beam,
        html=html,
        overrides=(*(overrides or ()), *backend_overrides(backend)),
        device=device,
        dtype=dtype,
    )
    _evaluate(run, file, options, as_json=as_json)


@dataclass(frozen=True)
class EvaluationOptions:
    """The options of `evaluate`."""

    files: Files
    ensemble_with: Sequence[Path]
    outputs: str | None
    baseline: str | None
    training_targets: str | None
    labels: str | None
    gold_alignments: str | None
    metrics: Sequence[str]  # empty: the defaults of the task
    group_by: GroupName | None
    confidence: bool
    beam_size: int | None
    html: Path | None
    overrides: Sequence[str]
    device: str
    dtype: DtypeName


def _evaluate(
    run: Path | None, file: str | None, options: EvaluationOptions, *, as_json: bool
) -> None:
    _check_options(options, has_run=run is not None)
    result = _score_files(options) if run is None else _score_run(str(run), file, options)
    with handle_stdout_errors():
        for line in result.format_lines(as_json=as_json):
            echo(line)


class EvaluationResult(NamedTuple):
    """Scores and how they are printed."""

    title: str
    entries: list[ScoreEntry]
    tables: Sequence[str] = ()  # lines below the scores
    digits: int = 2

    def format_lines(self, *, as_json: bool) -> list[str]:
        """Return the lines that `evaluate` prints."""
        from heedful.evaluation.score_table import entry_to_dict, format_entries

        if as_json:
            return [json.dumps([entry_to_dict(entry) for entry in self.entries], indent=2)]
        return [self.title, *format_entries(self.entries, digits=self.digits), *self.tables]


def _check_options(options: EvaluationOptions, *, has_run: bool) -> None:
    outputs, targets = options.outputs, options.files.get("target") or options.files.get("pairs")
    gold = options.gold_alignments
    paths = [outputs, options.baseline, options.training_targets, options.labels, gold]
    for value in options.files.values():
        paths += value if isinstance(value, list) else [value]
    hint = "name a run, or give files: heedful evaluate --outputs FILE --target FILE"
    check(has_run or outputs, "RUN", "there is nothing to evaluate", hint)
    message = "given together with a run, which has outputs of its own"
    hint = "leave out one of them; to compare them: --baseline FILE"
    check(not (has_run and outputs), "--outputs", message, hint)
    hint = "add --target FILE with the references"
    check(not outputs or targets, "--outputs", "given without --target", hint)
    message, hint = "works only with a run", "name a run, or leave it out"
    check(has_run or not options.ensemble_with, "--ensemble-with", message, hint)
    check(has_run or not options.html, "--html", message, hint)
    dtype = None if options.dtype == "fp32" else options.dtype
    run_options = {"--beam": options.beam_size, "--set": options.overrides, "--dtype": dtype}
    for option, value in run_options.items():
        check(has_run or options.baseline or not value, option, message, hint)
    hint = "give alignments as outputs: --outputs LINKS --target GOLD --metrics aer"
    check(not gold or has_run, "--gold-alignments", message, hint)
    if has_run:
        from heedful.experiment.test_sets import check_gold_alignments

        check_gold_alignments(options.metrics, gold)
    message = "standard input can only be one of the files"
    check(paths.count("-") < 2, "-", message, "name a file for the others")
    for option, value, group in (
        ("--training-targets", options.training_targets, "word-frequency"),
        ("--labels", options.labels, "sentence-type"),
    ):
        message = f"works only with --group-by {group}"
        hint = f"add --group-by {group}, or leave it out"
        check(not value or options.group_by == group, option, message, hint)


# ----- outputs against references


class FileOutputs(NamedTuple):
    """The lines of a file; the same for each metric."""

    texts: Sequence[str]

    def metric_inputs(self, metric: Metric) -> Sequence[str]:
        """Return the lines."""
        return self.texts


def _score_files(options: EvaluationOptions) -> EvaluationResult:
    from heedful.evaluation.registry import ALL_METRICS, DEFAULT_METRICS, get_metrics
    from heedful.experiment import test_sets

    names = options.metrics or DEFAULT_METRICS
    metrics = get_metrics(names, location="--metrics", registry=ALL_METRICS)
    test = test_sets.references_from_files(options.files, str(options.outputs))
    system = FileOutputs(test_sets.read_matching_lines(str(options.outputs), test))
    return _score(metrics, system, test, options)


def _score_run(run: str, file: str | None, options: EvaluationOptions) -> EvaluationResult:
    from heedful.evaluation.registry import get_metrics
    from heedful.evaluation.score_table import ScoreEntry
    from heedful.experiment import test_sets

    recipe, predictor = _load(run, options, *options.ensemble_with)
    task, evaluation, files = recipe.task, recipe.task.evaluation, options.files
    if file is not None:
        files = {**files, task.data.file_options.single_file.name: file}
    needs_references = {
        "--metrics": options.metrics,
        "--group-by": options.group_by,
        "--confidence": options.confidence,
        "--baseline": options.baseline,
    }
    test_sets.check_supported(task, needs_references, beam=options.beam_size)
    message, hint = f"has no effect: this run {task.description}", "leave it out"
    check(evaluation.draws_page or not options.html, "--html", message, hint)
    if not evaluation.has_references:
        title, examples = test_sets.read_test_set(recipe, files)
        entries = [ScoreEntry(score) for score in predictor.evaluate(examples)]
        if options.html:
            save_text(options.html, evaluation.render_page(predictor, examples, title))
        return EvaluationResult(title, entries, digits=4)
    registry = evaluation.test_metrics
    get_metrics(options.metrics, location="--metrics", registry=registry)  # before reading
    test = test_sets.references_from_recipe(recipe, files)
    names = test_sets.metric_names(recipe, options.metrics, test)
    system = _run_outputs(recipe, predictor, test)
    result = _score(get_metrics(names, registry=registry), system, test, options)
    confusion = evaluation.confusion(system) if options.html else None
    if options.html and confusion:
        save_text(options.html, confusion.render_page(f"Confusions: {result.title}"))
    return result._replace(tables=[*result.tables, *evaluation.format_details(system)])


def _load(run: str, options: EvaluationOptions, *others: Path) -> tuple[Recipe, Any]:
    """Load a run; its recipe can be trusted because its files have been verified."""
    from heedful.runs import Run, load

    beam = [f"decoding.beam_size={options.beam_size}"] if options.beam_size else []
    overrides = [*options.overrides, *beam]
    predictor = load(
        run, device=options.device, dtype=options.dtype, settings=overrides, ensemble_with=others
    )
    return Run.open(run).read_recipe(overrides), predictor


def _run_outputs(recipe: Recipe, predictor: Any, test: ReferenceSet) -> SystemOutputs:
    return recipe.task.evaluation.system_outputs(
        predictor,
        test.sources or [],
        test.references,
        lambda predictions, total: with_progress(predictions, total=total),
    )


def _score(
    metrics: Sequence[Metric],
    system: SystemOutputs | FileOutputs,
    test: ReferenceSet,
    options: EvaluationOptions,
) -> EvaluationResult:
    from heedful.evaluation import breakdowns
    from heedful.evaluation.registry import compared_texts
    from heedful.evaluation.score_table import ScoreEntry, format_group_table, score_outputs
    from heedful.experiment.test_sets import read_matching_lines

    gold_file = options.gold_alignments
    gold = read_matching_lines(gold_file, test) if gold_file else None
    breakdown = _build_breakdown(options, test)
    baseline = _load_baseline(options.baseline, test, options) if options.baseline else None
    entries = []
    for metric in metrics:
        references = compared_texts(metric, test.references, test.sources, gold)
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
    if breakdown is None:
        return EvaluationResult(test.title, entries)
    tables = ["", *format_group_table(breakdown.title, "outputs", entries)]
    if isinstance(breakdown, breakdowns.WordFrequencyBreakdown):
        groups = breakdown.recall_by_count(system.texts, test.references)
        recall = breakdowns.word_recall(system.texts, test.references)
        entries.append(ScoreEntry(recall, groups=groups))
        tables += ["", *format_group_table("count in training", "words", entries[-1:])]
    return EvaluationResult(test.title, entries, tables)


def _load_baseline(
    path: str, test: ReferenceSet, options: EvaluationOptions
) -> SystemOutputs | FileOutputs:
    from heedful.experiment.test_sets import read_matching_lines

    if not Path(path).is_dir():
        return FileOutputs(read_matching_lines(path, test))
    check(test.sources is not None, "--baseline", "a run needs source texts", "add --source FILE")
    return _run_outputs(*_load(path, options), test)


def _build_breakdown(options: EvaluationOptions, test: ReferenceSet) -> Breakdown | None:
    from heedful.data.text_files import read_lines
    from heedful.evaluation import breakdowns
    from heedful.experiment.test_sets import read_matching_lines

    group_by = options.group_by
    if group_by is None:
        return None
    if group_by == "word-frequency":
        path = options.training_targets
        texts = read_lines(path) if path else test.training_targets
        if texts is None:
            hint = "add --training-targets FILE with the target texts of training"
            raise ConfigError("--group-by word-frequency", "the training data is not known", hint)
        return breakdowns.WordFrequencyBreakdown(breakdowns.count_words(texts), test.references)
    if group_by == "sentence-type" and options.labels:
        return breakdowns.LabelBreakdown(read_matching_lines(options.labels, test))
    if test.sources is None:
        other = ", or --labels FILE" if group_by == "sentence-type" else ""
        raise ConfigError(
            f"--group-by {group_by}", "the source texts are not known", f"add --source FILE{other}"
        )
    if group_by == "length":
        return breakdowns.LengthBreakdown(test.sources)
    return breakdowns.SentenceTypeBreakdown(test.sources)
