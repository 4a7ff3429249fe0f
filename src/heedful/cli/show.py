"""Commands that draw: attention maps and search trees (`show`), a training run (`report`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from heedful.errors import RunError, check
from heedful.terminal import BeamSize, Device, RunFolder, handle_stdout_errors

if TYPE_CHECKING:
    from heedful.tasks.prediction import Prediction

SVGFile = Annotated[Path | None, Option(help="write a figure of the first text")]
HTMLFile = Annotated[Path | None, Option(help="write a page; hover over a word to see its weights")]
ShowTree = Annotated[
    bool, Option("--search-tree", help="draw the beam search for the first text instead")
]


def show(
    run: RunFolder,
    texts: Annotated[list[str], Argument(help="texts to predict for")],
    *,
    beam: BeamSize = None,
    svg: SVGFile = None,
    html: HTMLFile = None,
    show_tree: ShowTree = False,
    as_json: Annotated[bool, Option("--json", help="print JSON lines instead")] = False,
    device: Device = "auto",
) -> None:
    """Draw the attention weights of a model's outputs.

    Example: heedful show runs/demo "Caecilius est in horto." --html page.html

    Example: heedful show runs/demo "Caecilius est in horto." --search-tree --beam 3
    """
    from heedful.decoding.config import check_search_tree
    from heedful.runs import load

    overrides = [f"decoding.beam_size={beam}"] if beam else []
    if show_tree:
        translator = load(run, device=device, settings=overrides, task_name="translation")
        check_search_tree(translator.decoding, "--search-tree")
        trees = translator.translate(texts, need_tree=True)
        with handle_stdout_errors():
            if as_json:
                _print_json_lines(tree.to_json(tree=True) for tree in trees)
            else:
                from rich.console import Console

                from heedful.decoding.search_tree import render_tree

                Console().print(render_tree(trees[0]))
        return
    results = list(load(run, device=device, settings=overrides).predict(texts))
    has_weights = all(result.attention_map is not None for result in results)
    message = "its outputs have no attention weights to draw"
    hint = "name a run with attention over a source text"
    check(has_weights, str(run), message, hint, RunError)
    write_figures(results, svg=svg, html=html)
    with handle_stdout_errors():
        if as_json:
            _print_json_lines(result.to_json() for result in results)
        else:
            print_attention(results)


def _print_json_lines(objects: Iterable[object]) -> None:
    for fields in objects:
        typer.echo(json.dumps(fields, ensure_ascii=False))


def print_attention(results: Sequence[Prediction]) -> None:
    """Draw attention maps in the terminal."""
    from rich.console import Console
    from rich.markup import escape

    from heedful.inspection.attention_map import terminal_heatmap

    console = Console()
    for result in results:
        assert result.attention_map is not None
        title = result.attention_map.title
        console.print(f"\n[bold]{escape(title)}[/]\n{escape(result.text)}\n")
        untitled = replace(result.attention_map, title="")
        console.print(terminal_heatmap(untitled, width=console.width))


def write_figures(
    results: Sequence[Prediction], *, svg: Path | None = None, html: Path | None = None
) -> None:
    """Write figures, and print their paths."""
    from heedful.inspection.attention_map import render_html, render_svg
    from heedful.storage.atomic import write_text

    maps = [result.attention_map for result in results if result.attention_map is not None]
    if svg:
        write_text(svg, render_svg(maps[0]))
    if html:
        write_text(html, render_html(maps, title="Attention"))
    for path in filter(None, (svg, html)):
        typer.echo(f"wrote {path}", err=True)


def report(
    run: RunFolder,
    *,
    open_browser: Annotated[bool, Option("--open", help="open the page in a browser")] = False,
) -> None:
    """Write RUN/report.html: curves, samples with attention, configuration, environment.

    The page is one file that makes no network requests. During training, run the command again to
    update it.

    Example: heedful report runs/demo
    """
    import webbrowser

    from heedful.config.yaml_files import MAX_CHARACTERS
    from heedful.evaluation.registry import VALIDATION_METRICS
    from heedful.inspection.run_report import render_run_page
    from heedful.storage.atomic import write_text
    from heedful.storage.json_files import read_json_lines
    from heedful.storage.manifest import require_folder

    config, page = run / "config.yaml", run / "report.html"
    hint = "name a folder written by `heedful train`"
    require_folder(run, "run folder", hint, marker=config.name)
    with config.open(encoding="utf-8", errors="replace") as file:
        recipe_text = file.read(MAX_CHARACTERS)  # no recipe has more
    text = render_run_page(
        run.resolve().name,
        recipe_text,
        read_json_lines(run / "metrics.jsonl"),
        read_json_lines(run / "samples.jsonl"),
        metrics=VALIDATION_METRICS,
    )
    write_text(page, text)
    typer.echo(page)
    if open_browser and not webbrowser.open(page.resolve().as_uri()):
        typer.echo("no browser found; open the file yourself", err=True)
