"""Search trees drawn in the terminal, as SVG and as a page.

In the terminal a line of a tree is a chain of tokens without branches. At a branch the main
continuation follows at the same depth and the others are indented by one step between; so depth
grows with the logarithm of the tree, not with the length of the output. In a figure a column is a
step of the search, and the main continuation follows on the same line.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple
from xml.etree.ElementTree import SubElement

from rich.cells import cell_len
from rich.text import Text
from rich.tree import Tree

from heedful.decoding.translation import Translation
from heedful.plotting import html, svg
from heedful.plotting.svg import escape_invisible, escape_line, split_joined_emoji, truncate
from heedful.search import Node

_MAX_LABEL_WIDTH = 20  # characters of a token
_NOTHING = "no search: the text is empty"


def render_tree(translation: Translation) -> Tree:
    """Draw the search tree; the nodes of the returned output are highlighted."""
    nodes = translation.tree or []
    tree = Tree(Text(escape_line(translation.source), style="bold"))
    if not nodes:
        tree.add(Text(_NOTHING, style="dim"))
        return tree
    labels, output_nodes, children = _analyze(translation)
    stack = [(tree, 0)]
    while stack:
        branch, node_id = stack.pop()
        chain = [node_id]
        while len(continuations := children[chain[-1]]) == 1:
            chain += continuations
        line = branch.add(_format_chain(chain, nodes, labels, is_output=node_id in output_nodes))
        for index, child in enumerate(children[chain[-1]]):
            stack.append((line if index else branch, child))
    return tree


class _TreeParts(NamedTuple):
    labels: list[str]
    output_nodes: set[int]
    children: list[list[int]]


def _analyze(translation: Translation) -> _TreeParts:
    """Return the labels, the nodes on the path of the output, and the children of each node."""
    nodes = translation.tree or []
    labels = ["(start)", *(_label(node.token) for node in nodes[1:])]
    output_nodes = _output_nodes(nodes, labels, [_label(token) for token in translation.tokens])
    return _TreeParts(labels, output_nodes, _children(nodes, output_nodes))


def _children(nodes: list[Node[str]], output_nodes: set[int]) -> list[list[int]]:
    """Return the children of each node, the main one first: in the output, or the largest."""
    children: list[list[int]] = [[] for _ in nodes]
    sizes = [1] * len(nodes)
    for node_id in range(len(nodes) - 1, 0, -1):
        parent = nodes[node_id].parent
        assert parent is not None, f"node {node_id} has no parent"
        children[parent].append(node_id)
        sizes[parent] += sizes[node_id]
    for siblings in children:
        siblings.sort(key=lambda child: (child in output_nodes, sizes[child], -child), reverse=True)
    return children


def _label(token: str | None) -> str:
    return truncate(split_joined_emoji(escape_invisible(token or "")), _MAX_LABEL_WIDTH)


def _output_nodes(nodes: list[Node[str]], labels: list[str], tokens: list[str]) -> set[int]:
    """Return the nodes on the path of the output; none if it was changed after the search."""
    for node_id, node in enumerate(nodes):
        if node.status == "finished":
            path = [node_id]
            while (parent := nodes[path[-1]].parent) is not None:
                path.append(parent)
            if [labels[ancestor] for ancestor in path[-2:0:-1]] == tokens:
                return set(path)
    return set()


def _format_chain(
    chain: list[int], nodes: list[Node[str]], labels: list[str], *, is_output: bool
) -> Text:
    last = nodes[chain[-1]]
    line = Text(style="bold" if is_output else "dim" if last.status == "pruned" else "")
    for node_id in chain if len(chain) == 1 else filter(None, chain):
        line.append(labels[node_id])
        if node_id:
            line.append(f" {nodes[node_id].log_prob:z.2f}", style="cyan")
        line.append("  ")
    if last.status != "continued":
        result = f"{last.status} at {last.cumulative_log_prob:z.2f}"
        line.append(result, style="green" if is_output else "")
    line.rstrip()
    return line


# ----- figure and page -----

_BOX_HEIGHT, _LINE_HEIGHT, _STEP_GAP = 28, 56, 34  # pixels
_LABEL_ADVANCE, _NOTE_ADVANCE, _TITLE_ADVANCE = (
    9.2,
    7.4,
    10.2,
)  # pixels per terminal cell, enough in every common font
_STYLE = """
.edge {{ fill: none; stroke: {rule}; stroke-width: 1.5; }}
.edge.output {{ stroke: {full_cell}; stroke-width: 3; }}
.node rect {{ fill: {empty_cell}; stroke: {rule}; }}
.node.output rect {{ fill: {full_cell}; stroke: {full_cell}; }}
.node .token {{ text-anchor: middle; }}
.node .note {{ text-anchor: middle; }}
.node.output .token {{ fill: {text_on_full}; font-weight: 600; }}
.node.pruned .token {{ fill: {muted}; }}
"""
_THEMED_STYLE = svg.select_by_scheme(
    *(_STYLE.format_map(palette._asdict()) for palette in (svg.LIGHT, svg.DARK))
)
_LEGEND = (
    "Below a token: its log-probability; at the end of a branch the sum of all, and whether the "
    "hypothesis was finished or pruned. Filled: the output."
)


def render_html(translations: Sequence[Translation], *, title: str) -> str:
    """Return a self-contained page with the search tree of each text."""
    content = [html.element("p", _LEGEND, css_class="intro")]
    for translation in translations:
        figure = html.embed_svg(render_svg(translation))
        label = f"search tree of {escape_line(translation.source)}"
        region = {"tabindex": "0", "role": "region", "aria-label": label}
        content.append(html.element("div", figure, css_class="wide", attributes=region))
    style = svg.SVG_STYLE + _THEMED_STYLE
    body = html.serialize(html.element("main", *content))
    return html.render_page(body, title=title, styles=["attention_map.css"], extra_style=style)


def render_svg(translation: Translation) -> str:
    """Draw the search tree as an SVG document; the path of the output is highlighted."""
    nodes, heading = translation.tree or [], escape_line(translation.source)
    if not nodes:
        return svg.render_empty(heading, "Search tree", _THEMED_STYLE)
    parts = _analyze(translation)
    notes = ["", *map(_format_note, nodes[1:])]
    boxes, width, height = _layout(nodes, parts, notes)
    num_ends = Counter(node.status for node in nodes)
    description = (
        f"Beam search: {num_ends['finished']} hypotheses finished, {num_ends['pruned']} pruned. "
        f"Output: {escape_line(translation.text)}"
    )
    texts = {"title": heading or "Search tree", "description": description, "heading": heading}
    width = max(width, 2 * svg.PADDING + _TITLE_ADVANCE * cell_len(heading))
    root = svg.svg_document(width, height, **texts, style=_THEMED_STYLE)
    for node_id, node in enumerate(nodes[1:], start=1):
        assert node.parent is not None, f"node {node_id} has no parent"
        css_class = "edge output" if node_id in parts.output_nodes else "edge"
        svg.add_path(root, css_class, _edge(boxes[node.parent], boxes[node_id]))
    for node_id, (x, y, box_width, box_height) in enumerate(boxes):
        status = "output" if node_id in parts.output_nodes else nodes[node_id].status
        group = SubElement(root, "g", {"class": f"node {status}"})
        svg.add_rect(group, "step", (x, y, box_width, box_height), radius=8)
        center = x + box_width / 2
        svg.add_token(group, "token", parts.labels[node_id], x=center, y=y + box_height / 2 + 5)
        svg.add_text(group, "note", notes[node_id], x=center, y=y + box_height + 14)
    return svg.to_svg(root)


def _format_note(node: Node[str]) -> str:
    note = f"{node.log_prob:z.2f}"
    if node.status == "continued":
        return note
    return f"{note}, {node.status} at {node.cumulative_log_prob:z.2f}"


def _layout(
    nodes: list[Node[str]], parts: _TreeParts, notes: Sequence[str]
) -> tuple[list[svg.Box], float, float]:
    """Return the box of each node, and the size of the figure."""
    depths = [0] * len(nodes)
    for node_id, node in enumerate(nodes[1:], start=1):
        depths[node_id] = depths[node.parent or 0] + 1
    widths = [_LABEL_ADVANCE * cell_len(label) + 18 for label in parts.labels]
    needed = [
        max(width, _NOTE_ADVANCE * len(note)) for width, note in zip(widths, notes, strict=True)
    ]
    columns = [0.0] * (max(depths) + 1)
    for depth, width in zip(depths, needed, strict=True):
        columns[depth] = max(columns[depth], width)
    starts = [
        svg.PADDING + start for start in accumulate((c + _STEP_GAP for c in columns), initial=0)
    ]
    lines, num_lines = _assign_lines(parts.children)
    top = svg.PADDING + svg.TITLE_HEIGHT
    boxes: list[svg.Box] = [
        (
            starts[depth] + (columns[depth] - width) / 2,
            top + _LINE_HEIGHT * line,
            width,
            _BOX_HEIGHT,
        )
        for depth, width, line in zip(depths, widths, lines, strict=True)
    ]
    height = top + _LINE_HEIGHT * num_lines + svg.PADDING - (_LINE_HEIGHT - _BOX_HEIGHT - 18)
    return boxes, starts[-1] - _STEP_GAP + svg.PADDING, height


def _assign_lines(children: list[list[int]]) -> tuple[list[int], int]:
    """Return the line of each node, which its main child shares, and the number of lines."""
    lines, num_lines = [0] * len(children), 1
    stack = [(0, True)]
    while stack:
        node_id, is_main = stack.pop()
        if not is_main:
            lines[node_id] = num_lines
            num_lines += 1
        for index, child in reversed(list(enumerate(children[node_id]))):
            lines[child] = lines[node_id]
            stack.append((child, index == 0))
    return lines, num_lines


def _edge(parent: svg.Box, child: svg.Box) -> str:
    start = parent[0] + parent[2], parent[1] + parent[3] / 2
    end = child[0], child[1] + child[3] / 2
    middle = end[0] - _STEP_GAP / 2
    corners = (start, (middle, start[1]), (middle, end[1]), end)
    first, *rest = (f"{svg.format_px(x)},{svg.format_px(y)}" for x, y in corners)
    return f"M{first} C{' '.join(rest)}"
