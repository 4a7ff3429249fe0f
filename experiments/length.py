"""Does quality fall as sequences grow, and does attention keep it up?

The claim: without attention the whole source must pass through one vector, so long sentences come
out worse; with attention they do not (Bahdanau et al. 2015, figure 2). Measured: systems that
differ in their wiring alone, with about the same number of parameters, learn for the same number of
steps to copy random letters, and are then asked for words of every length, also of lengths beyond
those they have learned from. Given files of text, what other systems have written is measured in
the same way, by BLEU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

import torch
import typer

from experiments import LAB, heading, row, save
from experiments.copying import (
    ATTENDING,
    LEARNED,
    SYSTEMS,
    Written,
    learned,
    num_parameters,
    widest,
    write,
)
from heedful.data.text_files import read_lines
from heedful.errors import DataError, HeedfulError, choices_hint, did_you_mean
from heedful.evaluation.base import MetricScore
from heedful.evaluation.breakdowns import LengthBin, MetricFunction, scores_by_length
from heedful.evaluation.registry import bleu, exact_match
from heedful.plotting.charts import LineSeries, render_line_chart

LONGEST = 24  # letters in the longest word of testing
TOLD = (4, 6, 8, 10, 12, 14, 16, 17, 18, 20, 24)  # the lengths in the tables
GOOD = 90  # of 100
RATE = 0.005


# --- what is measured ----------------------------------------------------------------------


def tokens_right(outputs: Sequence[str], references: Sequence[str]) -> MetricScore:
    """The share of tokens that stand in the output where the reference has them."""
    pairs = [
        (output_projection.split(), ref.split())
        for output_projection, ref in zip(outputs, references, strict=True)
    ]
    right = sum(
        a == b
        for output_projection, ref in pairs
        for a, b in zip(output_projection, ref, strict=False)
    )
    return MetricScore("tokens right", 100 * right / sum(len(ref) for _, ref in pairs), "by:place")


MEASURES: dict[str, MetricFunction] = {
    "Whole outputs right": exact_match,
    "Tokens right": tokens_right,
}


def curve(written: Written, measure: MetricFunction) -> dict[int, float]:
    """A measure at every length."""
    found = {each.max_length: each.score for each in scores_by_length(*written, measure)}
    return {length: metric.value for length, metric in found.items() if metric is not None}


def mean(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean over seeds at every length."""
    return {length: fmean(each[length] for each in curves) for length in curves[0]}


def reach(values: Mapping[int, float]) -> int:
    """The length up to which nothing is worse than good."""
    return max((n for n in values if min(values[m] for m in range(1, n + 1)) >= GOOD), default=0)


# --- what is told --------------------------------------------------------------------------


def tell_copying(
    systems: Sequence[str], *, steps: int, seeds: int, rate: float, tested: int
) -> dict[str, str]:
    """Let systems learn, and print how well they copy; give charts by name."""
    written: dict[str, list[Written]] = {}
    for system in systems:
        for seed in range(seeds):
            typer.echo(f"{system}, seed {seed + 1} of {seeds}", err=True)
            model = learned(system, steps=steps, rate=rate, seed=seed)
            answers = write(model, longest=LONGEST, tested=tested)
            written.setdefault(system, []).append(answers)
        typer.echo(f"{system}: width {widest(system)}, {num_parameters(model):,} parameters")
    pictures = zip(("length", "length-tokens"), MEASURES.items(), strict=True)
    return {name: _tell_measure(written, *measure) for name, measure in pictures}


def _tell_measure(
    written: Mapping[str, Sequence[Written]], title: str, measure: MetricFunction
) -> str:
    typer.echo(f"\n{title}, of 100, by the number of letters:\n")
    typer.echo(heading(["letters", *map(str, TOLD), f"{GOOD} or more up to"]))
    lines = []
    for system, every in written.items():
        curves = [curve(each, measure) for each in every]
        values = mean(curves)
        reached = ", ".join(str(reach(each)) for each in curves)
        typer.echo(row([system, *(f"{values[length]:.0f}" for length in TOLD), reached]))
        lines.append(LineSeries(system, list(values.items()), dashed=system not in ATTENDING))
    lines.append(LineSeries("longest learned from", [(LEARNED, 0), (LEARNED, 100)], dashed=True))
    label = f"{title.lower()}, of 100"
    return render_line_chart(
        lines, title=f"{title} against length", x_label="letters", y_label=label
    )


