"""Given files: what a command line names instead of the recipe, as overrides of it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from heedful.errors import ConfigError

DEFAULT_RECIPE = "default"

RecipeName = Annotated[
    str, typer.Argument(help="a recipe's name (see `heedful recipes`) or a .yaml file")
]
SourceFile = Annotated[
    str | None, typer.Option(help="texts to read, one on a line; .gz and .xz too")
]
TargetFile = Annotated[str | None, typer.Option(help="texts to write, line by line")]
DevSourceFile = Annotated[
    str | None, typer.Option(help="texts to validate on; else some are held out")
]
DevTargetFile = Annotated[str | None, typer.Option(help="what should become of them")]
TextFile = Annotated[
    str | None, typer.Option(help="running text, for a language model; .gz and .xz too")
]
DevTextFile = Annotated[
    str | None, typer.Option(help="text to validate on; else the end is held out")
]


def given_files(
    *,
    source: str | None,
    target: str | None,
    dev_source: str | None,
    dev_target: str | None,
    text: str | None,
    dev_text: str | None,
) -> list[str]:
    """Every file that was named, to learn from and to validate on."""
    pairs = _pairs("train", source, target) + _pairs("dev", dev_source, dev_target)
    return pairs + _text("train", text) + _text("dev", dev_text)


def _pairs(split: str, source: str | None, target: str | None) -> list[str]:
    if source is None and target is None:
        return []
    if source is None or target is None:
        prefix = "--" if split == "train" else f"--{split}-"
        given, missing = ("source", "target") if target is None else ("target", "source")
        raise ConfigError(
            f"{prefix}{given}",
            f"given without {prefix}{missing}",
            f"add {prefix}{missing} FILE, whose lines belong to these",
        )
    names = {"kind": "files", "source": source, "target": target}
    return [f"data.{split}={json.dumps(names)}"]


def _text(split: str, path: str | None) -> list[str]:
    return [f"data.{split}={json.dumps({'kind': 'text', 'path': path})}"] if path else []
