"""`heedful generate`: sample text from a language model."""

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
        str, typer.Argument(help="beginning of the text; default: a new line", show_default="")
    ] = "",
    *,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="tokens to generate")
    ] = 200,
    temperature: Annotated[
        float, typer.Option(min=0, help="below 1 less random; 0 takes the most likely token")
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="sample among this many most likely tokens")
    ] = None,
    top_p: Annotated[
        float, typer.Option(help="sample among the most likely tokens with this total")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    num_samples: Annotated[
        int, typer.Option("--num-samples", min=1, help="number of texts; ---- separates them")
    ] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="write to this file instead")
    ] = None,
    device: Device = "auto",
) -> None:
    """Continue a prompt with a language model, token by token.

    Example: heedful generate runs/shakespeare "To be" --max-new-tokens 400 --temperature 0.8

    Example: heedful generate runs/shakespeare --num-samples 5 --top-p 0.95 --seed 7 -o texts.txt
    """
    from heedful.runs import load_text_generator
    from heedful.storage import write_text
    from heedful.tasks.language_modeling.generator import build_sampling_options

    options = build_sampling_options(temperature=temperature, top_k=top_k, top_p=top_p)
    generator = load_text_generator(run, device=device)
    if num_samples == 1 and output is None:
        pieces = generator.stream(prompt, max_new_tokens=max_new_tokens, options=options, seed=seed)
        _stream_to_stdout(chain([prompt], pieces, ["\n"]))
        return
    texts = generator.generate_samples(
        prompt, num_samples, max_new_tokens=max_new_tokens, options=options, seed=seed
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
