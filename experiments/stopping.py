"""Learned stopping: do models of glimpses look longer at images that are harder?

Claim: a recurrent attention model that pays for each glimpse stops early where one glimpse is
enough (Mnih et al. 2014, section 3, name the variant). Measured: glimpses and errors of the most
probable actions, apart for both halves of the test images; in the harder half the true class is
less probable after the first glimpse.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from experiments import heading, row
from heedful.recipes import load_recipe
from heedful.runs import load
from heedful.tasks.glimpse.predictor import GlimpsePrediction


class StoppingResult(NamedTuple):
    """Mean glimpses of all images and of both halves, and errors in percent."""

    num_glimpses: float
    easy_glimpses: float
    hard_glimpses: float
    error_rate: float


def measure_stopping(predictions: Sequence[GlimpsePrediction]) -> StoppingResult:
    """Return what predictions of labeled images say; at the median an image counts as easy."""
    targets = np.array([prediction.target for prediction in predictions])
    counts = np.array([len(prediction.step_probabilities) for prediction in predictions])
    first, last = (
        np.stack([prediction.step_probabilities[index] for prediction in predictions])
        for index in (0, -1)
    )
    confidences = first[np.arange(len(targets)), targets]
    is_easy = confidences >= np.median(confidences)
    errors = 100 * (last.argmax(axis=1) != targets).mean()
    means = (counts.mean(), counts[is_easy].mean(), counts[~is_easy].mean(), errors)
    return StoppingResult(*map(float, means))


def main(
    runs: Annotated[list[Path], typer.Argument(help="folders written by `heedful train`")],
    *,
    images: Annotated[str | None, typer.Option(help="idx file; default: those of the run")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "auto",
) -> None:
    """Print how many glimpses runs take of test images, and their errors.

    Example: python -m experiments.stopping runs/stopping --images t10k-images-idx3-ubyte.xz
    """
    typer.echo(heading(["run", "glimpses", "easy half", "hard half", "error"]))
    for run in runs:
        classifier = load(run, device=device)
        data = load_recipe(str(run / "config.yaml")).data
        examples = classifier.read_file(images) if images else (data.test or data.dev).read()
        result = measure_stopping(list(classifier.classify(examples)))
        *means, error = result
        typer.echo(row([run.name, *(f"{mean:.2f}" for mean in means), f"{error:.2f} %"]))


if __name__ == "__main__":
    typer.run(main)
