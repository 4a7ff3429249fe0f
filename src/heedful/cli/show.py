"""`heedful show`: where a model looked, word by word."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import Beam, Device, RunFolder, writing_output

if TYPE_CHECKING:
    from heedful.translator import Translation


def show(
    run: RunFolder,
    text: Annotated[list[str], typer.Argument(help="what to translate; several are allowed")],
    *,
    beam: Beam = None,
    svg: Annotated[Path | None, typer.Option(help="write a picture of the first text")] = None,
    html: Annotated[
        Path | None, typer.Option(help="write a page: hover a word to see where it looked")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON lines instead")] = False,
    device: Device = "auto",
) -> None:
    """Translate and draw where each word looked.

    Example: heedful show runs/demo "Caecilius est in horto." --html page.html
    """
    from heedful.runs import load_translator

    results = load_translator(run, device=device).translate(text, beam=beam)
    write_pictures(results, svg=svg, html=html)
    with writing_output():
        if as_json:
            from heedful.cli.translate import as_json as plain

            for result in results:
                typer.echo(json.dumps(plain(result), ensure_ascii=False))
        else:
            draw(results)


def draw(results: list[Translation]) -> None:
    """Draw translations in the terminal."""
    from rich.console import Console

    from heedful.inspection.terminal import terminal_heatmap

    console = Console()
    for result in results:
        console.print(f"\n[bold]{_plain(result.source)}[/]\n{_plain(result.text)}\n")
        untitled = replace(result.attention_map, title="")
        console.print(terminal_heatmap(untitled, width=console.width))


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def write_pictures(
    results: list[Translation], *, svg: Path | None = None, html: Path | None = None
) -> None:
    """Write the pictures that were asked for, and say where they are."""
    from heedful.inspection.heatmap import svg as draw_svg
    from heedful.inspection.report import html as draw_html
    from heedful.storage import write_text

    if svg:
        write_text(svg, draw_svg(results[0].attention_map))
    if html:
        write_text(
            html, draw_html([each.attention_map for each in results], title="Where it looked")
        )
    for path in filter(None, (svg, html)):
        typer.echo(f"wrote {path}", err=True)
