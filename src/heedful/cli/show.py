"""The tree of a search in the terminal: what was begun, what was given up, what was chosen.

A line is a stretch of tokens within which the search held one way to go on. Where it held several,
the main one goes on in the next line of the same depth, and the others stand between, one step
further in; so depth grows with the logarithm of the tree and not with the length of the output.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from heedful.cli.options import BeamSize, Device, RunFolder, handle_stdout_errors
from heedful.errors import RunError, check
from heedful.plotting.svg import escape_invisible, escape_line, split_joined_emoji, truncate

if TYPE_CHECKING:
    from heedful.decoding.translation import SearchNode, Translation
    from heedful.tasks.task import Prediction


_MAX_LABEL_WIDTH = 20  # characters of a token
_START = "(start)"
_EMPTY = "nothing was searched for: the text is empty"


def render_tree(translation: Translation) -> Tree:
    """Draw all that a search held; the output that was chosen stands out."""
    nodes = translation.tree or []
    drawn = Tree(Text(escape_line(translation.source), style="bold"))
    if not nodes:
        drawn.add(Text(_EMPTY, style="dim"))
        return drawn
    labels = [_START, *(_label(node.token) for node in nodes[1:])]
    chosen = _chosen_nodes(nodes, labels, [_label(token) for token in translation.tokens])
    children = _children(nodes, chosen)
    waiting = [(drawn, 0)]
    while waiting:
        branch, number = waiting.pop()
        stretch = _linear_chain(number, children)
        line = branch.add(_line(stretch, nodes, labels, is_chosen=number in chosen))
        for place, child in enumerate(children[stretch[-1]]):
            waiting.append((line if place else branch, child))
    return drawn


def _children(nodes: list[SearchNode], chosen: set[int]) -> list[list[int]]:
    """The nodes that continue each, the main one first: what was chosen, or what led furthest."""
    children: list[list[int]] = [[] for _ in nodes]
    sizes = [1] * len(nodes)
    for number in range(len(nodes) - 1, 0, -1):
        parent = nodes[number].parent
        assert parent is not None, f"node {number} of a tree continues nothing"
        children[parent].append(number)
        sizes[parent] += sizes[number]
    for each in children:
        each.sort(key=lambda number: (number in chosen, sizes[number], -number), reverse=True)
    return children


def _label(token: str | None) -> str:
    return truncate(split_joined_emoji(escape_invisible(token or "")), _MAX_LABEL_WIDTH)


def _chosen_nodes(nodes: list[SearchNode], labels: list[str], tokens: list[str]) -> set[int]:
    """The nodes of the output that was given; none if it was changed after the search."""
    for number, node in enumerate(nodes):
        if node.status == "finished":
            path = _ancestors(nodes, number)
            if [labels[each] for each in path[1:-1]] == tokens:
                return set(path)
    return set()


def _ancestors(nodes: list[SearchNode], number: int) -> list[int]:
    path = [number]
    while (parent := nodes[path[-1]].parent) is not None:
        path.append(parent)
    return path[::-1]


def _linear_chain(number: int, children: list[list[int]]) -> list[int]:
    """Follow a node as long as there is one way to go on."""
    stretch = [number]
    while len(below := children[stretch[-1]]) == 1:
        stretch += below
    return stretch


def _line(chain: list[int], nodes: list[SearchNode], labels: list[str], *, is_chosen: bool) -> Text:
    last = nodes[chain[-1]]
    style = "bold" if is_chosen else "dim" if last.status == "pruned" else ""
    line = Text(style=style)
    for number in chain if len(chain) == 1 else filter(None, chain):
        line.append(labels[number])
        if number:
            line.append(f" {nodes[number].log_prob:.2f}", style="cyan")
        line.append("  ")
    if last.status != "continued":
        line.append(
            f"{last.status} at {last.cumulative_log_prob:.2f}", style="green" if is_chosen else ""
        )
    line.rstrip()
    return line


def show(
    run: RunFolder,
    texts: Annotated[list[str], typer.Argument(help="texts to predict for")],
    *,
    beam: BeamSize = None,
    svg: Annotated[Path | None, typer.Option(help="write a figure of the first text")] = None,
    html: Annotated[
        Path | None, typer.Option(help="write a page; hover over a word to see its weights")
    ] = None,
    show_tree: Annotated[
        bool, typer.Option("--search-tree", help="draw the beam search for the first text instead")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON lines instead")] = False,
    device: Device = "auto",
) -> None:
    """Draw the attention weights of a model's outputs.

    Example: heedful show runs/demo "Caecilius est in horto." --html page.html

    Example: heedful show runs/demo "Caecilius est in horto." --search-tree --beam 3
    """
    from heedful.runs import load

    overrides = [f"decoding.beam_size={beam}"] if beam else []
    if show_tree:
        _show_tree(run, texts, overrides, as_json=as_json, device=device)
        return
    results = list(load(run, device=device, overrides=overrides).predict(texts))
    check(
        all(result.attention_map is not None for result in results),
        str(run),
        "its outputs have no attention weights to draw",
        "name a run with attention over a source text",
        RunError,
    )
    write_figures(results, svg=svg, html=html)
    with handle_stdout_errors():
        if as_json:
            for result in results:
                typer.echo(json.dumps(result.to_json(), ensure_ascii=False))
        else:
            print_attention(results)


def _show_tree(
    run: Path, texts: list[str], overrides: list[str], *, as_json: bool, device: str
) -> None:
    from rich.console import Console

    from heedful.cli.translate import check_tree_supported
    from heedful.runs import load_translator

    translator = load_translator(run, device=device, overrides=overrides)
    check_tree_supported(translator.decoding)
    results = translator.translate(texts, need_tree=True)
    with handle_stdout_errors():
        if as_json:
            for result in results:
                typer.echo(json.dumps(result.to_json(tree=True), ensure_ascii=False))
        else:
            Console().print(render_tree(results[0]))


def print_attention(results: Sequence[Prediction]) -> None:
    """Draw attention maps in the terminal."""
    from rich.console import Console
    from rich.markup import escape

    from heedful.inspection.terminal import terminal_heatmap

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
    """Write the figures that are asked for, and print their paths."""
    from heedful.inspection.attention_map import render_html, render_svg
    from heedful.storage import write_text

    maps = [result.attention_map for result in results if result.attention_map is not None]
    if svg:
        write_text(svg, render_svg(maps[0]))
    if html:
        write_text(html, render_html(maps, title="Attention"))
    for path in filter(None, (svg, html)):
        typer.echo(f"wrote {path}", err=True)
