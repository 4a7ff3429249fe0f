"""heedful: sequence models with attention in PyTorch.

    heedful.train("latin-demo", "runs/demo")
    heedful.load("runs/demo").translate(["Caecilius est in horto."])

Importing heedful does not import torch; the first call does.
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

    Its task decides the type: a `Translator`, `TextGenerator`, `MaskFiller` and so on.
    `overrides` such as "decoding.beam_size=10" change its settings; `ensemble_with` are further
    runs that form an ensemble with it.
    """
    from heedful.runs import load as load_run

    return load_run(run_dir, device=device, overrides=overrides, ensemble_with=ensemble_with)


def train(
    recipe: str, output_dir: str | Path, *, overrides: Sequence[str] = (), device: str = "auto"
) -> TrainingResult:
    """Train a recipe, by name or file; `overrides` such as "training.max_steps=500" change it.

    Ctrl-C raises KeyboardInterrupt after a checkpoint is saved; the same call resumes.
    """
    from heedful.experiment import load_training_recipe
    from heedful.experiment import train as train_into

    config = load_training_recipe(recipe, overrides, device)
    result = train_into(config, output_dir, device=device)
    if not result.stop_reason:
        raise KeyboardInterrupt(f"{output_dir}: saved at step {result.step}; the same call resumes")
    return result
