"""Drawing of a built model: its modules as nested boxes, with arrows where data flow.

Boxes stand above those that lead to them. A dashed arrow leads to an earlier box: it closes a
circle, so it is one to the next step of a recurrence. Invariant: a box lies in the box around it,
and overlaps no other.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from heedful.inspection.architecture import Architecture, Block, has_rows
from heedful.plotting import svg
from heedful.plotting.svg import add_path, add_rect, add_text, format_px

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
        places = {child: place for place, child in enumerate(chain.from_iterable(ranks))}
        edges = sorted(block.edges, key=lambda edge: (places[edge[0]], places[edge[1]]))
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
        for child in chain.from_iterable(plan.ranks):
            self.draw(layers, child, depth + 1)
        self._draw_arrows(layers.arrows, block, plan)

    def _draw_arrows(self, group: Element, block: Block, plan: _Plan) -> None:
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
        edges = [(self.boxes[start], self.boxes[end]) for start, end in self.architecture.inputs]
        for (x, y, width, height), (end_x, end_y, _, end_height) in sorted(edges):
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
    reached, fresh = {end}, {end}
    while fresh:
        fresh = {after for before, after in block.edges if before in fresh} - reached
        reached |= fresh
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
