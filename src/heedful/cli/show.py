"""`heedful show`: where a model looked, word by word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import Beam, Device, RunFolder, writing_output
from heedful.cli.translations import to_json

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
    tree: Annotated[
        bool, typer.Option("--tree", help="draw the search for the first text instead")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON lines instead")] = False,
    device: Device = "auto",
) -> None:
    """Translate and draw where each word looked.

    Example: heedful show runs/demo "Caecilius est in horto." --html page.html

    Example: heedful show runs/demo "Caecilius est in horto." --tree --beam 3
    """
    from heedful.cli.translating import refuse_tree_of_drawn
    from heedful.runs import load_translator

    translator = load_translator(run, device=device)
    if tree:
        refuse_tree_of_drawn(translator.decoding)
    results = translator.translate(text, beam=beam, want_tree=tree)
    write_pictures(results, svg=svg, html=html)
    with writing_output():
        if as_json:
            for result in results:
                typer.echo(to_json(result, weights=True, tree=tree))
        elif tree:
            _draw_tree(results[0])
        else:
            draw(results)


def _draw_tree(result: Translation) -> None:
    from rich.console import Console

    from heedful.cli.search_tree import draw_tree

    Console().print(draw_tree(result))


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
