"""`heedful generate`: a text that goes on from a beginning."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.options import Device, RunFolder, handle_stdout_errors

_SEPARATOR = "\n----\n"


def generate(
    run: RunFolder,
    prompt: Annotated[
        str, typer.Argument(help="how the text begins; without it, on a new line", show_default="")
    ] = "",
    *,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="tokens to add")
    ] = 200,
    temperature: Annotated[
        float, typer.Option(min=0, help="above 1 bolder, below 1 safer; 0 takes the likeliest")
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="draw from so many of the likeliest tokens only")
    ] = None,
    top_p: Annotated[
        float, typer.Option(help="draw from the likeliest that together have this probability")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="the same seed gives the same text")] = 0,
    num_samples: Annotated[
        int, typer.Option("--num-samples", min=1, help="texts to write; ---- parts them")
    ] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="write to this file instead")
    ] = None,
    device: Device = "auto",
) -> None:
    """Write a text with a language model, token by token, from a beginning of yours.

    Example: heedful generate runs/shakespeare "To be" --max-new-tokens 400 --temperature 0.8

    Example: heedful generate runs/shakespeare --num-samples 5 --top-p 0.95 --seed 7 -o texts.txt
    """
    from heedful.runs import load_text_generator
    from heedful.storage import write_text
    from heedful.tasks.language_modeling.generator import build_sampling_options

    how = build_sampling_options(temperature=temperature, top_k=top_k, top_p=top_p)
    writer = load_text_generator(run, device=device)
    if num_samples == 1 and output is None:
        follows = writer.stream(prompt, max_new_tokens=max_new_tokens, options=how, seed=seed)
        _stream_to_stdout(chain([prompt], follows, ["\n"]))
        return
    texts = writer.generate_samples(
        prompt, num_samples, max_new_tokens=max_new_tokens, options=how, seed=seed
    )
    if output is not None:
        write_text(output, _SEPARATOR.join(texts) + "\n")
        typer.echo(f"wrote {output}", err=True)
        return
    with handle_stdout_errors():
        typer.echo(_SEPARATOR.join(texts))


def _stream_to_stdout(pieces: Iterable[str]) -> None:
    with handle_stdout_errors():
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
