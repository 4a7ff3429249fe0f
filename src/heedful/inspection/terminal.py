"""Pictures for the terminal: where each word looked, in characters.

The number in a cell is the weight as a rounded percentage, so the picture says the same in
colour, in black and white, and as copied text. Source words hang over their columns like flags;
a source too wide for the terminal is drawn in several bands.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from heedful.inspection.attention_map import AttentionMap
from heedful.plotting.svg import (
    LIGHT,
    NOTHING_TO_DRAW,
    TRACE_MARK,
    digit_color,
    escape_invisible,
    escape_line,
    format_percent,
    split_joined_emoji,
    truncate,
    weight_color,
)

if TYPE_CHECKING:
    from heedful.shapes import Float  # at run time it would import torch

CELL_WIDTH = 4
MIN_LABEL_GAP = 2  # the word and the rule of a column stand over the last digit of its cells
MIN_WIDTH = 24
MAX_LABEL_WIDTH = 20

_RULE = "\u2502"
_LEFT_TO_RIGHT_MARK = "\u200e"


def terminal_heatmap(attention_map: AttentionMap, *, width: int) -> Text:
    """Draw an attention map within a number of terminal columns (at least `MIN_WIDTH`)."""
    width = max(width, MIN_WIDTH)
    lines = _title(attention_map.title, width)
    if attention_map.is_empty:
        lines.append(Text(NOTHING_TO_DRAW, style="dim"))
    else:
        lines += _render_rows(attention_map, width) + _legend(width)
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def _title(title: str, width: int) -> list[Text]:
    label = truncate(split_joined_emoji(escape_line(title)), width)
    return [Text(_isolate_direction(label), style="bold"), Text()] if label else []


def _render_rows(attention_map: AttentionMap, width: int) -> list[Text]:
    targets = _labels(attention_map.target, longest=min(MAX_LABEL_WIDTH, width // 3))
    margin = max(map(cell_len, targets)) + 1
    sources = _labels(
        attention_map.source, longest=min(MAX_LABEL_WIDTH, width - margin - MIN_LABEL_GAP)
    )
    lines = []
    for columns in _split_columns(sources, max_width=width - margin):
        lines += _header_lines(sources[columns], margin)
        lines += _rows(targets, attention_map.weights, columns=columns, margin=margin)
        lines.append(Text())
    return lines


def _labels(tokens: Sequence[str], *, longest: int) -> list[str]:
    return [truncate(split_joined_emoji(escape_invisible(token)), longest) for token in tokens]


def _split_columns(sources: Sequence[str], *, max_width: int) -> list[slice]:
    """Divide the columns so that every cell and every flag of a band fits in the room."""
    starts = [0]
    for column, source in enumerate(sources):
        left = CELL_WIDTH * (column - starts[-1])
        if (
            column > starts[-1]
            and left + max(CELL_WIDTH, MIN_LABEL_GAP + cell_len(source)) > max_width
        ):
            starts.append(column)
    return [slice(*ends) for ends in zip(starts, [*starts[1:], len(sources)], strict=True)]


# --- the source, across the top ------------------------------------------------------------


def _header_lines(sources: Sequence[str], margin: int) -> list[Text]:
    levels = _header_levels(sources)
    return [_header_line(line, levels, sources, margin=margin) for line in range(max(levels) + 1)]


def _header_levels(sources: Sequence[str]) -> list[int]:
    """Find for each word the highest line from which its rule hangs free of earlier words."""
    levels: list[int] = []
    ends: list[int] = []  # where the last word on each line ends
    for column, source in enumerate(sources):
        mast = CELL_WIDTH * column + MIN_LABEL_GAP
        blocked = [line for line, end in enumerate(ends) if end >= mast]
        level = blocked[-1] + 1 if blocked else 0
        ends[level : level + 1] = [mast + cell_len(source)]
        levels.append(level)
    return levels


def _header_line(line: int, levels: Sequence[int], sources: Sequence[str], *, margin: int) -> Text:
    drawn = Text(" " * margin)
    for column, (level, source) in enumerate(zip(levels, sources, strict=True)):
        if level <= line:
            mast = margin + CELL_WIDTH * column + MIN_LABEL_GAP
            drawn.append(" " * (mast - drawn.cell_len))
            flag, style = (_isolate_direction(source), "bold") if level == line else (_RULE, "dim")
            drawn.append(flag, style=style)
    return drawn


def _isolate_direction(label: str) -> str:
    """Keep a right-to-left word from drawing its neighbours into its own direction."""
    if any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in label):
        return _LEFT_TO_RIGHT_MARK + label + _LEFT_TO_RIGHT_MARK
    return label


# --- the target, downwards -----------------------------------------------------------------


def _rows(
    targets: Sequence[str],
    weights: Float[np.ndarray, "T S"],
    *,
    columns: slice,
    margin: int,
) -> list[Text]:
    rows = []
    for target, row in zip(targets, weights.tolist(), strict=True):
        drawn = Text(" " * (margin - 1 - cell_len(target)) + _isolate_direction(target) + " ")
        for weight in row[columns]:
            drawn.append(_cell(weight, is_strongest=weight == max(row)))
        rows.append(drawn)
    return rows


def _cell(weight: float, *, is_strongest: bool) -> Text:
    colours = f"{digit_color(LIGHT, weight)} on {weight_color(LIGHT, weight)}"
    return Text(
        f"{format_percent(weight):>3} ", style=f"bold {colours}" if is_strongest else colours
    )


# --- the scale -----------------------------------------------------------------------------


def _legend(width: int) -> list[Text]:
    scale = Text.assemble(
        *(_cell(weight, is_strongest=False) for weight in (0.001, 0.25, 0.5, 0.75, 1.0)), "  "
    )
    words = f"percent of a word's attention ({TRACE_MARK} under half, blank none)"
    first, *rest = textwrap.wrap(words, width, initial_indent=" " * scale.cell_len)
    scale.append(first.lstrip(), style="dim")
    return [scale, *(Text(line, style="dim") for line in rest)]
