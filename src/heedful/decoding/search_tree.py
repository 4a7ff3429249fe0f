"""Search trees drawn in the terminal.

A line of a tree is a chain of tokens without branches. At a branch the main continuation follows at
the same depth and the others are indented by one step between; so depth grows with the logarithm of
the tree, not with the length of the output.
"""

from rich.text import Text
from rich.tree import Tree

from heedful.decoding.translation import Translation
from heedful.plotting.svg import escape_invisible, escape_line, split_joined_emoji, truncate
from heedful.search import Node

_MAX_LABEL_WIDTH = 20  # characters of a token


def render_tree(translation: Translation) -> Tree:
    """Draw the search tree; the nodes of the returned output are highlighted."""
    nodes = translation.tree or []
    tree = Tree(Text(escape_line(translation.source), style="bold"))
    if not nodes:
        tree.add(Text("no search: the text is empty", style="dim"))
        return tree
    labels = ["(start)", *(_label(node.token) for node in nodes[1:])]
    output_nodes = _output_nodes(nodes, labels, [_label(token) for token in translation.tokens])
    children = _children(nodes, output_nodes)
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
            line.append(f" {nodes[node_id].log_prob:.2f}", style="cyan")
        line.append("  ")
    if last.status != "continued":
        result = f"{last.status} at {last.cumulative_log_prob:.2f}"
        line.append(result, style="green" if is_output else "")
    line.rstrip()
    return line
