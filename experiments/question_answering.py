"""Questions answered in words: sums of number words, and Latin sentences.

Claim: a language model can answer questions, and a loss on the answers only, an encoder of its
own, a bidirectional one, attention and copying each improve it. Measured: the systems of
`answers/`, each of which changes one thing of the one before, are trained on the same data under
the same budget and compared by `heedful compare`, also on sums that are longer than those of
training or have other numbers, and on Latin names that are not in the training data.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from experiments import LAB, heading, row, save
from heedful.data.synthetic import get_corpus
from heedful.data.synthetic.corpus import OPERATORS
from heedful.data.text.pair_dataset import Pair
from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import METRICS
from heedful.plotting.charts import LineSeries, render_line_chart
from heedful.runs import load

FOLDER = Path(__file__).parent / "answers"
SYSTEMS = (
    *("language-model", "answer-loss", "encoder-decoder", "bidirectional"),
    *("attention", "copying"),
)
CORPUS = "arithmetic-gaps"
MAX_TRAINING_OPERATORS, MAX_OPERATORS = 3, 6


def compare(
    systems: Sequence[str], *, budget: str, seeds: int, device: str, folder: Path, parallel: bool
) -> Mapping[str, Sequence[str]]:
    """Train and compare the systems; return their run folders."""

    def command(names: Sequence[str]) -> list[str]:
        recipes = ",".join(str(FOLDER / f"{name}.yaml") for name in names)
        options = ["--data", str(FOLDER / "data.yaml"), "--recipes", recipes, "--budget", budget]
        options += ["--num-seeds", str(seeds), "--device", device, "--output-dir", str(folder)]
        return [sys.executable, "-m", "heedful", "compare", *options]

    if parallel:  # a comparison does not train again what others have trained in its folder
        processes = [
            subprocess.Popen(command([system]), stdout=subprocess.DEVNULL) for system in systems
        ]
        for process in processes:
            process.wait()
    subprocess.run(command(systems), check=True)
    comparison = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    return {system["name"]: system["runs"] for system in comparison["systems"]}


def sums_by_length(count: int) -> dict[int, list[Pair]]:
    """Return unseen sums by their number of operators."""
    sums: dict[int, list[Pair]] = {}
    for length in range(1, MAX_OPERATORS + 1):
        split = "test" if length <= MAX_TRAINING_OPERATORS else "longer"
        pairs = (p for p in get_corpus(CORPUS).pairs(split) if count_operators(p.source) == length)
        sums[length] = list(islice(pairs, count))
    return sums


def count_operators(source: str) -> int:
    """Return the number of operators of a sum in words."""
    return sum(word in OPERATORS for word in source.split())


def score_lengths(
    runs: Sequence[str], sums: Mapping[int, Sequence[Pair]], device: str
) -> dict[int, float]:
    """Return exact match by number of operators, the mean over runs."""
    predictors = [load(run, device=device) for run in runs]
    scores = {}
    for length, pairs in sums.items():
        sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        scores[length] = fmean(
            compute_score(
                METRICS["exact-match"],
                [prediction.text for prediction in predictor.predict(sources)],
                references,
            ).value
            for predictor in predictors
        )
    return scores


def main(
    *,
    output_dir: Annotated[Path, typer.Option(help="write the chart to images/ here")] = LAB,
    folder: Annotated[Path, typer.Option(help="runs and report of the comparison")] = Path(
        "comparison/question-answering"
    ),
    budget: Annotated[str, typer.Option(help="limit for each run, as in `heedful compare`")] = "5m",
    seeds: Annotated[int, typer.Option(help="number of seeds", min=1)] = 1,
    only: Annotated[list[str] | None, typer.Option(help="train this system; repeatable")] = None,
    num_sums: Annotated[int, typer.Option(help="sums per number of operators", min=1)] = 200,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "auto",
    parallel: Annotated[bool, typer.Option(help="train all systems at the same time")] = False,
) -> None:
    """Compare systems that answer questions in words; draw their scores against length.

    Example: python -m experiments.question_answering --budget 1m --only attention
    """
    systems = only or SYSTEMS
    runs = compare(
        systems, budget=budget, seeds=seeds, device=device, folder=folder, parallel=parallel
    )
    typer.echo((folder / "table.md").read_text(encoding="utf-8"))
    sums, lines = sums_by_length(num_sums), []
    typer.echo(heading(["operators", *map(str, sums)]))
    for system, folders in runs.items():
        scores = score_lengths(folders, sums, device)
        typer.echo(row([system, *(f"{score:.1f}" for score in scores.values())]))
        lines.append(LineSeries(system, list(scores.items())))
    border = [(MAX_TRAINING_OPERATORS, 0.0), (MAX_TRAINING_OPERATORS, 100.0)]
    lines.append(LineSeries("longest in training", border, dashed=True))
    chart = render_line_chart(
        lines,
        title="Exact match against length",
        x_label="operators",
        y_label="exact match, percent",
    )
    typer.echo(f"\nwrote {save(chart, output_dir, 'question-answering')}")


if __name__ == "__main__":
    typer.run(main)
