"""Heat maps: the picture for papers and pages, as an SVG document.

The ink of a cell has the opacity of its weight, and the cell carries the weight as
`data-weight`, so the picture can be measured as well as seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from rich.cells import cell_len

from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.colours import FAINT, STRONG
from heedful.inspection.drawing import Box, document, draw_box, draw_label, number, write
from heedful.inspection.labels import (
    NOTHING_TO_DRAW,
    exact,
    percent,
    shortened,
    visible,
    visible_line,
)

PADDING = 26
GAP = 3
TITLE_HEIGHT = 34
LEGEND_WIDTH = 350
LEGEND_HEIGHT = 44
LONGEST_LABEL = 24
# No font is known here: this much per terminal cell is room enough in every usual one.
LABEL_ADVANCE = 9.2
SLANT = 45
# A picture of more columns is shrunk to fit a page, and digits in it would be too small to read.
MOST_COLUMNS_WITH_DIGITS = 16


class _Grid(NamedTuple):
    """Where the cells stand."""

    left: float
    top: float
    cell_width: float
    cell_height: float
    has_digits: bool

    def cell(self, row: int, column: int) -> Box:
        x, y = self.left + self.cell_width * column, self.top + self.cell_height * row
        return Box(x + GAP / 2, y + GAP / 2, self.cell_width - GAP, self.cell_height - GAP)

    def middle(self, column: int) -> float:
        return self.left + self.cell_width * (column + 0.5)

    def baseline(self, row: int) -> float:
        return self.top + self.cell_height * (row + 0.5) + 5


def svg(attention_map: AttentionMap) -> str:
    """Draw an attention map as a complete SVG document."""
    if attention_map.is_empty:
        return _nothing(attention_map.title)
    sources = [shortened(visible(token), LONGEST_LABEL) for token in attention_map.source]
    targets = [shortened(visible(token), LONGEST_LABEL) for token in attention_map.target]
    grid = _grid(sources, targets, has_title=bool(attention_map.title))
    width, height = _size(grid, sources, num_rows=len(targets))
    root = _begin(width, height, title=attention_map.title, description=_description(attention_map))
    _draw_sources(root, sources, grid)
    for row, target in enumerate(targets):
        group = SubElement(root, "g")
        draw_label(group, "target", target, x=grid.left - 12, y=grid.baseline(row))
        _draw_cells(group, attention_map, row=row, grid=grid)
    _draw_legend(root, left=grid.left, bottom=height - PADDING)
    return write(root)


def _nothing(title: str) -> str:
    root = _begin(LEGEND_WIDTH, 90, title=title, description=NOTHING_TO_DRAW)
    draw_label(root, "note", NOTHING_TO_DRAW, x=PADDING, y=64)
    return write(root)


def _begin(width: float, height: float, *, title: str, description: str) -> Element:
    heading = visible_line(title)
    name = heading or "Where each word looked"
    root = document(width, height, title=name, description=description)
    if heading:
        draw_label(root, "title", heading, x=PADDING, y=PADDING + 14)
    return root


def _description(attention_map: AttentionMap) -> str:
    """Say in words what the picture shows: the place each word looked at most."""
    strongest = attention_map.weights.argmax(axis=1)
    places = (
        f"{visible(target)}: {visible(attention_map.source[place])} {percent(row[place]) or 0}%"
        for target, place, row in zip(
            attention_map.target, strongest, attention_map.weights, strict=True
        )
    )
    return f"For each word, where it looked most. {'; '.join(places)}."


# --- the measures of the page --------------------------------------------------------------


def _grid(sources: Sequence[str], targets: Sequence[str], *, has_title: bool) -> _Grid:
    has_digits = len(sources) <= MOST_COLUMNS_WITH_DIGITS
    rise = max(map(_advance, sources)) * math.sin(math.radians(SLANT))
    return _Grid(
        left=PADDING + max(map(_advance, targets)) + 12,
        top=PADDING + (TITLE_HEIGHT if has_title else 0) + rise + 18,
        cell_width=58 if has_digits else 24,
        cell_height=36 if has_digits else 24,
        has_digits=has_digits,
    )


def _size(grid: _Grid, sources: Sequence[str], *, num_rows: int) -> tuple[float, float]:
    reach = math.cos(math.radians(SLANT))
    ends = [grid.middle(column) + reach * _advance(label) for column, label in enumerate(sources)]
    right = max(*ends, grid.left + grid.cell_width * len(sources), grid.left + LEGEND_WIDTH)
    bottom = grid.top + grid.cell_height * num_rows + LEGEND_HEIGHT
    return right + PADDING, bottom + PADDING


def _advance(label: str) -> float:
    return LABEL_ADVANCE * cell_len(label)


# --- the marks on it -----------------------------------------------------------------------


def _draw_sources(root: Element, sources: Sequence[str], grid: _Grid) -> None:
    for column, source in enumerate(sources):
        x, y = grid.middle(column) + 2, grid.top - 10
        turn = f"rotate(-{SLANT} {number(x)} {number(y)})"
        draw_label(root, "source", source, x=x, y=y).set("transform", turn)


def _draw_cells(group: Element, attention_map: AttentionMap, *, row: int, grid: _Grid) -> None:
    target = visible(attention_map.target[row])
    for column, weight in enumerate(attention_map.weights[row].tolist()):
        name = f"{target} \u2192 {visible(attention_map.source[column])}: {weight:.2f}"
        _draw_cell(group, weight, name=name, box=grid.cell(row, column))
        if grid.has_digits:
            look = _look_of_digits(weight)
            draw_label(group, look, percent(weight), x=grid.middle(column), y=grid.baseline(row))


def _look_of_digits(weight: float) -> str:
    if weight > STRONG:
        return "digits strong"
    return "digits faint" if weight < FAINT else "digits"


def _draw_cell(group: Element, weight: float, *, name: str, box: Box) -> None:
    draw_box(group, "track", box, radius=4)
    cell = draw_box(group, "ink", box, radius=4)
    cell.set("fill-opacity", exact(weight))
    cell.set("data-weight", exact(weight))
    SubElement(cell, "title").text = name


def _draw_legend(root: Element, *, left: float, bottom: float) -> None:
    swatch, start = 14, left + 16
    draw_label(root, "note", "0", x=left, y=bottom)
    for step in range(11):
        box = Box(start + swatch * step, bottom - 10, swatch, 12)
        draw_box(root, "track", box)
        draw_box(root, "ink", box).set("fill-opacity", f"{step / 10:.1f}")
    words = "100% of a word's attention"
    draw_label(root, "note", words, x=start + swatch * 11 + 8, y=bottom)