def tell_texts(
    sources: str, references: str, outputs: Mapping[str, str], *, width: int, least: int
) -> str:
    """Measure files by BLEU and print it; give a chart."""
    texts = {path: list(read_lines(path)) for path in (sources, references, *outputs.values())}
    _refuse_unequal(texts)
    bins, whole = dict[str, list[LengthBin]](), dict[str, MetricScore]()
    for name, path in outputs.items():
        written = Written(texts[sources], texts[path], texts[references])
        bins[name] = scores_by_length(*written, bleu, width=width, min_group_size=least)
        whole[name] = bleu(written.outputs, written.references)
    typer.echo(f"BLEU, {next(iter(whole.values())).signature}\n")
    typer.echo(heading(["words", "sentences", *bins]))
    for same in zip(*bins.values(), strict=True):
        values = [f"{each.metric.value:.1f}" if each.metric else "too few" for each in same]
        typer.echo(row([same[0].name, str(same[0].size), *values]))
    values = [f"{metric.value:.1f}" for metric in whole.values()]
    typer.echo(row(["all", str(len(texts[sources])), *values]))
    lines = [
        LineSeries(name, [(each.middle, each.score and each.score.value) for each in found])
        for name, found in bins.items()
    ]
    return render_line_chart(
        lines, title="BLEU against length", x_label="words of the source", y_label="BLEU"
    )


def _refuse_unequal(texts: Mapping[str, Sequence[str]]) -> None:
    (first, lines), *others = texts.items()
    if not lines:
        raise DataError(first, "holds no lines", "give a file with text in it")
    for path, found in others:
        if len(found) != len(lines):
            problem = f"{len(found)} lines, but {first} has {len(lines)}"
            raise DataError(path, problem, "line n of all files must belong together")


# --- the command ---------------------------------------------------------------------------


def named_files(outputs: Sequence[str]) -> dict[str, str]:
    """Part names from files."""
    parted = [each.partition("=") for each in outputs]
    for each, (name, _, path) in zip(outputs, parted, strict=True):
        if not (name and path):
            raise DataError("--outputs", f"{each!r} is not NAME=FILE", "name what wrote the file")
    return {name: path for name, _, path in parted}


def known(systems: Sequence[str]) -> list[str]:
    """See that there are such systems; none named means all."""
    for each in systems:
        if each not in SYSTEMS:
            problem = f"no system is called {each!r}{did_you_mean(each, SYSTEMS)}"
            raise DataError("--only", problem, choices_hint(SYSTEMS))
    return list(systems or SYSTEMS)


def main(
    *,
    output_projection: Annotated[
        Path, typer.Option(help="the folder whose images/ the charts go to")
    ] = LAB,
    steps: Annotated[int, typer.Option(help="how long to learn", min=1)] = 1000,
    seeds: Annotated[int, typer.Option(help="how many to average over", min=1)] = 3,
    rate: Annotated[float, typer.Option(help="the largest learning rate", min=0)] = RATE,
    tested: Annotated[int, typer.Option(help="words of each length to copy", min=1)] = 200,
    select_beams: Annotated[
        list[str] | None, typer.Option(help="a system; if none is named, all")
    ] = None,
    sources: Annotated[str | None, typer.Option(help="texts that were read, by line")] = None,
    references: Annotated[str | None, typer.Option(help="what should be written, by line")] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(help="what a system wrote, as NAME=FILE; may be repeated")
    ] = None,
    width: Annotated[int, typer.Option(help="lengths of text that go together", min=1)] = 5,
    least: Annotated[int, typer.Option(help="fewest texts to measure together", min=1)] = 20,
    picture: Annotated[str, typer.Option(help="what to call the chart of texts")] = "length-bleu",
) -> None:
    """Measure quality against length: of small systems that learn to copy, or of files of text.

    Example: python -m experiments.length --steps 500 --num-seeds 1

    Example: python -m experiments.length --sources test.en --references test.de --outputs a=a.de
    """
    torch.set_num_threads(1)
    try:
        if sources and references and outputs:
            names = named_files(outputs)
            pictures = {picture: tell_texts(sources, references, names, width=width, least=least)}
        elif sources or references or outputs:
            remedy = "give --sources, --references and --outputs together"
            raise DataError("experiments.length", "some files are missing", remedy)
        else:
            systems = known(select_beams or [])
            typer.echo(f"torch {torch.__version__}, {steps} steps at {rate}, {seeds} seeds\n")
            pictures = tell_copying(systems, steps=steps, seeds=seeds, rate=rate, tested=tested)
    except HeedfulError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(error.exit_code) from None
    typer.echo()
    for name, drawn in pictures.items():
        typer.echo(f"wrote {save(drawn, output_projection, name)}")


if __name__ == "__main__":
    typer.run(main)
