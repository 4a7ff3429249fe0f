"""Attention maps as data, as SVG and as HTML.

Every figure of attention is drawn from an `AttentionMap`. Invariant: a row holds the attention
weights of one output token over the source tokens; no weight is negative, and a row sums to one, or
to less where a part of the attention went to no token.
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

from heedful.errors import DataError, check
from heedful.plotting.html import read_asset, render_page
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

TOLERANCE = 0.01  # of a row sum, in half precision


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Attention weights of output tokens over source tokens."""

    source: Sequence[str]
    """The tokens as shown, without the markers of a tokenizer."""
    target: Sequence[str]
    weights: Float[np.ndarray, "T S"]
    title: str = ""

    def __post_init__(self) -> None:
        shape = (len(self.target), len(self.source))
        check(
            self.weights.shape == shape,
            "attention_map",
            f"{shape[0]} target and {shape[1]} source tokens need weights of shape {shape}, "
            f"found {self.weights.shape}",
            "give one row per target token and one column per source token",
            DataError,
        )
        for index, row in enumerate(self.weights):
            error = _row_error(row)
            check(
                not error,
                f"attention_map: row {index} ({self.target[index]!r})",
                error,
                "give attention weights: none negative, each row summing to at most one",
                DataError,
            )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return self.weights.size == 0


def _row_error(row: Float[np.ndarray, " S"]) -> str:
    if not np.isfinite(row).all():
        return "a weight is not a finite number"
    if (row < 0).any():
        return f"a weight is negative: {row.min():.4g}"
    total = row.sum(dtype=np.float64)
    return f"the weights sum to {total:.4g}" if total > 1 + TOLERANCE else ""


# ----- SVG -----

PADDING = 26
GAP = 3
TITLE_HEIGHT = 34
LEGEND_WIDTH = 350
LEGEND_HEIGHT = 44
MAX_LABEL_WIDTH = 24
LABEL_ADVANCE = 9.2  # pixels per terminal cell, enough in every common font
LABEL_ANGLE = 45
# A wider map is scaled down to fit a page, and its digits would be too small to read.
MAX_COLUMNS_WITH_DIGITS = 16


class _Grid(NamedTuple):
    """Position and size of the cells."""

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
    """Draw an attention map as an SVG document.

    The opacity of a cell is its weight, which the cell also carries as `data-weight`.
    """
    if attention_map.is_empty:
        root = _begin_svg(LEGEND_WIDTH, 90, attention_map.title, NOTHING_TO_DRAW)
        add_text(root, "note", NOTHING_TO_DRAW, x=PADDING, y=64)
        return to_svg(root)
    sources = [truncate(escape_invisible(token), MAX_LABEL_WIDTH) for token in attention_map.source]
    targets = [truncate(escape_invisible(token), MAX_LABEL_WIDTH) for token in attention_map.target]
    grid = _grid(sources, targets, has_title=bool(attention_map.title))
    width, height = _size(grid, sources, num_rows=len(targets))
    root = _begin_svg(width, height, attention_map.title, _description(attention_map))
    for column, source in enumerate(sources):
        x, y = grid.middle(column) + 2, grid.top - 10
        rotation = f"rotate(-{LABEL_ANGLE} {format_px(x)} {format_px(y)})"
        add_text(root, "source", source, x=x, y=y).set("transform", rotation)
    for row, target in enumerate(targets):
        group = SubElement(root, "g")
        add_text(group, "target", target, x=grid.left - 12, y=grid.baseline(row))
        _draw_cells(group, attention_map, row=row, grid=grid)
    _draw_legend(root, left=grid.left, bottom=height - PADDING)
    return to_svg(root)


def _begin_svg(width: float, height: float, title: str, description: str) -> Element:
    heading = escape_line(title)
    root = svg_document(width, height, title=heading or "Attention map", description=description)
    if heading:
        add_text(root, "title", heading, x=PADDING, y=PADDING + 14)
    return root


def _description(attention_map: AttentionMap) -> str:
    """Return the strongest link of each output token, for those who cannot see the figure."""
    links = []
    for target, row in zip(attention_map.target, attention_map.weights, strict=True):
        column = int(row.argmax())
        source, percent = attention_map.source[column], format_percent(row[column]) or 0
        links.append(f"{escape_invisible(target)}: {escape_invisible(source)} {percent}%")
    return f"The largest attention weight of each output token. {'; '.join(links)}."


