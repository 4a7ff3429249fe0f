"""Drawing of a built model: its modules as nested boxes, and the data flow between them.

Boxes come from the tree of modules; equal neighbors are drawn once, with their number. Arrows come
from autograd: a box leads to another if the other computes with its output, and no box lies
between. An arrow to an earlier box, which is dashed, is that to the next step of a recurrence;
where a sample or an argmax lies between, there is no gradient, hence no arrow. Invariant: each
parameter of the model belongs to one line of the drawing, and each copy in a box is equal to it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement

from torch import Tensor, nn

from heedful.plotting import svg
from heedful.plotting.svg import add_path, add_rect, add_text, format_px
from heedful.pytree import tensors_of

VOCABULARY = 999_983
"""Size of the vocabularies of a model to draw: a prime, which no other size has by chance."""
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_VIEWS = re.compile(
    r"(T|M?H?Transpose|Cat|Stack|Views?|UnsafeView|ReshapeAlias|Split\w*|Unbind|Slice|Select"
    r"|Unsqueeze|Squeeze|Permute|Expand|Clone|ToCopy)Backward\d"
)


# ----- boxes -----


@dataclass(eq=False)
class Block:
    """A module, or a parameter, and how it is drawn."""

    role: str
    kind: str
    detail: str = ""
    paths: list[str] = field(default_factory=list)
    children: list["Block"] = field(default_factory=list)
    copies: int = 1
    order: float = float("inf")  # of its first operation
    edges: set[tuple["Block", "Block"]] = field(default_factory=set)  # between children

    @property
    def signature(self) -> tuple[Any, ...]:
        """Equal for blocks that differ in numbers of their names only."""
        role = re.sub(r"\d+", "", self.role)
        return (role, self.kind, self.detail, *(child.signature for child in self.children))

    @property
    def label(self) -> tuple[str, str]:
        """What is written in bold, and beside it."""
        copies = f" \u00d7 {self.copies}" if self.copies > 1 else ""
        return self.role + copies, " ".join(filter(None, (self.kind, self.detail)))


class Architecture(NamedTuple):
    """The blocks of a model; `inputs` has the blocks elsewhere that each top block leads to."""

    root: Block
    inputs: set[tuple[Block, Block]]


def read_architecture(model: nn.Module, outputs: Iterable[Tensor], calls: "Calls") -> Architecture:
    """Return the blocks of a model, and how data flow on the way to outputs of recorded calls."""
    root = Block("", type(model).__name__, paths=[""])
    root.children = list(_blocks(model, "", "", {id(model)}))
    chains = dict(_chains(root, ()))
    owners = _owners(model)
    flow = _Flow(owners, calls)
    flow.read(outputs)
    for path, order in flow.first.items():
        for block in chains[path]:
            block.order = min(block.order, order)
    representatives: dict[Block, Block] = {}
    _fold(root, representatives)
    inputs = set()
    for source, target in sorted(flow.edges):
        edge = _lift(chains[source], chains[target], representatives)
        if edge is not None:
            parent, start, end, deep_end = edge
            parent.edges.add((start, end))
            if parent is root and deep_end is not None:
                inputs.add((start, deep_end))
    return Architecture(root, inputs)


def _owners(model: nn.Module) -> dict[int, str]:
    """Return the path of each parameter that belongs to one module alone."""
    paths: dict[int, list[str]] = defaultdict(list)
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            inner = f"{path}.{name}".strip(".") if module._modules else path
            paths[id(parameter)].append(inner)
    return {key: found[0] for key, found in paths.items() if len(found) == 1}


def _blocks(module: nn.Module, path: str, prefix: str, seen: set[int]) -> Iterator[Block]:
    """Yield the blocks in a module."""
    if module._modules:
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield Block(name, "", _shape(parameter), [f"{path}.{name}".strip(".")])
    for name, child in module.named_children():
        inner, role = f"{path}.{name}".strip("."), f"{prefix}{name}"
        if id(child) in seen or not is_shown(child):
            continue
        seen.add(id(child))
        if isinstance(child, _CONTAINERS) and not prefix:
            yield from _blocks(child, inner, f"{role} ", seen)
            continue
        block = Block(role, type(child).__name__, sizes_of(child), [inner])
        block.children = list(_blocks(child, inner, "", seen))
        if len(block.children) == 1:
            _merge(block)
        elif next(child.parameters(), None) is None and block.children:
            block.kind = ", ".join(part.kind for part in block.children)
            block.paths += [path for part in block.children for path in part.paths]
            block.children = []
        yield block


def _chains(block: Block, outer: tuple[Block, ...]) -> Iterator[tuple[str, tuple[Block, ...]]]:
    """Yield each path with the blocks around it, from the model inwards."""
    chain = (*outer, block)
    yield from ((path, chain) for path in block.paths)
    for child in block.children:
        yield from _chains(child, chain)


def is_shown(module: nn.Module) -> bool:
    """Whether a module is drawn: it has parameters, or is a part of attention."""
    if isinstance(module, _CONTAINERS):
        return any(map(is_shown, module.children()))
    is_attention = type(module).__module__.startswith("heedful.attention.")
    return is_attention or next(module.parameters(), None) is not None


def _merge(block: Block) -> None:
    """Draw a block and the only one in it as one."""
    (child,) = block.children
    block.paths, block.children, block.detail = (
        block.paths + child.paths,
        child.children,
        child.detail,
    )
    if child.children:
        block.kind = child.kind
    elif "Norm" in child.kind:
        block.detail = f"{child.kind} {child.detail}"


def sizes_of(module: nn.Module) -> str:
    """Return the sizes of a module of torch, or the shapes of parameters."""
    if isinstance(module, nn.Linear):
        return f"{_size(module.in_features)} \u2192 {_size(module.out_features)}"
    if isinstance(module, nn.Embedding):
        return f"{_size(module.num_embeddings)} \u00d7 {_size(module.embedding_dim)}"
    if isinstance(module, nn.RNNBase):
        return f"{_size(module.input_size)} \u2192 {_size(module.hidden_size)}"
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        kernel = "\u00d7".join(map(str, module.kernel_size))
        return f"{module.in_channels} \u2192 {module.out_channels}, kernel {kernel}"
    if module._modules:
        return ""
    shapes = {name: _shape(one) for name, one in module._parameters.items() if one is not None}
    if set(shapes) <= {"weight", "bias"}:  # of a norm
        return shapes.get("weight", "")
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())


def _shape(parameter: Tensor) -> str:
    return " \u00d7 ".join(map(_size, parameter.shape)) or "1"


def _size(size: int) -> str:
    more = size - VOCABULARY
    if not 0 <= more < 100:
        return f"{size:,}"
    return f"vocabulary + {more}" if more else "vocabulary"


def _fold(block: Block, representatives: dict[Block, Block]) -> None:
    """Sort the children by their first operation, and keep one of equal neighbors."""
    for earlier, later in pairwise(block.children):
        if later.order == float("inf"):  # nothing is known: after the one before it
            later.order = earlier.order
    block.children.sort(key=lambda child: child.order)
    kept = []
    for _, group in groupby(block.children, key=lambda child: child.signature):
        first, *others = group
        first.copies = 1 + len(others)
        if others:
            last = others[-1].role.removeprefix(first.role.rstrip("0123456789"))
            first.role = f"{first.role} \u2013 {last}"
        representatives.update(dict.fromkeys([first, *others], first))
        _fold(first, representatives)
        kept.append(first)
    block.children = kept


def _lift(
    source: Sequence[Block], target: Sequence[Block], representatives: dict[Block, Block]
) -> tuple[Block, Block, Block, Block | None] | None:
    """Return the block around both, the blocks in it, and the innermost box of the target."""
    depth = sum(first is second for first, second in zip(source, target, strict=False))
    if depth == min(len(source), len(target)):
        return None
    if any(representatives.get(one, one) is not one for one in source[1:depth]):
        return None
    start, end = representatives.get(source[depth]), representatives.get(target[depth])
    if start is None or end is None or start is end:
        return None
    innermost = target[depth]
    for place, block in enumerate(target[depth + 1 :], depth):
        if representatives[innermost] is not innermost:
            return source[depth - 1], start, end, None
        if has_rows(innermost, place):
            break
        innermost = block
    return source[depth - 1], start, end, representatives.get(innermost)


def has_rows(block: Block, depth: int) -> bool:
    """Whether the children of a block are lines of text, not boxes with arrows."""
    parts = block.children
    return depth >= 2 and not any(part.children or part.role == "attention" for part in parts)


# ----- data flow -----

Calls = dict[Any, str]
"""The operations whose results drawn modules returned, with the paths of the modules."""


def record_calls(model: nn.Module) -> Calls:
    """Record the results of all drawn modules from now on, of the innermost ones first."""
    calls: Calls = {}

    def record(path: str, inputs: Any, output: Any) -> None:
        passed = {tensor.grad_fn for tensor in _tensors(inputs)}
        for tensor in _tensors(output):
            if tensor.grad_fn is not None and tensor.grad_fn not in passed:
                calls.setdefault(tensor.grad_fn, path)

    for path, module in model.named_modules():
        if path and is_shown(module) and not isinstance(module, _CONTAINERS):
            module.register_forward_hook(
                lambda _, args, kwargs, output, path=path: record(
                    path, (args, tuple(kwargs.values())), output
                ),
                with_kwargs=True,
            )
    return calls


class _Flow:
    """The edges between owners of operations in a graph of autograd."""

    def __init__(self, owners: dict[int, str], calls: Calls) -> None:
        self.edges: set[tuple[str, str]] = set()
        self.first: dict[str, int] = {}
        self._owners = owners
        self._calls = calls
        self._of_weights: dict[Any, set[str]] = {}  # owners of what is computed from parameters
        self._last: dict[Any, set[str]] = defaultdict(set)  # owners of the last operations before

    def read(self, outputs: Iterable[Tensor]) -> None:
        """Add the edges on all ways to these outputs."""
        for node in _topological(tensor.grad_fn for tensor in outputs):
            self._visit(node)

    def _visit(self, node: Any) -> None:
        inputs = [before for before, _ in node.next_functions if before is not None]
        if hasattr(node, "variable"):
            owner = self._owners.get(id(node.variable))
            self._of_weights[node] = {owner} if owner is not None else set()
            return
        weights = set().union(*(self._of_weights.get(one, set()) for one in inputs))
        is_view = _VIEWS.fullmatch(type(node).__name__)
        if inputs and is_view and all(one in self._of_weights for one in inputs):
            self._of_weights[node] = weights
            return
        before = set().union(*(self._last[one] for one in inputs))
        path = self._calls.get(node)
        owners = weights or ({path} if path is not None else set())
        for owner in owners:
            number = node._sequence_nr()
            self.first[owner] = min(number, self.first.get(owner, number))
        inside = {one for one in before if path is not None and one.startswith(f"{path}.")}
        if inside and not weights:  # what comes past them is part of what they return
            self._last[node] = inside
            return
        for owner in owners:
            self.edges |= {(one, owner) for one in before if one != owner}
        self._last[node] = owners or before


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor | tuple):
        for part in [value] if isinstance(value, Tensor) else value:
            yield from tensors_of(part) if isinstance(part, Tensor) else _tensors(part)


def _topological(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield the nodes of a graph, each after those that it depends on."""
    seen: set[Any] = set()
    stack = [(root, False) for root in roots if root is not None]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(before, False) for before, _ in node.next_functions if before is not None]


