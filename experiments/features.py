"""Language models as features of taggers that have few tagged sentences.

Claim: the states of a language model help a tagger, most where tagged sentences are few (Peters et
al. 2018). Measured: the recipe `bilstm-tagger` with and without the states of the models of
`language_models/`, which read text without tags, trained on parts of a CoNLL file.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import heedful
from experiments import LAB, heading, row, save
from heedful.data.text_files import read_lines
from heedful.plotting.charts import LineSeries, render_line_chart
from heedful.storage.atomic import write_text

FOLDER = Path(__file__).parent / "language_models"
LANGUAGE_MODELS = ("lstm", "masked")
PERCENTS = (1, 10, 100)
ENCODER = {"type": "recurrent", "cell": "lstm", "embedding_size": 256, "hidden_size": 512}
ENCODER |= {"num_layers": 2, "dropout": 0.5}  # as in the recipe
MIX, FINE_TUNED = {"pool": "scalar-mix"}, {"tune": "all"}
SYSTEMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "without": ("", {}),
    "LSTM, frozen, mixed layers": ("lstm", MIX),
    "masked, frozen, mixed layers": ("masked", MIX),
    "LSTM, frozen, last layer": ("lstm", {}),
    "masked, fine-tuned": ("masked", FINE_TUNED),
}


def write_part(conll: str, percent: int, folder: Path) -> Path:
    """Write a random part of the sentences of a file; larger parts contain smaller ones."""
    blocks = "\n".join(read_lines(conll)).strip().split("\n\n")
    order = random.Random(0).sample(range(len(blocks)), len(blocks))
    rows = sorted(order[: max(2, len(blocks) * percent // 100)])
    path = folder / f"train-{percent}.conllu"
    write_text(path, "\n\n".join(blocks[index] for index in rows) + "\n\n")
    return path


def tagger_settings(system: str, part: Path, dev: str, folder: Path) -> dict[str, Any]:
    """Return the settings that change the recipe: data, a budget for it, and the features."""
    percent = int(part.stem.removeprefix("train-"))
    epochs, max_tokens = (
        (150, 1500) if percent < 10 else (50, 3000) if percent < 100 else (12, 6000)
    )
    settings: dict[str, Any] = {
        "data.train": {"type": "conll", "path": str(part)},
        "data.dev": {"type": "conll", "path": dev},
        "training.max_epochs": epochs,
        "training.validate_every_epochs": epochs // 6,
        "training.patience": None,
        "training.batching.max_tokens": max_tokens,
    }
    name, features = SYSTEMS[system]
    if name:
        path = str(folder / name)
        encoder = {"type": "pretrained", "path": path, "dropout": 0.3, "encoder": ENCODER}
        settings["model.encoder"] = {**encoder, **features}
    if features is FINE_TUNED:  # by smaller steps
        slow = {"pattern": "*features.model.*", "lr_scale": 0.2}
        settings["training.optimizer.param_groups"] = [slow]
    return settings


def main(
    conll: Annotated[str, typer.Argument(help="tagged sentences to train on")],
    dev_conll: Annotated[str, typer.Argument(help="tagged sentences to validate on")],
    text: Annotated[str, typer.Argument(help="text without tags, for the language models")],
    *,
    output_dir: Annotated[Path, typer.Option(help="write the chart to images/ here")] = LAB,
    folder: Annotated[Path, typer.Option(help="parts of the file, and runs")] = Path(
        "runs/features"
    ),
    percent: Annotated[list[int] | None, typer.Option(help="train on this part")] = None,
    only: Annotated[list[str] | None, typer.Option(help="train this system; repeatable")] = None,
    max_minutes: Annotated[float, typer.Option(help="limit for each tagger")] = 4.2,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "auto",
) -> None:
    """Train taggers on parts of a CoNLL file with and without states of language models.

    Example: python -m experiments.features train.conllu dev.conllu text.txt --percent 1
    """
    systems, percents = only or list(SYSTEMS), percent or PERCENTS
    for name in LANGUAGE_MODELS:
        if any(SYSTEMS[system][0] == name for system in systems):
            heedful.train(str(FOLDER / f"{name}.yaml"), folder / name, text=text, device=device)
    parts = [write_part(conll, part, folder) for part in percents]
    lines = []
    for system in systems:
        points = []
        for part, path in zip(percents, parts, strict=True):
            settings = tagger_settings(system, path, dev_conll, folder)
            settings["training.max_minutes"] = max_minutes
            run = folder / f"{system.replace(', ', '-').replace(' ', '-').lower()}-{part}"
            result = heedful.train("bilstm-tagger", run, settings=settings, device=device)
            points.append((float(part), -100 * result.best_score))
        lines.append(LineSeries(system, points))
    typer.echo(heading(["states of a language model", *(f"{part} %" for part in percents)]))
    for line in lines:
        typer.echo(row([line.name, *(f"{accuracy:.2f}" for _, accuracy in line.valid_points)]))
    chart = draw(lines)
    typer.echo(f"\nwrote {save(chart, output_dir, 'features')}")


def draw(lines: list[LineSeries]) -> str:
    """Draw accuracy against the part of the sentences."""
    return render_line_chart(
        lines,
        title="Accuracy of parts of speech against tagged sentences",
        x_label="tagged sentences, percent",
        y_label="accuracy, percent",
        log_axes=(True, False),
    )


if __name__ == "__main__":
    typer.run(main)
