"""`heedful translate`: as many lines out as went in."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import Beam, Device, RunFolder, Settings, watched, writing_output

if TYPE_CHECKING:
    from heedful.translator import Translation


def translate(
    run: RunFolder,
    file: Annotated[str, typer.Argument(help="texts, one on a line; - is standard input")] = "-",
    *,
    beam: Beam = None,
    attention: Annotated[
        Path | None, typer.Option(help="also write where each token looked, as JSON lines")
    ] = None,
    settings: Settings = None,
    device: Device = "auto",
) -> None:
    """Translate lines: as many come out as went in, in the same order.

    Example: heedful translate runs/demo sentences.txt --beam 5

    Example: echo "Caecilius est in horto." | heedful translate runs/demo
    """
    from heedful.data.lines import name_of, read_lines
    from heedful.runs import load_translator

    translator = load_translator(run, device=device, overrides=settings or ())
    stream = translator.stream(read_lines(file), beam=beam, origin=name_of(file))
    with _recording(attention) as record:
        for translation in stream if sys.stdout.isatty() else watched(stream):
            with writing_output():
                typer.echo(translation.text)
            record(translation)


@contextmanager
def _recording(path: Path | None) -> Iterator[Callable[[Translation], None]]:
    """Give a function that writes where a translation looked; it does nothing without a path."""
    if path is None:
        yield lambda translation: None
        return
    from heedful.storage import explaining_failures

    with explaining_failures(path), path.open("w", encoding="utf-8") as file:
        yield lambda translation: _write(translation, file.write)


def _write(translation: Translation, write: Callable[[str], object]) -> None:
    write(json.dumps(as_json(translation), ensure_ascii=False) + "\n")


def as_json(translation: Translation) -> dict[str, object]:
    """A translation as plain values."""
    return {
        "source": translation.source,
        "text": translation.text,
        "score": translation.score,
        "source_tokens": translation.source_tokens,
        "tokens": translation.tokens,
        "weights": translation.weights.round(6).tolist(),
    }
