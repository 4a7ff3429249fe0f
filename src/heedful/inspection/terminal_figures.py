"""Attention in the terminal: maps of texts, and images of a caption, in half blocks or shades.

Invariant: no line is wider than the terminal; each weight of a map, and the largest weight of each
word of a caption, is readable without color.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from heedful.inspection.attention_map import MAX_COLUMNS, AttentionMap
from heedful.plotting import raster, svg
from heedful.plotting.svg import escape_invisible, escape_line, format_percent

if TYPE_CHECKING:
    from heedful.inspection.image_attention import ImageAttention
    from heedful.shapes import Float  # at run time it would import torch

CELL_WIDTH = 4
LABEL_OFFSET = 2  # the token and the rule of a column stand over the last digit of its cells
MIN_TERMINAL_WIDTH = 24
MAX_TERMINAL_LABEL_WIDTH = 20
_HALF_A_PERCENT = 0.005

_RULE = "\u2502"
_LEFT_TO_RIGHT_MARK = "\u200e"


def terminal_heatmap(attention_map: AttentionMap, *, width: int) -> Text:
    """Draw an attention map within a number of terminal columns (at least `MIN_TERMINAL_WIDTH`).

    A cell shows its weight as a rounded percentage, so the map is the same in color, in black and
    white, and as copied text. Source tokens are above their columns, staggered over several
    lines; a source too wide for the terminal is split into multiple maps, one below the other. Of
    more than `MAX_COLUMNS` tokens, maps in which no weight reaches half a percent are left out.
    """
    width = max(width, MIN_TERMINAL_WIDTH)
    title = svg.truncate(svg.split_joined_emoji(escape_line(attention_map.title)), width)
    lines = [Text(_isolate_direction(title), style="bold"), Text()] if title else []
    lines += _terminal_map(attention_map.join_bytes(), width)
    drawn = _join(lines)
    drawn.highlight_words([svg.SPACE_MARK], "dim")
    return drawn


def _join(lines: list[Text]) -> Text:
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def _terminal_map(attention_map: AttentionMap, width: int) -> list[Text]:
    if attention_map.is_empty:
        return [Text(svg.NOTHING_TO_DRAW, style="dim")]
    lines = []
    targets = _terminal_labels(attention_map.target, max_width=width // 3)
    margin = max(map(cell_len, targets)) + 1
    map_width = width - margin - max(map(len, attention_map.notes))
    sources = _terminal_labels(attention_map.source, max_width=map_width - LABEL_OFFSET)
    for columns in _split_columns(sources, max_width=map_width):
        if len(sources) > MAX_COLUMNS:
            is_faint = attention_map.weights[:, columns].max() < _HALF_A_PERCENT
            note = f"{attention_map.axis_names[1]} tokens {columns.start + 1} to {columns.stop}"
            lines.append(Text(f"{note}: none of half a percent" if is_faint else note, style="dim"))
            if is_faint:
                continue
        lines += _header_lines(sources[columns], margin)
        rows = attention_map.weights.tolist()
        for target, row, note in zip(targets, rows, attention_map.notes, strict=True):
            indent = " " * (margin - 1 - cell_len(target))
            line = Text(f"{indent}{_isolate_direction(target)} ")
            for weight in row[columns]:
                line.append(_terminal_cell(weight, is_strongest=weight == max(row)))
            lines.append(line.append(note, style="dim"))
        lines.append(Text())
    scale = Text.assemble(*map(_terminal_cell, (0.001, 0.25, 0.5, 0.75, 1.0)), "  ")
    words = f"percent of a token's attention ({svg.TRACE_MARK} under half, blank none)"
    first, *rest = textwrap.wrap(words, width, initial_indent=" " * scale.cell_len)
    scale.append(first.lstrip(), style="dim")
    return [*lines, scale, *(Text(line, style="dim") for line in rest)]


def _terminal_labels(tokens: Sequence[str], *, max_width: int) -> list[str]:
    max_width = min(MAX_TERMINAL_LABEL_WIDTH, max_width)
    labels = (svg.split_joined_emoji(escape_invisible(token)) for token in tokens)
    return [svg.truncate(label, max_width) for label in labels]


def _split_columns(sources: Sequence[str], *, max_width: int) -> list[slice]:
    """Split the columns so that each cell and each source token fits into the width."""
    starts = [0]
    for column, source in enumerate(sources):
        width = max(CELL_WIDTH, LABEL_OFFSET + cell_len(source))
        if column > starts[-1] and CELL_WIDTH * (column - starts[-1]) + width > max_width:
            starts.append(column)
    return [slice(*ends) for ends in zip(starts, [*starts[1:], len(sources)], strict=True)]


def _header_lines(sources: Sequence[str], margin: int) -> list[Text]:
    """Return each token on the highest line from which its rule crosses no earlier token."""
    levels: list[int] = []
    ends: list[int] = []  # of the last token on each line
    for column, source in enumerate(sources):
        column_x = CELL_WIDTH * column + LABEL_OFFSET
        crossed = [line for line, end in enumerate(ends) if end >= column_x]
        level = crossed[-1] + 1 if crossed else 0
        ends[level : level + 1] = [column_x + cell_len(source)]
        levels.append(level)
    lines = [Text(" " * margin) for _ in ends]
    for index, line in enumerate(lines):
        for column, (level, source) in enumerate(zip(levels, sources, strict=True)):
            if level <= index:
                column_x = margin + CELL_WIDTH * column + LABEL_OFFSET
                line.append(" " * (column_x - line.cell_len))
                is_here = level == index
                label, style = (_isolate_direction(source), "bold") if is_here else (_RULE, "dim")
                line.append(label, style=style)
    return lines


def _isolate_direction(label: str) -> str:
    """Keep a right-to-left token from changing the direction of its neighbors."""
    if any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in label):
        return _LEFT_TO_RIGHT_MARK + label + _LEFT_TO_RIGHT_MARK
    return label


def _terminal_cell(weight: float, *, is_strongest: bool = False) -> Text:
    colors = f"{svg.digit_color(svg.LIGHT, weight)} on {svg.weight_color(svg.LIGHT, weight)}"
    return Text(f"{format_percent(weight):>3} ", style=f"bold {colors}" if is_strongest else colors)


MIN_TILE_WIDTH = 18  # as wide as "max 100%, gate 99%"
MAX_TILE_WIDTH = 64
MAX_TILE_HEIGHT = 20  # pixels, of which a line has two
GAP = 2
SHADES = " \u2591\u2592\u2593\u2588"
"""Without colors: from nothing to the largest weight of a word."""


def terminal_sheet(
    attention: ImageAttention, *, width: int, has_color: bool = True, has_heading: bool = True
) -> Text:
    """Draw a caption's attention within a number of terminal columns, a tile for each word."""
    width = max(width, MIN_TERMINAL_WIDTH)
    title, caption, label = (svg.split_joined_emoji(line) for line in attention.heading)
    styled = ((title, "bold"), (caption, ""), (label, "dim"))
    lines = [
        Text(line, style=style)
        for text, style in styled
        if text and has_heading
        for line in svg.wrap(text, width)
    ]
    if attention.is_empty:
        lines.append(Text(svg.NOTHING_TO_DRAW, style="dim"))
        return _join(lines)
    tiles = list(_tiles(attention, width, has_color))
    tile_width = max(line.cell_len for tile in tiles for line in tile)
    columns = max(1, (width + GAP) // (tile_width + GAP))
    for start in range(0, len(tiles), columns):
        lines.append(Text())
        for parts in zip(*tiles[start : start + columns], strict=True):
            line = Text()
            for index, part in enumerate(parts):
                line.append(" " * ((tile_width + GAP) * index - line.cell_len))
                line.append_text(part)
            line.rstrip()
            lines.append(line)
    lines.append(Text())
    legend = textwrap.wrap(_legend(attention, has_color), width)
    return _join([*lines, *(Text(line, style="dim") for line in legend)])


def _legend(attention: ImageAttention, has_color: bool) -> str:
    scale = "relative to the largest cell of the word (max: its weight)"
    if not has_color:
        return f"shade: attention, {scale}"
    if attention.rgb is None:
        return f"filled: attention, {scale}"
    return f"colors: attention, {scale}; gray: none"


def _tiles(attention: ImageAttention, width: int, has_color: bool) -> Iterator[list[Text]]:
    """Yield for each word its label, its note and the lines of its image, all of equal number."""
    height, columns = _tile_size(attention, width, has_color)
    image = attention.rgb if has_color else None
    small = None if image is None else raster.to_pixels(raster.resize(image, height, columns))
    if small is not None:
        yield _tile("(picture)", "", raster.half_blocks(small), width)
    for word, note, strength in zip(
        attention.words, attention.notes, attention.strengths, strict=True
    ):
        if not has_color:
            drawn = _shades(strength, width)
        elif small is None:
            drawn = raster.half_blocks(_grid_pixels(strength, height, columns))
        else:
            shown = raster.resize(strength, height, columns)
            drawn = raster.half_blocks(raster.blend_attention(small, shown))
        yield _tile(escape_invisible(word), note, drawn, width)


def _tile_size(attention: ImageAttention, width: int, has_color: bool) -> tuple[int, int]:
    """Return the height and width of a tile in pixels."""
    rows, columns = attention.size
    max_width = min(MAX_TILE_WIDTH, width)
    size = raster.fit_size(rows, columns, max_height=MAX_TILE_HEIGHT, max_width=max_width)
    if attention.rgb is None:
        scale = max(1, size[0] // rows)  # cells of equal size
        return (rows * scale, columns * scale) if columns * scale <= width else size
    return size


def _tile(label: str, note: str, drawn: list[Text], width: int) -> list[Text]:
    tile_width = min(width, max(MIN_TILE_WIDTH, drawn[0].cell_len))
    label = svg.truncate(svg.split_joined_emoji(label), tile_width)
    padding = " " * (tile_width - cell_len(label))
    return [Text(label + padding, style="bold"), Text(note, style="dim"), *drawn]


def _grid_pixels(
    strength: Float[np.ndarray, "rows columns"], height: int, width: int
) -> np.ndarray:
    cells = raster.repeat_cells(strength, height, width)[..., None]
    empty, full = (raster.hex_to_rgb(c) for c in (svg.LIGHT.empty_cell, svg.LIGHT.full_cell))
    return raster.to_pixels(empty + cells * (full - empty))


def _shades(strength: Float[np.ndarray, "rows columns"], width: int) -> list[Text]:
    """Return two characters for each cell, about as wide as high; one if two do not fit."""
    rows, columns = strength.shape
    if columns > width:
        strength = raster.resize(strength, rows, width)
    levels = (strength * (len(SHADES) - 1)).round().astype(int)
    repeats = 2 if 2 * columns <= width else 1
    return [Text("".join(repeats * SHADES[level] for level in row)) for row in levels.tolist()]
