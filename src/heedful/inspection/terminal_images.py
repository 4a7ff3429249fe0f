"""Images of a caption's attention in the terminal: half blocks, or shades without colors.

Invariant: no line is wider than the terminal, and the largest weight of each word is readable
without color.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from heedful.plotting import raster, svg
from heedful.plotting.svg import escape_invisible

if TYPE_CHECKING:
    from heedful.inspection.image_attention import ImageAttention
    from heedful.shapes import Float  # at run time it would import torch

MIN_TERMINAL_WIDTH = 24
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


def _join(lines: list[Text]) -> Text:
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


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
