"""Quality against sequence length, with and without attention.

Claim: without attention the whole source must pass through one vector, so quality falls with
length; with attention it does not (Bahdanau et al. 2015, figure 2). Measured: systems that differ
only in their wiring, with about the same number of parameters, are trained for the same number of
steps to copy random letters and tested on words of every length, including lengths beyond the
training data. Alternatively, BLEU by source length of the outputs of other systems, read from
files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import torch
import typer
from typing_extensions import override

from experiments import LAB, heading, row, save
from experiments.copying import (
    MAX_TRAINING_LENGTH,
    SYSTEMS,
    WITH_ATTENTION,
    CopyOutputs,
    copy_words,
    largest_hidden_size,
    num_parameters,
    train_system,
)
from heedful.data.text_files import read_lines
from heedful.errors import DataError, HeedfulError, check, choices_hint, did_you_mean
from heedful.evaluation.base import Counts, Direction, Metric, SentenceMetric, compute_score
from heedful.evaluation.breakdowns import LengthBreakdown
from heedful.evaluation.registry import METRICS
from heedful.plotting.charts import LineSeries, render_line_chart

MAX_TEST_LENGTH = 24  # letters
TABLE_LENGTHS = (4, 6, 8, 10, 12, 14, 16, 17, 18, 20, 24)
GOOD = 90  # percent
LEARNING_RATE = 0.005


@dataclass(frozen=True)
class ReferenceTokenAccuracy(SentenceMetric):
    """Percentage of reference tokens that the output has at the same position."""

    name: str = "token accuracy"
    direction: Direction = "higher"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        reference = references[0].split()
        return sum(map(str.__eq__, output.split(), reference)), len(reference)

    @override
    def signature(self, references: Sequence[Sequence[str]]) -> str:
        return "by:position"


CHART_METRICS = {
    "Exact match": METRICS["exact-match"],
    "Token accuracy": ReferenceTokenAccuracy(),
}


def curve(copied: CopyOutputs, metric: Metric) -> dict[int, float]:
    """Return a metric at every length."""
    groups = LengthBreakdown(copied.sources, 1).score_groups(
        metric, copied.outputs, copied.references
    )
    return {int(group.name): group.score.value for group in groups if group.score is not None}


def mean(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean over seeds at every length."""
    return {length: fmean(values[length] for values in curves) for length in curves[0]}


def max_good_length(values: Mapping[int, float]) -> int:
    """Return the largest length up to which every score is good."""
    return max((n for n in values if min(values[m] for m in range(1, n + 1)) >= GOOD), default=0)


def print_copying(
    systems: Sequence[str], *, steps: int, seeds: int, learning_rate: float, num_words: int
) -> dict[str, str]:
    """Train the systems and print how well they copy; return charts by name."""
    outputs: dict[str, list[CopyOutputs]] = {}
    for system in systems:
        for seed in range(seeds):
            typer.echo(f"{system}, seed {seed + 1} of {seeds}", err=True)
            model = train_system(system, steps=steps, learning_rate=learning_rate, seed=seed)
            copied = copy_words(model, max_length=MAX_TEST_LENGTH, num_words=num_words)
            outputs.setdefault(system, []).append(copied)
        size = largest_hidden_size(system)
        typer.echo(f"{system}: hidden size {size}, {num_parameters(model):,} parameters")
    charts = zip(("length", "length-tokens"), CHART_METRICS.items(), strict=True)
    return {name: _print_metric(outputs, *metric) for name, metric in charts}


def _print_metric(outputs: Mapping[str, Sequence[CopyOutputs]], title: str, metric: Metric) -> str:
    typer.echo(f"\n{title} in percent, by number of letters:\n")
    typer.echo(heading(["letters", *map(str, TABLE_LENGTHS), f"at least {GOOD} up to"]))
    lines = []
    for system, runs in outputs.items():
        curves = [curve(run, metric) for run in runs]
        values = mean(curves)
        good = ", ".join(str(max_good_length(values)) for values in curves)
        typer.echo(row([system, *(f"{values[length]:.0f}" for length in TABLE_LENGTHS), good]))
        lines.append(LineSeries(system, list(values.items()), dashed=system not in WITH_ATTENTION))
    border = [(MAX_TRAINING_LENGTH, 0), (MAX_TRAINING_LENGTH, 100)]
    lines.append(LineSeries("longest in training", border, dashed=True))
    return render_line_chart(
        lines,
        title=f"{title} against length",
        x_label="letters",
        y_label=f"{title.lower()}, percent",
    )


