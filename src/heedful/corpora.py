"""Corpora: the data of a run, read, cut into tokens and reported on."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console

from heedful.data.prepare import hold_out, tokenise
from heedful.data.records import Pair
from heedful.data.store import PairStore
from heedful.errors import ConfigError
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.text.config import TextPair
from heedful.training.progress import say


class Corpora(NamedTuple):
    """What is learned from and what is validated on, as tokens."""

    text: TextPair
    train: PairStore
    dev: PairStore


def read_corpora(recipe: Recipe, run: Run, console: Console) -> Corpora:
    """Read the data of a recipe; a run that is only beginning learns its vocabulary from it."""
    with console.status("reading the data"):
        learned, held_out = _read_pairs(recipe, console)
    if not run.exists:
        with console.status("learning the vocabulary"):
            sources = [pair.source for pair in learned]
            targets = [pair.target for pair in learned]
            run.begin(recipe, recipe.text.train(sources, targets))
    text = run.read_text(recipe)
    sizes = f"{len(text.source)} source and {len(text.target)} target tokens"
    say(console, f"vocabulary: {sizes}")
    return Corpora(
        text,
        _tokenised("train", learned, text, recipe, console),
        _tokenised("dev", held_out, text, recipe, console),
    )


def _read_pairs(recipe: Recipe, console: Console) -> tuple[list[Pair], list[Pair]]:
    data = recipe.data
    if data.train is None:
        raise ConfigError(
            "data.train",
            "the recipe does not say what to learn from",
            "give two files: --source FILE --target FILE",
        )
    say(console, f"reading {data.train.describe()}")
    pairs = data.train.read()
    if data.dev is not None:
        return pairs, data.dev.read()
    return hold_out(pairs, seed=recipe.training.seed, at=data.train.describe())


def _tokenised(
    name: str, pairs: list[Pair], text: TextPair, recipe: Recipe, console: Console
) -> PairStore:
    with console.status("cutting texts into tokens"):
        store, report = tokenise(pairs, text, recipe.data.selection, at=f"data.{name}")
    for line in report.lines():
        say(console, f"{name}: {line}")
    return store
