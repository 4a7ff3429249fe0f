"""Beginnings: the first weights of a model, new or those of another run."""

from __future__ import annotations

from heedful.errors import ConfigError
from heedful.recipes import Recipe
from heedful.runs import Run

_AT = "training.initial"


def begin_from(initial: str, run: Run, recipe: Recipe) -> None:
    """Begin a run with the vocabulary of another, whose weights will be begun with."""
    other = Run(initial)
    other.verify()
    theirs = other.read_recipe()
    if theirs.text != recipe.text:
        raise ConfigError(
            f"{_AT}={initial}",
            "that run cuts text in another way, so its weights mean other tokens",
            "give the settings under `text` that its config.yaml has",
        )
    run.begin(recipe, other.read_text(theirs))