def _grid(sources: Sequence[str], targets: Sequence[str], *, has_title: bool) -> _Grid:
    has_digits = len(sources) <= MAX_COLUMNS_WITH_DIGITS
    label_height = max(map(_text_width, sources)) * math.sin(math.radians(LABEL_ANGLE))
    return _Grid(
        left=PADDING + max(map(_text_width, targets)) + 12,
        top=PADDING + (TITLE_HEIGHT if has_title else 0) + label_height + 18,
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


def _draw_cells(group: Element, attention_map: AttentionMap, *, row: int, grid: _Grid) -> None:
    target = escape_invisible(attention_map.target[row])
    for column, weight in enumerate(attention_map.weights[row].tolist()):
        box = grid.cell(row, column)
        add_rect(group, "empty-cell", box, radius=4)
        cell = add_rect(group, "full-cell", box, radius=4)
        cell.set("fill-opacity", format_weight(weight))
        cell.set("data-weight", format_weight(weight))
        source = escape_invisible(attention_map.source[column])
        SubElement(cell, "title").text = f"{target} \u2192 {source}: {weight:.2f}"
        if grid.has_digits:
            css_class = "digits faint" if weight < FAINT_THRESHOLD else "digits"
            css_class = "digits strong" if weight > DARK_TEXT_THRESHOLD else css_class
            x, y = grid.middle(column), grid.baseline(row)
            add_text(group, css_class, format_percent(weight), x=x, y=y)


def _draw_legend(root: Element, *, left: float, bottom: float) -> None:
    swatch, start = 14, left + 16
    add_text(root, "note", "0", x=left, y=bottom)
    for step in range(11):
        box = Box(start + swatch * step, bottom - 10, swatch, 12)
        add_rect(root, "empty-cell", box)
        add_rect(root, "full-cell", box).set("fill-opacity", f"{step / 10:.1f}")
    add_text(root, "note", "100% of a token's attention", x=start + swatch * 11 + 8, y=bottom)


# ----- HTML -----

MAX_SNIPPET_HEIGHT = 720  # pixels; a taller map scrolls inside its frame


def render_html(maps: Sequence[AttentionMap], *, title: str) -> str:
    """Return a self-contained page that shows attention maps interactively."""
    return _render_maps(maps, title=title)


def render_notebook_html(attention_map: AttentionMap) -> str:
    """Return HTML for a notebook cell: a page in a sandboxed frame."""
    page = _render_maps([attention_map], title=attention_map.title, page_type="snippet")
    return (
        f'<iframe sandbox="allow-scripts" title="Attention map" '
        f'style="width: 100%; height: {_estimate_height(attention_map)}px; border: 0;" '
        f'srcdoc="{escape(page)}"></iframe>'
    )


def _estimate_height(attention_map: AttentionMap) -> int:
    """Estimate the height of a page in pixels: a sandboxed frame cannot ask for it."""
    rows, columns = attention_map.weights.shape
    if attention_map.is_empty:
        return 120
    # In a notebook, a wide map moves below the words.
    alignment_height = 260 if columns > 9 else 0
    return min(MAX_SNIPPET_HEIGHT, 210 + 33 * rows + alignment_height)


def _render_maps(maps: Sequence[AttentionMap], *, title: str, page_type: str = "page") -> str:
    return render_page(
        read_asset("attention_map.html"),
        title=title,
        styles=["attention_map.css"],
        scripts=["attention_map.js"],
        data={"maps": attention_data(maps)},
        page_type=page_type,
    )


def attention_data(maps: Sequence[AttentionMap]) -> dict[str, object]:
    """Return the data that attention_map.js draws."""
    sentences = [
        {
            "title": escape_line(attention_map.title),
            "source": [escape_invisible(token) for token in attention_map.source],
            "target": [escape_invisible(token) for token in attention_map.target],
            "weights": [
                [float(format_weight(weight)) for weight in row] for row in attention_map.weights
            ],
        }
        for attention_map in maps
    ]
    return {"strong": DARK_TEXT_THRESHOLD, "faint": FAINT_THRESHOLD, "sentences": sentences}
