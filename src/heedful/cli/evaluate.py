"""Answers: what is there to be measured, by each metric, of a file or of a run?

A file is what it is: its lines are outputs, or whatever else a metric measures. A run is asked:
most metrics measure its outputs, others what it tells beside them. Law: a run is asked once for its
outputs, and once about the references, and only if a metric wants to know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

import typer

from heedful.cli.options import BeamSize, Device, handle_stdout_errors, with_progress
from heedful.cli.references import (
    EvaluationFiles,
    GroupBy,
    ReferenceSet,
    check_options,
    read_matching_lines,
    references_from_files,
    references_from_recipe,
    test_data_config,
)
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.decoding.requests import Request
    from heedful.decoding.translation import Translation
    from heedful.evaluation.base import Metric, References
    from heedful.evaluation.breakdowns import Breakdown
    from heedful.evaluation.score_table import ScoreEntry
    from heedful.recipes import Recipe
    from heedful.tasks.translation.translator import Translator


class SystemOutputs(Protocol):
    """What a system answered, as one line of text for each sentence."""

    @property
    def texts(self) -> Sequence[str]:
        """Its outputs."""
        ...

    def metric_inputs(self, metric: Metric) -> Sequence[str]:
        """What a metric measures."""
        ...


class FileOutputs(NamedTuple):
    """The lines of a file."""

    texts: Sequence[str]

    def metric_inputs(self, metric: Metric) -> Sequence[str]:
        """The same for every metric."""
        del metric
        return self.texts


class OutputRecord(NamedTuple):
    """What was said of one sentence: an output, or what was thought of a reference."""

    text: str
    log_probs: str
    entropies: str
    links: str


@dataclass
class RunOutputs:
    """A run, and what it is asked about."""

    translator: Translator
    test: ReferenceSet
    beam_size: int | None = None

    def metric_inputs(self, metric: Metric) -> Sequence[str]:
        """Outputs, how widely they looked, how likely references are, or which words they link."""
        from heedful.evaluation.registry import METRICS, MODEL_METRICS

        if metric is METRICS["aer"]:
            return _check_has_attention("aer", [records.links for records in self._references])
        if metric is MODEL_METRICS["attention-entropy"]:
            found = [records.entropies for records in self._outputs]
            return _check_has_attention("attention-entropy", found)
        if metric in MODEL_METRICS.values():
            return [records.log_probs for records in self._references]
        return self.texts

    @property
    def texts(self) -> Sequence[str]:
        """What it makes of the sources."""
        return [records.text for records in self._outputs]

    @cached_property
    def _outputs(self) -> list[OutputRecord]:
        return self._decode(self.test.sources or [], beam_size=self.beam_size)

    @cached_property
    def _references(self) -> list[OutputRecord]:
        from heedful.decoding.requests import Request

        pairs = zip(self.test.sources or [], self.test.references, strict=True)
        return self._decode([Request(source, target=choices[0]) for source, choices in pairs])

    def _decode(
        self, texts: Sequence[str | Request], *, beam_size: int | None = None
    ) -> list[OutputRecord]:
        stream: Iterable[Translation] = self.translator.stream(texts, beam_size=beam_size)
        return [_to_record(each) for each in with_progress(stream, total=len(texts))]


def _to_record(translation: Translation) -> OutputRecord:
    """Keep what metrics measure; weights would take far more room."""
    from heedful.decoding.word_alignment import ArgmaxAligner, format_pharaoh, word_alignment
    from heedful.evaluation.perplexity import attention_entropies, format_numbers

    return OutputRecord(
        translation.text,
        format_numbers(translation.log_probs),
        format_numbers(attention_entropies(translation.weights)),
        format_pharaoh(word_alignment(translation, ArgmaxAligner())),
    )


def _check_has_attention(name: str, lines: list[str]) -> list[str]:
    if not any(lines):
        raise ConfigError(
            "--metrics",
            f"{name} is told by attention, and this run looks nowhere",
            "leave it out, or measure a run that looks at its sources",
        )
    return lines


def load_outputs(
    path: str, test: ReferenceSet, *, beam_size: int | None, device: str
) -> SystemOutputs:
    """Read the lines of a file, or get a run ready to be asked."""
    if not Path(path).is_dir():
        return FileOutputs(read_matching_lines(path, test))
    if test.sources is None:
        raise ConfigError(
            "--baseline", "a run needs texts to translate", "name them, too: --source FILE"
        )
    from heedful.runs import load_translator

    return RunOutputs(load_translator(path, device=device), test, beam_size)


# `heedful evaluate`: how near outputs are to references, or how a text surprises a model.

_UNSET: tuple[None, Any] = (None, None)


def evaluate(
    run: Annotated[
        Path | None, typer.Argument(help="folder written by `heedful train`; not with --outputs")
    ] = None,
    file: Annotated[
        str | None, typer.Argument(help="running text, to measure a language model on")
    ] = None,
    *,
    outputs: Annotated[str | None, typer.Option(help="outputs of any system, line by line")] = None,
    source: Annotated[str | None, typer.Option(help="texts, one on a line")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="references, line by line; repeat it for more of them")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="names such as ter or rouge-l, parted by commas",
            show_default="exact-match,bleu,chrf",
        ),
    ] = None,
    gold_alignments: Annotated[
        str | None,
        typer.Option("--gold-alignments", help="for aer: links of the references that people made"),
    ] = None,
    group_by: Annotated[
        GroupBy | None, typer.Option("--group-by", help="also measure parts of the test set")
    ] = None,
    training_targets: Annotated[
        str | None,
        typer.Option(
            "--training-targets", help="for --group-by rare: target texts that were learned from"
        ),
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", help="for --group-by kind: a label for each line")
    ] = None,
    confidence: Annotated[bool, typer.Option("--confidence", help="add 95 % intervals")] = False,
    baseline: Annotated[
        str | None, typer.Option(help="outputs, or a run, to be compared with", metavar="FILE|RUN")
    ] = None,
    beam: BeamSize = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    device: Device = "auto",
) -> None:
    """Measure outputs: exact match, BLEU and chrF, or other metrics, each with its signature.

    Outputs are those in a file, or what a run makes of a test set; without files, of the recipe's
    own. A difference from a baseline is marked if equally good systems would differ as much less
    than once in 20 times.

    Beside its outputs a run can be measured by how likely it finds the references (perplexity), by
    which words of theirs it links (aer), and by how widely it looks as it writes
    (attention-entropy).

    Of a language model: perplexity per token, word (parted by white space) and character (line
    ends counted), each token predicted from at least half a context of text before it. Of a masked
    one: how well it finds tokens that are hidden, always the same.

    Example: heedful evaluate runs/de-en --source test.de --target test.en

    Example: heedful evaluate --outputs out.txt --target test.en --metrics bleu,ter --confidence

    Example: heedful evaluate runs/new --baseline runs/old --group-by length

    Example: heedful evaluate runs/new --metrics perplexity,aer --gold-alignments gold.txt

    Example: heedful evaluate runs/shakespeare test.txt
    """
    from heedful.evaluation.registry import DEFAULT_METRICS, METRICS, MODEL_METRICS, get_metrics

    names = [name.strip() for name in metrics.split(",")] if metrics else DEFAULT_METRICS
    measures = get_metrics(names, location="--metrics", registry={**METRICS, **MODEL_METRICS})
    files = EvaluationFiles(file, outputs, source, target or [], baseline, training_targets, labels)
    check_options(
        run, files, group_by, gold_alignments=gold_alignments, needs_alignments="aer" in names
    )
    recipe, loaded = _load(run, device) if run else _UNSET
    if recipe and recipe.is_monolingual:
        given = {"--metrics": metrics, "--group-by": group_by, "--confidence": confidence}
        _check_options_for_language_model({**given, "--baseline": baseline})
        _evaluate_language_model(loaded, recipe, files, as_json=as_json)
        return
    test = references_from_recipe(recipe, files) if recipe else references_from_files(files)
    links = read_matching_lines(gold_alignments, test) if gold_alignments else None
    breakdown = _make_breakdown(group_by, files, test)
    said = (
        FileOutputs(read_matching_lines(outputs, test))
        if outputs
        else RunOutputs(loaded, test, beam)
    )
    others = load_outputs(baseline, test, beam_size=beam, device=device) if baseline else None
    entries = []
    for measure in measures:
        wanted = _references_for(measure, test, links)
        entries.append(_score(measure, said, others, wanted, breakdown, confidence=confidence))
    entries += _rare_word_recall(said, test, breakdown)
    _print(_format_json(entries) if as_json else _format_text(entries, test, breakdown))


def _load(run: Path, device: str) -> tuple[Recipe, Any]:
    """Load a run, which holds its files against the manifest; then its recipe can be trusted."""
    from heedful.runs import Run, load

    loaded = load(run, device=device)
    return Run(run).read_recipe(), loaded


def _references_for(metric: Metric, test: ReferenceSet, links: Sequence[str] | None) -> References:
    """What answers are held against: references, or links of theirs."""
    from heedful.evaluation.registry import METRICS

    return links if links is not None and metric is METRICS["aer"] else test.references


def _score(
    metric: Metric,
    system_outputs: SystemOutputs,
    baseline_outputs: SystemOutputs | None,
    expected: References,
    breakdown: Breakdown | None,
    *,
    confidence: bool,
) -> ScoreEntry:
    from heedful.evaluation.score_table import score_outputs

    lines, baseline = (
        system_outputs.metric_inputs(metric),
        baseline_outputs.metric_inputs(metric) if baseline_outputs else None,
    )
    entry = score_outputs(metric, lines, expected, baseline=baseline, confidence=confidence)
    return entry._replace(
        groups=breakdown.score_groups(metric, lines, expected) if breakdown else []
    )


def _rare_word_recall(
    system_outputs: SystemOutputs, test: ReferenceSet, breakdown: Breakdown | None
) -> list[ScoreEntry]:
    """Where rare words are asked about, which of them were said."""
    from heedful.evaluation.breakdowns import (
        WordFrequencyBreakdown,
        recall_by_word_frequency,
        word_recall,
    )
    from heedful.evaluation.score_table import ScoreEntry

    if not isinstance(breakdown, WordFrequencyBreakdown):
        return []
    words = recall_by_word_frequency(
        system_outputs.texts, test.references, word_counts=breakdown.word_counts
    )
    return [ScoreEntry(word_recall(system_outputs.texts, test.references), groups=words)]


def _format_json(entries: Sequence[ScoreEntry]) -> Iterator[str]:
    from heedful.evaluation.score_table import entry_to_dict

    yield json.dumps([entry_to_dict(entry) for entry in entries], indent=2)


def _format_text(
    entries: Sequence[ScoreEntry],
    test: ReferenceSet,
    breakdown: Breakdown | None,
    *,
    digits: int = 2,
) -> Iterator[str]:
    from heedful.evaluation.breakdowns import WordFrequencyBreakdown
    from heedful.evaluation.score_table import format_entries, format_group_table

    yield test.title
    yield from format_entries(entries, digits=digits)
    if breakdown is None:
        return
    of_words = entries[-1:] if isinstance(breakdown, WordFrequencyBreakdown) else []
    yield ""
    yield from format_group_table(
        breakdown.title, "outputs", entries[: len(entries) - len(of_words)]
    )
    if of_words:
        yield ""
        yield from format_group_table("times a word was seen", "words", of_words)


def _print(lines: Iterable[str]) -> None:
    with handle_stdout_errors():
        for line in lines:
            typer.echo(line)


def _evaluate_language_model(
    loaded: Any, recipe: Recipe, files: EvaluationFiles, *, as_json: bool
) -> None:
    """Measure a language model, which has no outputs."""
    from heedful.evaluation.score_table import ScoreEntry

    chosen = test_data_config(recipe, files)
    lines: list[Any] = chosen.read()
    title = f"{len(lines)} lines of {chosen.describe()}"
    entries = [ScoreEntry(metric) for metric in loaded.evaluate(lines)]
    _print(
        _format_json(entries)
        if as_json
        else _format_text(entries, ReferenceSet(title, []), None, digits=4)
    )


def _make_breakdown(
    group_by: GroupBy | None, files: EvaluationFiles, test: ReferenceSet
) -> Breakdown | None:
    from heedful.data.text_files import read_lines
    from heedful.evaluation import breakdowns
    from heedful.evaluation.breakdowns import count_words

    if group_by == "word-frequency":
        seen = (
            read_lines(files.training_targets) if files.training_targets else test.training_targets
        )
        if seen is None:
            raise ConfigError(
                "--group-by rare",
                "it is not known what was learned from",
                "name the target texts of training: --training-targets FILE",
            )
        return breakdowns.WordFrequencyBreakdown(count_words(seen), test.references)
    if group_by == "sentence-type" and files.labels:
        return breakdowns.LabelBreakdown(read_matching_lines(files.labels, test))
    if group_by and test.sources is None:
        other = ", or give labels: --labels FILE" if group_by == "sentence-type" else ""
        raise ConfigError(
            f"--group-by {group_by}", "sources are not known", f"name them: --source FILE{other}"
        )
    chosen = {
        "length": breakdowns.LengthBreakdown,
        "sentence-type": breakdowns.SentenceTypeBreakdown,
    }
    return chosen[group_by](test.sources or []) if group_by else None


def _check_options_for_language_model(given_options: Mapping[str, object]) -> None:
    for option, value in given_options.items():
        if value:
            raise ConfigError(
                option,
                "this run is a language model, of which no outputs are measured",
                "leave it out",
            )
