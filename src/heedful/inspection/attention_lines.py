"""Attention as lines between source and output steps, in SVG and in the terminal.

The source is above, the output below, as in a heat map and on the page, and a line joins two tokens
(after Olah and Carter 2016).
Invariant: the thickness of a line is proportional to its weight, rounded to dots in the terminal;
weights below half a percent have no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from heedful.inspection.attention_map import (
    HALF_A_PERCENT,
    MAX_LABEL_WIDTH,
    AttentionMap,
    describe_links,
    heading_parts,
)
from heedful.plotting import svg
from heedful.plotting.svg import add_path, add_rect, add_text, escape_invisible, format_px

if TYPE_CHECKING:
    from heedful.shapes import Int  # at run time it would import torch

MAX_THICKNESS = 12
"""Pixels of a line of weight one."""
STEP_HEIGHT, STEP_GAP, STEP_PADDING = 32, 12, 24
ROW_DISTANCE = 190  # from the bottom of the source steps to the top of the output steps
ROW_LABEL_WIDTH = 58
MIN_ROW_WIDTH = 240
TITLE_ADVANCE = 10.2  # pixels per terminal cell of a heading
LEGEND_HEIGHT = 42
LEGEND_DISTANCE = 78
LEGEND_WEIGHTS = (0.1, 0.5, 1.0)

_STYLE = """
.line {{ fill: none; stroke: {full_cell}; stroke-opacity: 0.75; }}
.line:hover {{ stroke: {accent}; stroke-opacity: 1; }}
.step {{ fill: {empty_cell}; stroke: {rule}; }}
.token {{ text-anchor: middle; }}
"""
LINES_STYLE = svg.select_by_scheme(
    *(_STYLE.format_map(palette._asdict()) for palette in (svg.LIGHT, svg.DARK))
)


def visible_links(attention_map: AttentionMap) -> Iterator[tuple[int, int, float]]:
    """Yield row, column and weight of each line, the heaviest last."""
    weights = np.asarray(attention_map.weights, dtype=np.float64)
    for index in weights.argsort(axis=None, kind="stable"):
        row, column = divmod(int(index), weights.shape[1])
        if weights[row, column] >= HALF_A_PERCENT:
            yield row, column, float(weights[row, column])


# ----- SVG -----


class _Steps:
    """A row of steps: labels and widths, and centers after `move`."""

    def __init__(self, name: str, tokens: Sequence[str]) -> None:
        self.name = name
        self.labels = [svg.truncate(escape_invisible(token), MAX_LABEL_WIDTH) for token in tokens]
        self.widths = [svg.LABEL_ADVANCE * cell_len(label) + STEP_PADDING for label in self.labels]
        self.width = sum(self.widths) + STEP_GAP * (len(tokens) - 1)

    def move(self, center: float, top: float) -> None:
        """Set the center of the row and its upper edge."""
        ends = np.cumsum([width + STEP_GAP for width in self.widths]) - STEP_GAP
        self.centers = (center - self.width / 2 + ends - np.array(self.widths) / 2).tolist()
        self.top = top

    def draw(self, root: Element) -> None:
        """Draw the steps and the name of their row."""
        add_text(root, "note", self.name, x=svg.PADDING, y=self.top + STEP_HEIGHT / 2 + 4)
        for label, center, width in zip(self.labels, self.centers, self.widths, strict=True):
            box = (center - width / 2, self.top, width, STEP_HEIGHT)
            add_rect(root, "step", box, radius=8)
            svg.add_token(root, "token", label, x=center, y=self.top + STEP_HEIGHT / 2 + 5)


def render_svg(attention_map: AttentionMap) -> str:
    """Draw an attention map as lines between steps; each line carries its `data-weight`."""
    attention_map = attention_map.join_bytes()
    title, default_title = svg.escape_line(attention_map.title), "Attention lines"
    if attention_map.is_empty:
        return svg.render_empty(title, default_title, LINES_STYLE)
    tokens = attention_map.target, attention_map.source
    outputs, sources = map(_Steps, attention_map.axis_names, tokens)
    row_width = max(outputs.width, sources.width, MIN_ROW_WIDTH)
    left = svg.PADDING + ROW_LABEL_WIDTH
    width = left + row_width + svg.PADDING
    parts = zip(("title", "", "note"), heading_parts(attention_map), strict=True)
    cells = int((width - 2 * svg.PADDING) / TITLE_ADVANCE)
    heading = [(css_class, line) for css_class, text in parts for line in svg.wrap(text, cells)]
    top = svg.PADDING + svg.HEADING_LINE * len(heading) + (12 if heading else 0)
    sources.move(left + row_width / 2, top)
    outputs.move(left + row_width / 2, top + STEP_HEIGHT + ROW_DISTANCE)
    height = outputs.top + STEP_HEIGHT + LEGEND_HEIGHT + svg.PADDING
    labels = {"title": title or default_title, "description": describe_links(attention_map)}
    root = svg.svg_document(width, height, **labels, heading="", style=LINES_STYLE)
    svg.add_heading(root, heading)
    for row, column, weight in visible_links(attention_map):
        curve = _add_line(root, _curve(outputs, row, sources, column), weight)
        curve.set("data-weight", svg.format_weight(weight))
        pair = f"{outputs.labels[row]} \u2192 {sources.labels[column]}"
        SubElement(curve, "title").text = f"{pair}: {weight:.2f}"
    sources.draw(root)
    outputs.draw(root)
    for index, weight in enumerate(LEGEND_WEIGHTS):
        x, y = left + LEGEND_DISTANCE * index, height - svg.PADDING
        _add_line(root, f"M{format_px(x)},{format_px(y - 4)} h26", weight)
        add_text(root, "note", f"{100 * weight:.0f}%", x=x + 32, y=y)
    return svg.to_svg(root)


def _add_line(root: Element, path: str, weight: float) -> Element:
    line = add_path(root, "line", path)
    line.set("stroke-width", svg.format_weight(MAX_THICKNESS * weight))
    return line


def _curve(outputs: _Steps, row: int, sources: _Steps, column: int) -> str:
    from_x, from_y = outputs.centers[row], outputs.top
    to_x, to_y = sources.centers[column], sources.top + STEP_HEIGHT
    middle = (from_y + to_y) / 2
    points = ((from_x, from_y), (from_x, middle), (to_x, middle), (to_x, to_y))
    start, *rest = (f"{format_px(x)},{format_px(y)}" for x, y in points)
    return f"M{start} C{' '.join(rest)}"


# ----- terminal -----

CANVAS_LINES = 10
CANVAS_WIDTH = 24  # cells between two columns of tokens
MAX_ROW_STRETCH = 2.5
MIN_TERMINAL_WEIGHT = 0.05
DOTS_FROM = (0.2, 0.5, 0.8)
"""Weights from which a line is one, two and three dots thick; a lighter one is dotted."""
_BRAILLE = 0x2800
_DOT_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


def terminal_lines(attention_map: AttentionMap, *, width: int) -> Text:
    """Draw lines of Braille dots within a number of terminal columns.

    The tokens are in two rows if these fit, else in two columns, the source on the left. Weights
    below `MIN_TERMINAL_WEIGHT` are left out.
    """
    attention_map = attention_map.join_bytes()
    if attention_map.is_empty:
        return Text(svg.NOTHING_TO_DRAW, style="dim")
    outputs, sources = (
        [svg.split_joined_emoji(escape_invisible(token)) for token in tokens]
        for tokens in (attention_map.target, attention_map.source)
    )
    fits = max(_row_width(outputs), _row_width(sources)) <= width
    draw = _draw_rows if fits else _draw_columns
    lines = draw(attention_map, outputs, sources, width)
    scale = "  ".join(f"{_sample(weight)} {100 * weight:.0f}%" for weight in (0.05, *DOTS_FROM))
    notes = svg.wrap(f"{scale} or more of a token's attention", width)
    legend = [Text(note, style="dim") for note in notes]
    drawn = Text("\n", no_wrap=True, overflow="ignore").join([*lines, Text(), *legend])
    drawn.highlight_words([svg.SPACE_MARK], "dim")
    return drawn


def _row_width(labels: Sequence[str]) -> int:
    return sum(map(cell_len, labels)) + 2 * (len(labels) - 1)


def _draw_rows(
    attention_map: AttentionMap, outputs: list[str], sources: list[str], width: int
) -> list[Text]:
    natural_width = max(_row_width(outputs), _row_width(sources))
    row_width = min(width, int(MAX_ROW_STRETCH * natural_width))
    rows, centers = zip(
        *(_spread_labels(labels, row_width) for labels in (outputs, sources)), strict=True
    )
    canvas = _Canvas(row_width, CANVAS_LINES)
    for row, column, weight in visible_links(attention_map):
        canvas.draw((centers[0][row], 4 * CANVAS_LINES - 1), (centers[1][column], 0), weight)
    return [rows[1], *canvas.lines(), rows[0]]


def _spread_labels(labels: Sequence[str], width: int) -> tuple[Text, list[int]]:
    """Return a line with the labels at equal distances, and the dot at the center of each."""
    space = (width - sum(map(cell_len, labels))) / len(labels)
    line, centers, end = Text(), [], 0.0
    for label in labels:
        start = int(end + space / 2)
        line.append(" " * (start - line.cell_len)).append(label, style="bold")
        centers.append(2 * start + cell_len(label))
        end += space + cell_len(label)
    return line, [min(center, 2 * width - 1) for center in centers]


def _draw_columns(
    attention_map: AttentionMap, outputs: list[str], sources: list[str], width: int
) -> list[Text]:
    label_width = max(1, (width - CANVAS_WIDTH - 2) // 2)
    outputs, sources = (
        [svg.truncate(label, label_width) for label in labels] for labels in (outputs, sources)
    )
    margin = max(map(cell_len, sources))
    height = 2 * max(len(outputs), len(sources)) - 1
    labels_at = [
        {height // 2 + 2 * index - len(labels) + 1: label for index, label in enumerate(labels)}
        for labels in (outputs, sources)
    ]
    output_lines, source_lines = map(list, labels_at)
    canvas = _Canvas(CANVAS_WIDTH, height)
    for row, column, weight in visible_links(attention_map):
        start = (2 * CANVAS_WIDTH - 1, 4 * output_lines[row] + 2)
        canvas.draw(start, (0, 4 * source_lines[column] + 2), weight)
    lines = []
    for index, drawn in enumerate(canvas.lines()):
        output, source = (at.get(index, "") for at in labels_at)
        line = Text(" " * (margin - cell_len(source))).append(source, style="bold").append(" ")
        lines.append(line.append(drawn).append(" ").append(output, style="bold"))
    return lines


class _Canvas:
    """Braille dots with the largest weight of each cell; dots are (x, y), two by four per cell."""

    def __init__(self, width: int, height: int) -> None:
        self.dots = np.zeros((4 * height, 2 * width), dtype=bool)
        self.weights = np.zeros((height, width))

    def draw(self, start: tuple[int, int], end: tuple[int, int], weight: float) -> None:
        """Draw a line whose thickness grows with its weight."""
        if weight < MIN_TERMINAL_WEIGHT:
            return
        steps = 2 * max(abs(start[0] - end[0]), abs(start[1] - end[1])) + 1
        x, y = (
            np.linspace(*ends, steps).round().astype(int) for ends in zip(start, end, strict=True)
        )
        is_steep = abs(start[0] - end[0]) <= abs(start[1] - end[1])
        thickness = sum(weight >= threshold for threshold in DOTS_FROM)
        if thickness == 0:
            x, y = (values[(y if is_steep else x) % 3 == 0] for values in (x, y))
        for offset in np.arange(max(thickness, 1)) - thickness // 2:
            self._set_dots(x + offset * is_steep, y + offset * (not is_steep), weight)

    def _set_dots(self, x: Int[np.ndarray, "N"], y: Int[np.ndarray, "N"], weight: float) -> None:
        inside = (x >= 0) & (x < self.dots.shape[1]) & (y >= 0) & (y < self.dots.shape[0])
        x, y = x[inside], y[inside]
        self.dots[y, x] = True
        self.weights[y // 4, x // 2] = np.maximum(self.weights[y // 4, x // 2], weight)

    def lines(self) -> list[Text]:
        """Return the lines of text, each character in the color of its heaviest line."""
        height, width = self.weights.shape
        blocks = self.dots.reshape(height, 4, width, 2).transpose(0, 2, 1, 3)
        codes = (blocks * _DOT_BITS).sum(axis=(2, 3))
        lines = []
        for code_row, weight_row in zip(codes.tolist(), self.weights.tolist(), strict=True):
            line = Text()
            for code, weight in zip(code_row, weight_row, strict=True):
                style = svg.weight_color(svg.LIGHT, 0.3 + 0.7 * weight) if code else ""
                line.append(chr(_BRAILLE + code) if code else " ", style=style)
            lines.append(line)
        return lines


def _sample(weight: float) -> str:
    canvas = _Canvas(3, 1)
    canvas.draw((0, 2), (5, 2), weight)
    return canvas.lines()[0].plain
