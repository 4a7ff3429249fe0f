"""`heedful prepare`: tokenize training data of any size once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import (
    DEFAULT_RECIPE,
    Overrides,
    RecipeName,
    file_overrides,
    program_name,
    stderr_console,
    with_file_options,
)
from heedful.errors import check
from heedful.tasks.file_options import Files, Split

if TYPE_CHECKING:
    from heedful.recipes import Recipe
    from heedful.tokenization.tokenizer_pair import TokenizerPair


@with_file_options("train", "dev")
def prepare(
    recipe: RecipeName = DEFAULT_RECIPE,
    *,
    output_dir: Annotated[Path, typer.Option(help="folder to write the tokens to")],
    files: Mapping[Split, Files],
    tokenizer_from: Annotated[
        Path | None,
        typer.Option(help="use the tokenizers of this run or folder of tokens", metavar="RUN"),
    ] = None,
    num_workers: Annotated[
        int | None,
        typer.Option(min=1, help="processes that tokenize", show_default="one per core"),
    ] = None,
    shard_size: Annotated[
        int | None, typer.Option(min=1, help="pairs or lines per shard", show_default="250000")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Tokenize data that is larger than memory, once.

    The same command resumes an interrupted one and rebuilds only damaged shards. To train on the
    tokens, set `data.train: {type: prepared, path: FOLDER}` in a recipe that has the `tokenizers`
    and `data.filtering` they were made with.

    Example: heedful prepare --source train.de --target train.en --output-dir tokens/de-en
    """
    from heedful.data.dataset_builder import SHARD_SIZE
    from heedful.experiment import build_prepared_dataset
    from heedful.recipes import load_recipe
    from heedful.storage.atomic import lock_folder

    config = load_recipe(recipe, [*file_overrides(files), *(overrides or [])])
    _check_has_texts(config)
    with lock_folder(output_dir):
        prepared = build_prepared_dataset(
            config,
            output_dir,
            stderr_console(),
            tokenizers=_load_tokenizers(tokenizer_from, config),
            workers=num_workers,
            shard_size=shard_size or SHARD_SIZE,
        )
    num_shards, setting = len(prepared.shards), {"type": "prepared", "path": str(output_dir)}
    hint = f"train {quote(recipe)} --set {quote(f'data.train={json.dumps(setting)}')}"
    shards = f"{num_shards} shard{'s' if num_shards != 1 else ''}"
    typer.echo(f"{output_dir}: {shards}; try: {program_name()} {hint}")


def _check_has_texts(recipe: Recipe) -> None:
    from heedful.data.sharded_dataset import PreparedDataConfig

    train = recipe.data.train
    check(
        train is not None,
        "data.train",
        "the recipe names no training data",
        f"give {recipe.task.file_options.usage()}",
    )
    check(
        not isinstance(train, PreparedDataConfig),
        "data.train.type",
        "this data is already tokenized",
        "name the texts that the tokens were made from",
    )


def _load_tokenizers(folder: Path | None, recipe: Recipe) -> TokenizerPair | None:
    if folder is None:
        return None
    check(
        (folder / "tokenizers").is_dir(),
        "--tokenizer-from",
        f"there are no tokenizers in {folder}",
        "name a run, or a folder of tokens",
    )
    return recipe.tokenizers.load(folder / "tokenizers")
