"""Words that need no image: how much attention does a sentinel take from the image?

Claim: adaptive attention (Lu et al. 2017) looks at the image for words that depend on it, and at
its own memory for those that the words before determine. Measured: the mean weight of the sentinel
for each word of the captions that a run writes for its test images.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from experiments import heading, row
from heedful.errors import RunError
from heedful.inspection.figures import CaptionAttention
from heedful.recipes import load_recipe
from heedful.runs import load


class WordUse(NamedTuple):
    """A word in captions, and the share of attention that is not the image's."""

    word: str
    count: int
    sentinel_weight: float  # mean over its occurrences


def measure_words(captions: Iterable[CaptionAttention], min_count: int = 1) -> list[WordUse]:
    """Return the words of captions, the largest weight of the sentinel first."""
    weights: dict[str, list[float]] = defaultdict(list)
    for attention in captions:
        if attention.gates is None:
            hint = "name a run of adaptive-attention-2017 or another with the wiring 'adaptive'"
            raise RunError("sentinel", "this model has no sentinel", hint)
        for word, gate in zip(attention.words, attention.gates, strict=True):
            weights[word].append(1 - gate)
    uses = (WordUse(word, len(values), float(np.mean(values))) for word, values in weights.items())
    frequent = (use for use in uses if use.count >= min_count)
    return sorted(frequent, key=lambda use: -use.sentinel_weight)


def main(
    run: Annotated[Path, typer.Argument(help="folder written by `heedful train`")],
    *,
    num_images: Annotated[int, typer.Option(help="test images", min=1)] = 200,
    min_count: Annotated[int, typer.Option(help="leave out words that are rarer", min=1)] = 10,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "auto",
) -> None:
    """Print the weight of the sentinel for each word of the captions of test images.

    Example: python -m experiments.sentinel runs/adaptive --num-images 100
    """
    recipe = load_recipe(str(run / "config.yaml"))
    examples = islice(recipe.task.data.read_examples(recipe.data.test), num_images)
    captioner = load(run, device=device)
    captions = captioner.predict((example.source for example in examples), need_layers=True)
    typer.echo(heading(["word", "times", "weight of the sentinel"]))
    for use in measure_words((caption.attention for caption in captions), min_count):
        typer.echo(row([f"`{use.word}`", str(use.count), f"{use.sentinel_weight:.2f}"]))


if __name__ == "__main__":
    typer.run(main)
