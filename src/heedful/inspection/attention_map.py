"""Attention maps: which words, and how much each looked at each.

Every picture in this folder is drawn from an `AttentionMap` and from nothing else. It obeys one
law: a row holds the shares that one word of the output gave to the words of the source, so no
share is negative and a row sums to one, or to less where part of the attention went nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from rich.cells import cell_len

from heedful.errors import DataError
from heedful.plotting.html import render_page
from heedful.plotting.svg import (
    DARK_TEXT_THRESHOLD,
    FAINT_THRESHOLD,
    NOTHING_TO_DRAW,
    Box,
    add_rect,
    add_text,
    escape_invisible,
    escape_line,
    format_percent,
    format_px,
    format_weight,
    svg_document,
    to_svg,
    truncate,
)

if TYPE_CHECKING:
    from heedful.shapes import Float  # at run time it would import torch

# Rows computed in half precision miss one by up to this much.
TOLERANCE = 0.01


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Where each word of the output looked in the source."""

    source: Sequence[str]
    """The tokens as shown, cleaned of a tokenizer's own markers."""
    target: Sequence[str]
    weights: Float[np.ndarray, "T S"]
    title: str = ""

    def __post_init__(self) -> None:
        _check_shape(self)
        _check_row_sums(self)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return self.weights.size == 0


def _check_shape(attention_map: AttentionMap) -> None:
    wanted = (len(attention_map.target), len(attention_map.source))
    if attention_map.weights.shape != wanted:
        raise DataError(
            "attention_map",
            f"{wanted[0]} target and {wanted[1]} source tokens need weights of shape {wanted}, "
            f"found {attention_map.weights.shape}",
            "give one row per target token and one column per source token",
        )


def _check_row_sums(attention_map: AttentionMap) -> None:
    for position, row in enumerate(attention_map.weights):
        problem = _row_error(row)
        if problem:
            raise DataError(
                f"attention_map: row {position} ({attention_map.target[position]!r})",
                problem,
                "give the shares of one word's attention: none negative, at most one in all",
            )


def _row_error(row: Float[np.ndarray, " S"]) -> str:
    if not np.isfinite(row).all():
        return "a weight is not a finite number"
    if (row < 0).any():
        return f"a weight is negative: {row.min():.4g}"
    total = row.sum(dtype=np.float64)
    return f"the weights sum to {total:.4g}" if total > 1 + TOLERANCE else ""


# Heat maps: the picture for papers and pages, as an SVG document.
#
# The ink of a cell has the opacity of its weight, and the cell carries the weight as
# `data-weight`, so the picture can be measured as well as seen.

PADDING = 26
GAP = 3
TITLE_HEIGHT = 34
LEGEND_WIDTH = 350
LEGEND_HEIGHT = 44
MAX_LABEL_WIDTH = 24
# No font is known here: this much per terminal cell is room enough in every usual one.
LABEL_ADVANCE = 9.2
LABEL_ANGLE = 45
# A picture of more columns is shrunk to fit a page, and digits in it would be too small to read.
MAX_COLUMNS_WITH_DIGITS = 16


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


def render_svg(attention_map: AttentionMap) -> str:
    """Draw an attention map as a complete SVG document."""
    if attention_map.is_empty:
        return _render_empty(attention_map.title)
    sources = [truncate(escape_invisible(token), MAX_LABEL_WIDTH) for token in attention_map.source]
    targets = [truncate(escape_invisible(token), MAX_LABEL_WIDTH) for token in attention_map.target]
    grid = _grid(sources, targets, has_title=bool(attention_map.title))
    width, height = _size(grid, sources, num_rows=len(targets))
    root = _begin_svg(
        width, height, title=attention_map.title, description=_description(attention_map)
    )
    _draw_sources(root, sources, grid)
    for row, target in enumerate(targets):
        group = SubElement(root, "g")
        add_text(group, "target", target, x=grid.left - 12, y=grid.baseline(row))
        _draw_cells(group, attention_map, row=row, grid=grid)
    _draw_legend(root, left=grid.left, bottom=height - PADDING)
    return to_svg(root)


def _render_empty(title: str) -> str:
    root = _begin_svg(LEGEND_WIDTH, 90, title=title, description=NOTHING_TO_DRAW)
    add_text(root, "note", NOTHING_TO_DRAW, x=PADDING, y=64)
    return to_svg(root)


def _begin_svg(width: float, height: float, *, title: str, description: str) -> Element:
    heading = escape_line(title)
    name = heading or "Where each word looked"
    root = svg_document(width, height, title=name, description=description)
    if heading:
        add_text(root, "title", heading, x=PADDING, y=PADDING + 14)
    return root


def _description(attention_map: AttentionMap) -> str:
    """Say in words what the picture shows: the place each word looked at most."""
    strongest = attention_map.weights.argmax(axis=1)
    phrases = (
        f"{escape_invisible(target)}: {escape_invisible(attention_map.source[column])} {format_percent(row[column]) or 0}%"
        for target, column, row in zip(
            attention_map.target, strongest, attention_map.weights, strict=True
        )
    )
    return f"For each word, where it looked most. {'; '.join(phrases)}."