# ----- drawing -----

_STYLE = """
text {{ font-size: 13px; }}
.role {{ font-weight: 600; }}
.sizes {{ fill: {muted}; }}
.part {{ fill: {background}; stroke: {rule}; }}
.group {{ fill: {empty_cell}; stroke: {rule}; }}
.flow {{ fill: none; stroke: {full_cell}; stroke-width: 1.4; }}
.next-step {{ stroke: {accent}; stroke-dasharray: 4 3; }}
.head {{ fill: {full_cell}; }}
.next-head {{ fill: {accent}; }}
"""
ARCHITECTURE_STYLE = svg.select_by_scheme(
    *(_STYLE.format_map(palette._asdict()) for palette in (svg.LIGHT, svg.DARK))
)
_ROLE_ADVANCE, _ADVANCE = 8.7, 7.6  # pixels per character, enough in every common font
_LINE, _GAP, _PADDING, _GUTTER = 21, 26, 12, 9


class _Plan(NamedTuple):
    """Size of a block, and the places of the blocks in it."""

    width: float
    height: float
    ranks: Sequence[Sequence[Block]] = ()
    skips: Sequence[tuple[Block, Block]] = ()  # edges beside the blocks between
    returns: Sequence[tuple[Block, Block]] = ()  # edges to the next step


