"""`heedful data`: the corpora that heedful makes itself."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer

from heedful.cli.options import handle_stdout_errors


class Format(StrEnum):
    """How pairs are printed."""

    TSV = "tsv"
    JSONL = "jsonl"


def data(
    name: Annotated[str | None, typer.Argument(help="print pairs of this corpus")] = None,
    *,
    split: Annotated[str, typer.Option(help="train, dev, test; latin has names too")] = "train",
    size: Annotated[int, typer.Option(min=1, help="how many pairs")] = 10,
    seed: Annotated[int, typer.Option(help="the same seed gives the same pairs")] = 0,
    output_format: Annotated[Format, typer.Option("--format", help="how to print")] = Format.TSV,
) -> None:
    """List the built-in corpora, or print as many pairs of one as you like.

    Example: heedful data latin --split test --size 5

    Example: heedful data dates --size 100000 --format jsonl > dates.jsonl
    """
    from heedful.data.synthetic import SYNTHETIC_CORPORA, get_corpus

    with handle_stdout_errors():
        if name is None:
            for each in SYNTHETIC_CORPORA.values():
                typer.echo(f"{each.name:<12}{each.description} ({', '.join(each.splits)})")
            return
        for pair in islice(get_corpus(name).pairs(split, seed=seed), size):
            line = json.dumps(pair._asdict(), ensure_ascii=False)
            typer.echo(line if output_format is Format.JSONL else f"{pair.source}\t{pair.target}")
