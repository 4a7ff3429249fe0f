"""`heedful prepare`: from files of any size to tokens that are made once."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.given import (
    DEFAULT_RECIPE,
    DevSourceFile,
    DevTargetFile,
    DevTextFile,
    RecipeName,
    SourceFile,
    TargetFile,
    TextFile,
    given_files,
)
from heedful.cli.options import Settings, command, stderr_console
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.recipes import Recipe
    from heedful.text.config import TextPair


def prepare(
    recipe: RecipeName = DEFAULT_RECIPE,
    *,
    to: Annotated[Path, typer.Option(help="folder to write the tokens to")],
    source: SourceFile = None,
    target: TargetFile = None,
    dev_source: DevSourceFile = None,
    dev_target: DevTargetFile = None,
    text: TextFile = None,
    dev_text: DevTextFile = None,
    text_of: Annotated[
        Path | None,
        typer.Option(help="cut by the tokenizers of this run or folder of tokens", metavar="RUN"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="processes that cut", show_default="one a core")
    ] = None,
    shard_size: Annotated[
        int | None, typer.Option(min=1, help="pairs or lines in one shard", show_default="250000")
    ] = None,
    settings: Settings = None,
) -> None:
    """Cut data that is larger than memory into tokens, once.

    The same command goes on where it was interrupted, and makes anew only what is damaged. A
    recipe learns from the tokens with `data.train: {kind: tokens, path: FOLDER}`; it must have
    the `text` and `data.selection` they were made with.

    Example: heedful prepare --source train.de --target train.en --to tokens/de-en
    """
    from heedful.corpora import build_tokens
    from heedful.data.building import SHARD_SIZE
    from heedful.recipes import load_recipe
    from heedful.training.locks import locked

    files = given_files(
        source=source,
        target=target,
        dev_source=dev_source,
        dev_target=dev_target,
        text=text,
        dev_text=dev_text,
    )
    chosen = load_recipe(recipe, [*files, *(settings or [])])
    _refuse_no_texts(chosen)
    with locked(to):
        prepared = build_tokens(
            chosen,
            to,
            stderr_console(),
            text=_text_of(text_of, chosen),
            workers=workers,
            shard_size=shard_size or SHARD_SIZE,
        )
    _say(recipe, to, len(prepared.shards))


def _refuse_no_texts(recipe: Recipe) -> None:
    from heedful.data.prepared import TokensConfig

    if recipe.data.train is None:
        given = "--text FILE" if recipe.is_of_text else "--source FILE --target FILE"
        problem = "the recipe does not say what to prepare"
        raise ConfigError("data.train", problem, f"give {given}")
    if isinstance(recipe.data.train, TokensConfig):
        problem = "these are tokens already"
        raise ConfigError("data.train.kind", problem, "name the texts that they were made of")


def _text_of(folder: Path | None, recipe: Recipe) -> TextPair | None:
    if folder is None:
        return None
    if not (folder / "text").is_dir():
        problem = f"there are no tokenizers in {folder}"
        raise ConfigError("--text-of", problem, "name a run, or a folder of tokens")
    return recipe.text.load(folder / "text")


def _say(recipe: str, folder: Path, num_shards: int) -> None:
    train = json.dumps({"kind": "tokens", "path": str(folder)})
    shards = f"{num_shards} shard{'s' if num_shards != 1 else ''}"
    hint = f"{command()} train {quote(recipe)} --set {quote(f'data.train={train}')}"
    typer.echo(f"{folder}: {shards}; try: {hint}")