class _Layers(NamedTuple):
    """What is drawn first, then, and last: arrows pass behind the innermost boxes."""

    groups: Element
    arrows: Element
    parts: Element


class _Drawing:
    """Places of blocks, from the innermost ones to the model, and then their elements."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self.plans: dict[Block, _Plan] = {}
        self.boxes: dict[Block, svg.Box] = {}

    def plan(self, block: Block, depth: int) -> _Plan:
        """Return the size of a block."""
        if has_rows(block, depth) or not block.children:
            labels = [block.label, *(child.label for child in block.children)]
            width = max(map(_label_width, labels)) + 2 * _PADDING
            plan = _Plan(width, _LINE * len(labels) + 10)
        else:
            for child in block.children:
                self.plan(child, depth + 1)
            is_pair = depth == 0 and [child.role for child in block.children] in _COLUMNS
            ranks = [block.children] if is_pair else _ranks(block)
            plan = self._stack(block, ranks, depth, has_arrows=not is_pair)
        self.plans[block] = plan
        return plan

    def _stack(
        self, block: Block, ranks: list[list[Block]], depth: int, *, has_arrows: bool
    ) -> _Plan:
        rank_of = {child: index for index, rank in enumerate(ranks) for child in rank}
        edges = sorted(block.edges, key=lambda edge: (rank_of[edge[0]], rank_of[edge[1]]))
        edges = edges if has_arrows else []
        returns = [edge for edge in edges if _is_return(block, edge)]
        skips = [
            edge
            for edge in edges
            if edge not in returns and rank_of[edge[1]] - rank_of[edge[0]] > 1
        ]
        space = _GAP if has_arrows else 3 * _GAP
        widths = [
            sum(self.plans[child].width for child in rank) + space * (len(rank) - 1)
            for rank in ranks
        ]
        heights = [max(self.plans[child].height for child in rank) for rank in ranks]
        title = 0 if depth == 0 else _label_width(block.label)
        gutters = _GUTTER * (len(skips) + len(returns))
        width = max(*widths, title) + 2 * _PADDING + gutters
        height = sum(heights) + _GAP * (len(ranks) - 1) + 2 * _PADDING + (_LINE if depth else 0)
        return _Plan(width, height, ranks, skips, returns)

    def place(self, block: Block, x: float, y: float) -> None:
        """Set the box of a block whose top left corner is here, and of all in it."""
        plan = self.plans[block]
        self.boxes[block] = (x, y, plan.width, plan.height)
        bottom = y + plan.height - _PADDING
        left = x + _PADDING + _GUTTER * len(plan.returns)
        inner = plan.width - 2 * _PADDING - _GUTTER * (len(plan.skips) + len(plan.returns))
        for rank in plan.ranks:
            space = _GAP if len(plan.ranks) > 1 or block.role else 3 * _GAP
            width = sum(self.plans[child].width for child in rank) + space * (len(rank) - 1)
            start = left + (inner - width) / 2
            for child in rank:
                self.place(child, start, bottom - self.plans[child].height)
                start += self.plans[child].width + space
            bottom -= max(self.plans[child].height for child in rank) + _GAP

    def draw(self, layers: "_Layers", block: Block, depth: int) -> None:
        """Append a block, the blocks in it, and the arrows between them."""
        plan, (x, y, _, _) = self.plans[block], self.boxes[block]
        parent = layers.groups if plan.ranks else layers.parts
        if depth:
            add_rect(parent, "group" if depth % 2 else "part", self.boxes[block], radius=8)
            _add_label(parent, block.label, x + _PADDING, y + 19)
        if not plan.ranks:
            for place, child in enumerate(block.children, 1):
                _add_label(parent, child.label, x + _PADDING, y + 19 + _LINE * place)
            return
        group = layers.arrows
        for rank in plan.ranks:
            for child in rank:
                self.draw(layers, child, depth + 1)
        for earlier, later in pairwise(plan.ranks):
            for start, end in sorted_edges(block.edges, earlier, later):
                self._straight(group, start, end)
        for place, edge in enumerate(plan.skips):
            self._beside(group, block, edge, place)
        for place, edge in enumerate(plan.returns):
            self._beside(group, block, edge, place, is_return=True)

    def _straight(self, group: Element, start: Block, end: Block) -> None:
        """An arrow to a box of the next rank."""
        x, y, width, _ = self.boxes[start]
        end_x, end_y, end_width, end_height = self.boxes[end]
        bottom, middle = end_y + end_height, end_x + end_width / 2
        start_x = x + width / 2
        if end_x + 8 < start_x < end_x + end_width - 8:
            middle = start_x
        elif x + 8 < middle < x + width - 8:
            start_x = middle
        turn = bottom + _GAP / 2
        _add_arrow(group, [(start_x, y), (start_x, turn), (middle, turn), (middle, bottom)])

    def _beside(
        self,
        group: Element,
        block: Block,
        edge: tuple[Block, Block],
        place: int,
        *,
        is_return: bool = False,
    ) -> None:
        """An arrow on the right of the boxes between, or to the next step on their left."""
        (x, _, width, _), (start, end) = self.boxes[block], edge
        sides = [self.boxes[one] for one in (start, end)]
        heights = [
            y + height / 2 + (3 if one is end else -3)
            for one, (_, y, _, height) in zip(edge, sides, strict=True)
        ]
        if is_return:
            lane = x + _PADDING + _GUTTER * place
            ends = [left for left, _, _, _ in sides]
        else:
            lane = x + width - _PADDING - _GUTTER * place
            ends = [left + size for left, _, size, _ in sides]
        points = [(ends[0], heights[0]), (lane, heights[0]), (lane, heights[1])]
        _add_arrow(group, [*points, (ends[1], heights[1])], is_return=is_return)

    def draw_inputs(self, parent: Element) -> None:
        """Arrows from a column to boxes in the next one."""
        for start, end in self.architecture.inputs:
            x, y, width, height = self.boxes[start]
            end_x, end_y, _, end_height = self.boxes[end]
            middle = end_y + end_height / 2
            begin = min(max(middle, y + 16), y + height - 16)
            turn = x + width + _GAP
            points = [(x + width, begin), (turn, begin), (turn, middle), (end_x, middle)]
            _add_arrow(parent, points)


_COLUMNS = (["encoder", "decoder"],)


def sorted_edges(
    edges: Iterable[tuple[Block, Block]], starts: Sequence[Block], ends: Sequence[Block]
) -> list[tuple[Block, Block]]:
    """Return the edges between two rows of blocks, from left to right."""
    return [(start, end) for start in starts for end in ends if (start, end) in edges]


def _ranks(block: Block) -> list[list[Block]]:
    """Return the children in rows, each above those that lead to it in the same step."""
    rank_of: dict[Block, int] = {}
    forward = [edge for edge in block.edges if not _is_return(block, edge)]
    joined = {one for edge in block.edges for one in edge}
    waiting = list(block.children)
    while waiting:
        child = next(
            one for one in waiting if all(start in rank_of for start, end in forward if end is one)
        )
        waiting.remove(child)
        before = [rank_of[start] for start, end in forward if end is child]
        default = -1 if child in joined else max(rank_of.values(), default=-1)
        rank_of[child] = max(before, default=default) + 1
    ranks: list[list[Block]] = [[] for _ in range(max(rank_of.values()) + 1)]
    for child in block.children:
        ranks[rank_of[child]].append(child)
    return ranks


def _is_return(block: Block, edge: tuple[Block, Block]) -> bool:
    """Whether an edge closes a circle: it leads to an operation of the next step."""
    start, end = edge
    if start.order < end.order:
        return False
    reached, found = {end}, {end}
    while found:
        found = {after for before, after in block.edges if before in found} - reached
        reached |= found
    return start in reached


def render_svg(architecture: Architecture, *, title: str) -> str:
    """Draw a model as an SVG document."""
    drawing, root = _Drawing(architecture), architecture.root
    plan = drawing.plan(root, 0)
    top = svg.PADDING + svg.TITLE_HEIGHT
    drawing.place(root, svg.PADDING - _PADDING, top)
    kind = f"{root.kind}: each arrow is data flow; a dashed one leads to the next step"
    width = max(plan.width + 2 * (svg.PADDING - _PADDING), 7.4 * len(kind) + 2 * svg.PADDING)
    height = top + plan.height + svg.PADDING - _PADDING
    document = svg.svg_document(
        width, height, title=title, description=kind, heading=title, style=ARCHITECTURE_STYLE
    )
    add_text(document, "note", kind, x=svg.PADDING, y=svg.PADDING + 34)
    layers = _Layers(*(SubElement(document, "g") for _ in _Layers._fields))
    drawing.draw(layers, root, 0)
    if [child.role for child in root.children] in _COLUMNS:
        drawing.draw_inputs(layers.arrows)
    return svg.to_svg(document)


def _label_width(label: tuple[str, str]) -> float:
    return _ROLE_ADVANCE * len(label[0]) + 7 + _ADVANCE * len(label[1])


def _add_label(parent: Element, label: tuple[str, str], x: float, y: float) -> None:
    role, sizes = label
    text = add_text(parent, "", "", x=x, y=y)
    SubElement(text, "tspan", {"class": "role"}).text = role
    part = SubElement(text, "tspan", {"class": "sizes", "dx": "7"})
    part.text = sizes


def _add_arrow(
    parent: Element, points: Sequence[tuple[float, float]], *, is_return: bool = False
) -> None:
    """Append a line through points, with a head in the direction of its end."""
    line = " L".join(f"{format_px(x)},{format_px(y)}" for x, y in points)
    add_path(parent, "flow next-step" if is_return else "flow", f"M{line}")
    (from_x, _), (x, y) = points[-2:]
    if from_x == x:
        head = f"M{format_px(x)},{format_px(y)} l-4,7 h8 z"
    else:
        side = -7 if from_x < x else 7
        head = f"M{format_px(x)},{format_px(y)} l{side},-4 v8 z"
    add_path(parent, "next-head" if is_return else "head", head)