def print_bleu(
    sources: str,
    references: str,
    outputs: Mapping[str, str],
    *,
    bin_width: int,
    min_sentences: int,
) -> str:
    """Print BLEU of files by source length; return a chart."""
    texts = {path: list(read_lines(path)) for path in (sources, references, *outputs.values())}
    _check_equal_lengths(texts)
    breakdown, bleu = LengthBreakdown(texts[sources], bin_width), METRICS["bleu"]
    bins, totals = {}, {}
    for name, path in outputs.items():
        bins[name] = breakdown.score_groups(
            bleu, texts[path], texts[references], min_size=min_sentences
        )
        totals[name] = compute_score(bleu, texts[path], texts[references])
    typer.echo(f"BLEU, {next(iter(totals.values())).signature}\n")
    typer.echo(heading(["words", "sentences", *bins]))
    for groups in zip(*bins.values(), strict=True):
        values = [f"{group.score.value:.1f}" if group.score else "too few" for group in groups]
        typer.echo(row([groups[0].name, str(groups[0].size), *values]))
    values = [f"{score.value:.1f}" for score in totals.values()]
    typer.echo(row(["all", str(len(texts[sources])), *values]))
    lines = []
    for name, groups in bins.items():
        points = [(breakdown.middles[g.name], g.score and g.score.value) for g in groups]
        lines.append(LineSeries(name, points))
    return render_line_chart(
        lines, title="BLEU against length", x_label="source words", y_label="BLEU"
    )


def _check_equal_lengths(texts: Mapping[str, Sequence[str]]) -> None:
    (first, expected), *others = texts.items()
    check(expected, first, "the file is empty", "give a file with text in it", DataError)
    for path, lines in others:
        message = f"{len(lines)} lines, but {first} has {len(expected)}"
        hint = "line n of all files must belong together"
        check(len(lines) == len(expected), path, message, hint, DataError)


def parse_outputs(outputs: Sequence[str]) -> dict[str, str]:
    """Split arguments such as NAME=FILE."""
    parts = [output.partition("=") for output in outputs]
    for output, (name, _, path) in zip(outputs, parts, strict=True):
        message = f"{output!r} is not NAME=FILE"
        check(name and path, "--outputs", message, "give a name for each file", DataError)
    return {name: path for name, _, path in parts}


def select_systems(names: Sequence[str]) -> list[str]:
    """Check that the systems exist; no names mean all of them."""
    for name in names:
        message = f"unknown system {name!r}{did_you_mean(name, SYSTEMS)}"
        check(name in SYSTEMS, "--only", message, choices_hint(SYSTEMS), DataError)
    return list(names or SYSTEMS)


def main(
    *,
    output_dir: Annotated[Path, typer.Option(help="write charts to images/ in this folder")] = LAB,
    steps: Annotated[int, typer.Option(help="training steps", min=1)] = 1000,
    seeds: Annotated[int, typer.Option(help="number of seeds", min=1)] = 3,
    learning_rate: Annotated[float, typer.Option(help="peak learning rate", min=0)] = LEARNING_RATE,
    num_words: Annotated[int, typer.Option(help="test words per length", min=1)] = 200,
    only: Annotated[list[str] | None, typer.Option(help="train this system; repeatable")] = None,
    sources: Annotated[str | None, typer.Option(help="file of source texts")] = None,
    references: Annotated[str | None, typer.Option(help="file of references")] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(help="outputs of a system, NAME=FILE; repeatable")
    ] = None,
    bin_width: Annotated[int, typer.Option(help="source lengths per bin", min=1)] = 5,
    min_sentences: Annotated[int, typer.Option(help="smallest bin to score", min=1)] = 20,
    chart: Annotated[str, typer.Option(help="name of the BLEU chart")] = "length-bleu",
) -> None:
    """Measure quality against length, of small systems that learn to copy or of text files.

    Example: python -m experiments.length --steps 500 --seeds 1

    Example: python -m experiments.length --sources test.en --references test.de --outputs a=a.de
    """
    torch.set_num_threads(1)
    try:
        if sources and references and outputs:
            files = parse_outputs(outputs)
            bleu_chart = print_bleu(
                sources, references, files, bin_width=bin_width, min_sentences=min_sentences
            )
            charts = {chart: bleu_chart}
        elif sources or references or outputs:
            hint = "give --sources, --references and --outputs together"
            raise DataError("experiments.length", "some files are missing", hint)
        else:
            systems = select_systems(only or [])
            typer.echo(
                f"torch {torch.__version__}, {steps} steps, learning rate {learning_rate}, "
                f"{seeds} seeds\n"
            )
            charts = print_copying(
                systems, steps=steps, seeds=seeds, learning_rate=learning_rate, num_words=num_words
            )
    except HeedfulError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(error.exit_code) from None
    typer.echo()
    for name, svg in charts.items():
        typer.echo(f"wrote {save(svg, output_dir, name)}")


if __name__ == "__main__":
    typer.run(main)