# --- the measures of the page --------------------------------------------------------------
def _grid(sources: Sequence[str], targets: Sequence[str], *, has_title: bool) -> _Grid:
    has_digits = len(sources) <= MAX_COLUMNS_WITH_DIGITS
    rise = max(map(_text_width, sources)) * math.sin(math.radians(LABEL_ANGLE))
    return _Grid(
        left=PADDING + max(map(_text_width, targets)) + 12,
        top=PADDING + (TITLE_HEIGHT if has_title else 0) + rise + 18,
        cell_width=58 if has_digits else 24,
        cell_height=36 if has_digits else 24,
        has_digits=has_digits,
    )


def _size(grid: _Grid, sources: Sequence[str], *, num_rows: int) -> tuple[float, float]:
    reach = math.cos(math.radians(LABEL_ANGLE))
    ends = [
        grid.middle(column) + reach * _text_width(label) for column, label in enumerate(sources)
    ]
    right = max(*ends, grid.left + grid.cell_width * len(sources), grid.left + LEGEND_WIDTH)
    bottom = grid.top + grid.cell_height * num_rows + LEGEND_HEIGHT
    return right + PADDING, bottom + PADDING


def _text_width(label: str) -> float:
    return LABEL_ADVANCE * cell_len(label)


# --- the marks on it -----------------------------------------------------------------------
def _draw_sources(root: Element, sources: Sequence[str], grid: _Grid) -> None:
    for column, source in enumerate(sources):
        x, y = grid.middle(column) + 2, grid.top - 10
        turn = f"rotate(-{LABEL_ANGLE} {format_px(x)} {format_px(y)})"
        add_text(root, "source", source, x=x, y=y).set("transform", turn)


def _draw_cells(group: Element, attention_map: AttentionMap, *, row: int, grid: _Grid) -> None:
    target = escape_invisible(attention_map.target[row])
    for column, weight in enumerate(attention_map.weights[row].tolist()):
        name = f"{target} \u2192 {escape_invisible(attention_map.source[column])}: {weight:.2f}"
        _draw_cell(group, weight, name=name, box=grid.cell(row, column))
        if grid.has_digits:
            css_class = _digit_class(weight)
            add_text(
                group,
                css_class,
                format_percent(weight),
                x=grid.middle(column),
                y=grid.baseline(row),
            )


def _digit_class(weight: float) -> str:
    if weight > DARK_TEXT_THRESHOLD:
        return "digits strong"
    return "digits faint" if weight < FAINT_THRESHOLD else "digits"


def _draw_cell(group: Element, weight: float, *, name: str, box: Box) -> None:
    add_rect(group, "track", box, radius=4)
    cell = add_rect(group, "ink", box, radius=4)
    cell.set("fill-opacity", format_weight(weight))
    cell.set("data-weight", format_weight(weight))
    SubElement(cell, "title").text = name


def _draw_legend(root: Element, *, left: float, bottom: float) -> None:
    swatch, start = 14, left + 16
    add_text(root, "note", "0", x=left, y=bottom)
    for step in range(11):
        box = Box(start + swatch * step, bottom - 10, swatch, 12)
        add_rect(root, "track", box)
        add_rect(root, "ink", box).set("fill-opacity", f"{step / 10:.1f}")
    words = "100% of a word's attention"
    add_text(root, "note", words, x=start + swatch * 11 + 8, y=bottom)


# Pages: where each word looked, on a page that answers when it is pointed at.
#
# A page is one file that asks nothing of the network (`framing`); a token that looks like markup
# stays a token. The script, the style and the frame are files in `page/`.

MAX_SNIPPET_HEIGHT = 720  # pixels; what is taller scrolls inside its frame


def render_html(maps: Sequence[AttentionMap], *, title: str) -> str:
    """Write a self-contained page that shows several maps."""
    return _page(maps, title=title)


def render_notebook_html(attention_map: AttentionMap) -> str:
    """Write an attention map for a notebook's cell, in a frame that cannot touch the notebook."""
    page = _page([attention_map], title=attention_map.title, page_type="snippet")
    return (
        f'<iframe sandbox="allow-scripts" title="Where each word looked" '
        f'style="width: 100%; height: {_estimate_height(attention_map)}px; border: 0;" '
        f'srcdoc="{escape(page)}"></iframe>'
    )


def _estimate_height(attention_map: AttentionMap) -> int:
    """Guess the pixels that a page needs, since a closed frame cannot ask for them."""
    rows, columns = attention_map.weights.shape
    if attention_map.is_empty:
        return 120
    map_height = 210 + 33 * rows
    # In the width of a usual notebook, a wide map moves below the words.
    ribbon_height = 260 if columns > 9 else 0
    return min(MAX_SNIPPET_HEIGHT, map_height + ribbon_height)


def _page(maps: Sequence[AttentionMap], *, title: str, page_type: str = "page") -> str:
    sentences = [_map_to_dict(attention_map) for attention_map in maps]
    return render_page(
        "page.html",
        title=title,
        styles=["page.css"],
        scripts=["page.js"],
        data={
            "maps": {
                "strong": DARK_TEXT_THRESHOLD,
                "faint": FAINT_THRESHOLD,
                "sentences": sentences,
            }
        },
        page_type=page_type,
    )


def _map_to_dict(attention_map: AttentionMap) -> dict[str, object]:
    return {
        "title": escape_line(attention_map.title),
        "source": [escape_invisible(token) for token in attention_map.source],
        "target": [escape_invisible(token) for token in attention_map.target],
        "weights": [
            [float(format_weight(weight)) for weight in row] for row in attention_map.weights
        ],
    }
