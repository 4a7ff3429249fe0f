"""`heedful prepare`: from files of any size to tokens that are made once."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import (
    DEFAULT_RECIPE,
    DevSourceFile,
    DevTargetFile,
    DevTextFile,
    Overrides,
    RecipeName,
    SourceFile,
    TargetFile,
    TextFile,
    file_overrides,
    program_name,
    stderr_console,
)
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.recipes import Recipe
    from heedful.tokenization.tokenizer_pair import TokenizerPair


def prepare(
    recipe: RecipeName = DEFAULT_RECIPE,
    *,
    output_dir: Annotated[Path, typer.Option("--output-dir", help="folder to write the tokens to")],
    source: SourceFile = None,
    target: TargetFile = None,
    dev_source: DevSourceFile = None,
    dev_target: DevTargetFile = None,
    text: TextFile = None,
    dev_text: DevTextFile = None,
    tokenizer_from: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer-from",
            help="cut by the tokenizers of this run or folder of tokens",
            metavar="RUN",
        ),
    ] = None,
    num_workers: Annotated[
        int | None,
        typer.Option("--num-workers", min=1, help="processes that cut", show_default="one a core"),
    ] = None,
    shard_size: Annotated[
        int | None, typer.Option(min=1, help="pairs or lines in one shard", show_default="250000")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Cut data that is larger than memory into tokens, once.

    The same command goes on where it was interrupted, and makes anew only what is damaged. A
    recipe learns from the tokens with `data.train: {type: tokens, path: FOLDER}`; it must have
    the `text` and `data.filtering` they were made with.

    Example: heedful prepare --source train.de --target train.en --output-dir tokens/de-en
    """
    from heedful.data.dataset_builder import SHARD_SIZE
    from heedful.experiment import build_prepared_dataset
    from heedful.recipes import load_recipe
    from heedful.storage.atomic import lock_folder

    files = file_overrides(
        source=source,
        target=target,
        dev_source=dev_source,
        dev_target=dev_target,
        text=text,
        dev_text=dev_text,
    )
    chosen = load_recipe(recipe, [*files, *(overrides or [])])
    _check_has_text(chosen)
    with lock_folder(output_dir):
        prepared = build_prepared_dataset(
            chosen,
            output_dir,
            stderr_console(),
            tokenizers=_load_tokenizers(tokenizer_from, chosen),
            workers=num_workers,
            shard_size=shard_size or SHARD_SIZE,
        )
    _print_summary(recipe, output_dir, len(prepared.shards))


def _check_has_text(recipe: Recipe) -> None:
    from heedful.data.sharded_dataset import PreparedDataConfig

    if recipe.data.train is None:
        given = "--text FILE" if recipe.is_monolingual else "--source FILE --target FILE"
        problem = "the recipe does not say what to prepare"
        raise ConfigError("data.train", problem, f"give {given}")
    if isinstance(recipe.data.train, PreparedDataConfig):
        problem = "these are tokens already"
        raise ConfigError("data.train.type", problem, "name the texts that they were made of")


def _load_tokenizers(folder: Path | None, recipe: Recipe) -> TokenizerPair | None:
    if folder is None:
        return None
    if not (folder / "tokenizers").is_dir():
        problem = f"there are no tokenizers in {folder}"
        raise ConfigError("--tokenizer-from", problem, "name a run, or a folder of tokens")
    return recipe.tokenizers.load(folder / "tokenizers")


def _print_summary(recipe: str, folder: Path, num_shards: int) -> None:
    train = json.dumps({"type": "prepared", "path": str(folder)})
    shards = f"{num_shards} shard{'s' if num_shards != 1 else ''}"
    hint = f"{program_name()} train {quote(recipe)} --set {quote(f'data.train={train}')}"
    typer.echo(f"{folder}: {shards}; try: {hint}")
