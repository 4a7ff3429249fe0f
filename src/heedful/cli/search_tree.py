"""The tree of a search in the terminal: what was begun, what was given up, what was chosen.

A line is a stretch of tokens within which the search held one way to go on. Where it held several,
the main one goes on in the next line of the same depth, and the others stand between, one step
further in; so depth grows with the logarithm of the tree and not with the length of the output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

from heedful.inspection.labels import shortened, unjoined, visible, visible_line

if TYPE_CHECKING:
    from heedful.decoding.translation import Branch
    from heedful.translator import Translation

_LONGEST = 20  # characters of a token
_START = "(start)"
_EMPTY = "nothing was searched for: the text is empty"


def draw_tree(translation: Translation) -> Tree:
    """Draw all that a search held; the output that was chosen stands out."""
    nodes = translation.tree or []
    drawn = Tree(Text(visible_line(translation.source), style="bold"))
    if not nodes:
        drawn.add(Text(_EMPTY, style="dim"))
        return drawn
    labels = [_START, *(_label(node.token) for node in nodes[1:])]
    chosen = _chosen(nodes, labels, [_label(token) for token in translation.tokens])
    children = _children(nodes, chosen)
    waiting = [(drawn, 0)]
    while waiting:
        branch, number = waiting.pop()
        stretch = _stretch(number, children)
        line = branch.add(_line(stretch, nodes, labels, is_chosen=number in chosen))
        for place, child in enumerate(children[stretch[-1]]):
            waiting.append((line if place else branch, child))
    return drawn


def _children(nodes: list[Branch], chosen: set[int]) -> list[list[int]]:
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
    return shortened(unjoined(visible(token or "")), _LONGEST)


def _chosen(nodes: list[Branch], labels: list[str], tokens: list[str]) -> set[int]:
    """The nodes of the output that was given; none if it was changed after the search."""
    for number, node in enumerate(nodes):
        if node.fate == "ended":
            path = _path(nodes, number)
            if [labels[each] for each in path[1:-1]] == tokens:
                return set(path)
    return set()


def _path(nodes: list[Branch], number: int) -> list[int]:
    path = [number]
    while (parent := nodes[path[-1]].parent) is not None:
        path.append(parent)
    return path[::-1]


def _stretch(number: int, children: list[list[int]]) -> list[int]:
    """Follow a node as long as there is one way to go on."""
    stretch = [number]
    while len(below := children[stretch[-1]]) == 1:
        stretch += below
    return stretch


def _line(stretch: list[int], nodes: list[Branch], labels: list[str], *, is_chosen: bool) -> Text:
    last = nodes[stretch[-1]]
    style = "bold" if is_chosen else "dim" if last.fate == "pruned" else ""
    line = Text(style=style)
    for number in stretch if len(stretch) == 1 else filter(None, stretch):
        line.append(labels[number])
        if number:
            line.append(f" {nodes[number].log_prob:.2f}", style="cyan")
        line.append("  ")
    if last.fate != "went on":
        line.append(f"{last.fate} at {last.total:.2f}", style="green" if is_chosen else "")
    line.rstrip()
    return line
