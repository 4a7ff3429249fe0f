"""heedful: sequence models that show where they look.

What the command line does, the library does in as few lines:

    heedful.train("latin-demo", "runs/demo")
    heedful.load("runs/demo").translate(["Caecilius est in horto."])

Importing heedful imports no torch; that happens when one of these is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heedful.version import VERSION

__version__ = VERSION
__all__ = ["__version__", "load", "train"]

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from heedful.experiment import TrainingResult


def load(
    run_dir: str | Path,
    *,
    device: str = "auto",
    overrides: Sequence[str] = (),
    ensemble_with: Sequence[str | Path] = (),
) -> Any:
    """Load a trained model from its run folder.

    It is a `Translator`, a `TextGenerator` (of a language model) or a `MaskFiller`. `overrides` such as
    "decoding.beam=10" change its settings; `ensemble_with` are runs that are asked together with it.
    """
    from heedful.runs import load as load_run

    return load_run(run_dir, device=device, overrides=overrides, ensemble_with=ensemble_with)


def train(
    recipe: str, output_dir: str | Path, *, overrides: Sequence[str] = (), device: str = "auto"
) -> TrainingResult:
    """Train by a recipe's name or file; `overrides` such as "training.max_steps=500" change it."""
    from heedful.experiment import train as train_into
    from heedful.recipes import load_recipe

    return train_into(load_recipe(recipe, overrides), output_dir, device=device)
