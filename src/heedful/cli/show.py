"""Commands that draw: attention maps and search trees (`show`), a training run (`report`)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from heedful.errors import RunError, check
from heedful.inspection.attention_map import AttentionMap, FigureForm
from heedful.terminal import (
    BeamSize,
    Device,
    RunFolder,
    echo,
    figure_option,
    handle_stdout_errors,
    page_option,
)

if TYPE_CHECKING:
    from heedful.attention.edits import AttentionEdit
    from heedful.inspection.attention_selection import AttentionSelection

FigureFiles = Annotated[list[Path] | None, figure_option("write a figure of the first text")]
Kinds = Annotated[
    list[str] | None,
    Option(
        "--kind",
        help="cross, encoder-self, decoder-self, encoder-intra, copy ..., or all; repeatable",
        show_default="the attention to the source",
    ),
]
_NUMBERS = "numbers such as 2 or 1,3 or 2-4, or: all, mean, last; repeatable"
Layers = Annotated[list[str] | None, Option("--layer", help=_NUMBERS, show_default="last")]
Heads = Annotated[list[str] | None, Option("--head", help=_NUMBERS, show_default="mean")]
JoinWords = Annotated[bool, Option("--words", help="join tokens into words")]
HTMLFile = Annotated[Path | None, page_option("write a page; hover over a word to see its weights")]
ShowLines = Annotated[
    bool, Option("--lines", help="draw lines between the tokens, as thick as their weights")
]
ShowTree = Annotated[
    bool, Option("--search-tree", help="draw the beam search for the first text instead")
]
Edits = Annotated[
    list[str] | None,
    Option(
        "--edit",
        metavar="'KEY=VALUE, ...'",
        help="change attention first: 'layer=PATH, step=3, set=5'; indices from 0; "
        "or a JSON file of the inspector; repeatable",
    ),
]


def show(
    run: RunFolder,
    texts: Annotated[list[str], Argument(help="texts, or images of a captioner, to predict for")],
    *,
    kind: Kinds = None,
    layer: Layers = None,
    head: Heads = None,
    words: JoinWords = False,
    beam: BeamSize = None,
    figures: FigureFiles = None,
    html: HTMLFile = None,
    lines: ShowLines = False,
    show_tree: ShowTree = False,
    edit: Edits = None,
    as_json: Annotated[bool, Option("--json", help="print JSON lines instead")] = False,
    device: Device = "auto",
) -> None:
    """Draw the attention weights of a model's outputs.

    Example: heedful show runs/demo "Caecilius est in horto." --html page.html
    Example: heedful show runs/mine "A text." --kind encoder-self --layer 1 --head 1,2
    Example: heedful show runs/demo "Caecilius est in horto." --lines --svg lines.svg
    Example: heedful show runs/demo "Puella ambulat." --search-tree --svg tree.svg
    Example: heedful show runs/lstmn "a b c d" --kind encoder-intra --png map.png
    Example: heedful show runs/captions dog.jpg --words --html page.html
    Example: heedful show runs/demo "Puella ambulat." --edit "step=1, set=0" --json
    """
    from heedful.inspection.attention_selection import AttentionSelection
    from heedful.runs import load

    unused = {"--kind": kind, "--layer": layer, "--head": head, "--words": words, "--lines": lines}
    for option, value in unused.items():
        message, hint = "--search-tree draws no attention", f"remove {option}, or --search-tree"
        check(not (value and show_tree), option, message, hint)
    predictor = load(run, device=device, settings=[f"decoding.beam_size={beam}"] if beam else [])
    requests = _parse_requests(predictor, texts)
    edits = list(chain.from_iterable(map(_read_edits, edit or ())))
    if show_tree:
        _show_search_trees(
            run, predictor.with_edits(edits), requests, figures or (), html, as_json=as_json
        )
        return
    selection = AttentionSelection(kind or (), layer or (), head or (), joins_words=words)
    maps, columns, objects = _predict_maps(run, predictor, requests, selection, edits)
    form: FigureForm = "lines" if lines else "map"
    is_text = all(drawn.grid is None for drawn in chain.from_iterable(maps))
    message, hint = "the source is an image, and lines join tokens of texts", "remove --lines"
    check(is_text or not lines, "--lines", message, hint)
    write_files(maps, figures=figures or (), html=html, columns=columns, form=form)
    with handle_stdout_errors():
        if as_json:
            _print_json_lines(objects)
        else:
            print_attention(maps, form)


def _read_edits(text: str) -> list[AttentionEdit]:
    """Return an edit, or those of a JSON file that `--json` or the inspector wrote."""
    from heedful.attention.edits import AttentionEdit
    from heedful.storage.json_files import read_json

    if not text.endswith(".json"):
        return [AttentionEdit.parse(text)]
    fields = read_json(Path(text))
    message, hint = "has no `edits`", "name a file of the inspector, or of show --edit ... --json"
    check(isinstance(fields, dict) and isinstance(fields.get("edits"), list), text, message, hint)
    return [AttentionEdit.from_json(value, location=text) for value in fields["edits"]]


def _parse_requests(predictor: Any, texts: Sequence[str]) -> list[Any]:
    if predictor.reads_files:
        return list(chain.from_iterable(map(predictor.read_file, texts)))
    for text in filter(os.path.isfile, texts):
        note = "is shown as a text, but names a file; its lines are read by: heedful translate"
        echo(f"note: {text!r} {note}", err=True)
    return list(map(predictor.parse_line, texts))


def _show_search_trees(
    run: Path,
    predictor: Any,
    requests: Sequence[Any],
    figures: Sequence[Path],
    html: Path | None,
    *,
    as_json: bool,
) -> None:
    """Print and draw the search tree of the first request, or print all trees as JSON lines."""
    from rich.console import Console

    from heedful.decoding import search_tree
    from heedful.decoding.config import check_search_tree
    from heedful.plotting.svg import save_drawings

    message, hint = "this model has no search to draw", "name a run that translates or captions"
    has_tree = "need_tree" in predictor.options_class.model_fields
    check(has_tree, str(run), message, hint, RunError)
    check_search_tree(predictor.decoding, "--search-tree")
    trees = list(predictor.predict(requests, predictor.options_class(need_tree=True)))
    save_drawings(
        figures,
        lambda: search_tree.render_svg(trees[0]),
        html,
        lambda: search_tree.render_html(trees, title="Beam search"),
    )
    with handle_stdout_errors():
        if as_json:
            _print_json_lines(tree.to_json(tree=True) for tree in trees)
        else:
            Console().print(search_tree.render_tree(trees[0]))


def _predict_maps(
    run: Path,
    predictor: Any,
    requests: Sequence[Any],
    selection: AttentionSelection,
    edits: Sequence[AttentionEdit],
) -> tuple[list[list[AttentionMap]], int, Iterable[object]]:
    """Return the maps of each request, the columns of a figure of them, and JSON values."""
    results = list(predictor.predict(requests, need_layers=True))
    maps = [selection.select_of(result, str(run)) for result in results]
    columns = selection.count_heads(results[0].attention_layers)
    if not edits and not any(selection):
        return maps, columns, (result.to_json() for result in results)
    if not edits:
        pairs = zip(results, maps, strict=True)
        objects = (
            {**result.to_json(), "attention": [drawn.to_json() for drawn in selected]}
            for result, selected in pairs
        )
        return maps, columns, objects
    explained = [predictor.explain(request, edits=edits) for request in requests]
    edited = [selection.select_of(one.result, str(run), "edited") for one in explained]
    columns = 2 if len(maps[0]) == 1 else columns  # side by side, or below one another
    maps = [before + after for before, after in zip(maps, edited, strict=True)]
    return maps, columns, (explanation.to_json() for explanation in explained)


def _print_json_lines(objects: Iterable[object]) -> None:
    for fields in objects:
        echo(json.dumps(fields, ensure_ascii=False))


def print_attention(maps: Sequence[Sequence[AttentionMap]], form: FigureForm = "map") -> None:
    """Draw the attention maps of each text in the terminal."""
    from rich.console import Console
    from rich.markup import escape

    from heedful.inspection.figures import render_terminal

    console = Console()
    for text_maps in maps:
        heading = ""
        for attention_map in text_maps:
            lines = [f"[bold]{escape(attention_map.title)}[/]", escape(attention_map.output)]
            if heading != (heading := "\n".join(filter(None, lines))):
                console.print(f"\n{heading}")
            caption = f"[dim]{escape(attention_map.caption)}[/]\n" if attention_map.caption else ""
            console.print(caption)
            has_color = console.color_system is not None
            drawn = render_terminal(
                attention_map, width=console.width, has_color=has_color, form=form
            )
            console.print(drawn)


def write_files(
    maps: Sequence[Sequence[AttentionMap]],
    *,
    figures: Sequence[Path] = (),
    html: Path | None = None,
    columns: int = 1,
    form: FigureForm = "map",
) -> None:
    """Write a figure of the first text and a page of all, and print their paths."""
    from heedful.inspection.figures import render_html, render_svg
    from heedful.plotting.svg import save_drawings

    save_drawings(
        figures,
        lambda: render_svg(maps[0], columns=columns, form=form),
        html,
        lambda: render_html(list(chain.from_iterable(maps)), title="Attention", form=form),
    )


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
    echo(page)
    if open_browser and not webbrowser.open(page.resolve().as_uri()):
        echo("no browser found; open the file yourself", err=True)
