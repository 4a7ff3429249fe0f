"""`heedful data`: list and print the synthetic corpora."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer

from heedful.cli.options import handle_stdout_errors


class Format(StrEnum):
    """Output formats."""

    TSV = "tsv"
    JSONL = "jsonl"


def data(
    name: Annotated[str | None, typer.Argument(help="corpus to print")] = None,
    *,
    split: Annotated[str, typer.Option(help="train, dev or test; latin also has names")] = "train",
    size: Annotated[int, typer.Option(min=1, help="number of pairs")] = 10,
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    output_format: Annotated[Format, typer.Option("--format", help="output format")] = Format.TSV,
) -> None:
    """List the synthetic corpora, or print pairs of one.

    Example: heedful data latin --split test --size 5

    Example: heedful data dates --size 100000 --format jsonl > dates.jsonl
    """
    from heedful.data.synthetic import SYNTHETIC_CORPORA, get_corpus

    with handle_stdout_errors():
        if name is None:
            for corpus in SYNTHETIC_CORPORA.values():
                splits = ", ".join(corpus.splits)
                typer.echo(f"{corpus.name:<12}{corpus.description} ({splits})")
            return
        for pair in islice(get_corpus(name).pairs(split, seed=seed), size):
            line = json.dumps(pair._asdict(), ensure_ascii=False)
            typer.echo(line if output_format is Format.JSONL else f"{pair.source}\t{pair.target}")
