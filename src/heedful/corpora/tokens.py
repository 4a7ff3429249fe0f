"""Tokens: corpora that do not fit into memory, made into files once and read from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from heedful.corpora.kinds import Corpora
from heedful.corpora.making import Part, pair_corpora, report_text, say_vocabulary, text_corpora
from heedful.data.building import (
    SHARD_SIZE,
    Builder,
    Building,
    cutting_facts,
    digest_of,
    first_difference,
)
from heedful.data.counting import Counting
from heedful.data.mixing import SeveralConfig
from heedful.data.prepared import TEXT, Prepared, TokensConfig, open_prepared
from heedful.errors import ConfigError, DataError
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.text.config import TextPair
from heedful.training.progress import say


def sources_of(recipe: Recipe) -> list[Any]:
    """The sources of what is learned from, one after the other."""
    train = recipe.data.train
    return [part.source for part in train.parts] if isinstance(train, SeveralConfig) else [train]


def weights_of(recipe: Recipe) -> list[float]:
    """How many times an epoch goes through each of them."""
    train = recipe.data.train
    return train.weights if isinstance(train, SeveralConfig) else [1.0]


def build_tokens(
    recipe: Recipe,
    folder: Path,
    console: Console,
    *,
    text: TextPair | None = None,
    workers: int | None = None,
    shard_size: int = SHARD_SIZE,
) -> Prepared:
    """Cut the data of a recipe into files, as far as that is not done, by this text or a new one.

    Only one process may do so in a folder; any number may read it.
    """
    sources = sources_of(recipe)
    _refuse_standard_input(sources, recipe)
    settings = Building(
        sources=[source.model_dump(mode="json") for source in sources],
        weights=weights_of(recipe),
        text=recipe.text,
        selection=None if recipe.is_of_text else recipe.data.selection,
        seed=recipe.training.seed,
        holds_out=recipe.data.dev is None,
        vocabulary_lines=recipe.data.vocabulary_lines,
        shard_size=shard_size,
    )
    with Counting(console) as watch:
        return Builder(
            folder,
            sources,
            settings,
            tell=lambda line: say(console, line),
            watch=watch,
            text=text,
            workers=workers,
        ).build()


def open_tokens(recipe: Recipe, config: TokensConfig) -> Prepared:
    """Open tokens that were made before, if they were made as the recipe would make them."""
    prepared = open_prepared(Path(config.path), verify=config.verify)
    if prepared.is_of_text != recipe.is_of_text:
        found, wanted = ("running text", "pairs") if prepared.is_of_text else ("pairs", "text")
        raise ConfigError(
            "data.train.path",
            f"{config.path} holds {found}, but a {recipe.model.kind} learns from {wanted}",
            "name other tokens, or choose another model",
        )
    text, selection = recipe.text, recipe.data.selection
    made = prepared.settings
    _refuse_other_cuts("text", prepared, made["text"], cutting_facts(text.model_dump(mode="json")))
    if not recipe.is_of_text:
        _refuse_other_cuts(
            "data.selection", prepared, made["selection"], selection.model_dump(mode="json")
        )
    return prepared


def prepared_corpora(recipe: Recipe, run: Run, prepared: Prepared, console: Console) -> Corpora:
    """Make corpora of tokens in files; a run that is only beginning takes their vocabulary."""
    if not run.exists:
        run.begin(recipe, recipe.text.load(prepared.folder / TEXT))
    elif digest_of(run.folder / TEXT) != digest_of(prepared.folder / TEXT):
        raise ConfigError(
            "data.train",
            f"the tokens in {prepared.folder} were cut by other tokenizers than {run.folder} has",
            "name another folder with --run, or prepare the tokens with `--text-of RUN`",
        )
    text = run.read_text(recipe)
    say_vocabulary(recipe, text, console)
    held_out: list[Any] = recipe.data.dev.read() if recipe.data.dev else prepared.held_out()
    if not held_out:
        raise ConfigError(
            "data.dev",
            f"{prepared.folder} holds nothing to validate on, and the recipe names nothing",
            "give what was given to `heedful prepare`, such as --dev-source FILE --dev-target FILE",
        )
    if recipe.is_of_text:
        row, counts = prepared.row(), {name: prepared.count(name) for name in ("lines", "unknown")}
        report_text("train", console, tokens=len(row), **counts)
        known = prepared.fingerprint
        return text_corpora(recipe, text, row, held_out, console, fingerprint=known)
    for line in prepared.report().lines():
        say(console, f"train: {line}")
    both = zip(prepared.parts(), prepared.weights, strict=True)
    parts = [Part(pairs, prepared.fingerprint, weight) for pairs, weight in both]
    return pair_corpora(recipe, text, parts, held_out, console)


def _refuse_standard_input(sources: list[Any], recipe: Recipe) -> None:
    for source in sources:
        if source.is_read_once:
            kind = "lines" if recipe.is_of_text else "pairs"
            raise DataError(
                source.describe(),
                f"more than {recipe.data.in_memory} {kind} have to be gone through twice, and "
                "standard input can be read only once",
                "write it to a file first, or raise data.in_memory",
            )


def _refuse_other_cuts(at: str, prepared: Prepared, found: Any, wanted: Any) -> None:
    if found != wanted:
        at, old, new = first_difference(found, wanted, at)
        raise ConfigError(
            at,
            f"the tokens in {prepared.folder} were made with {old}, but now it is {new}",
            "give the settings they were made with, or prepare them again into another folder",
        )
