"""Attention maps in the terminal.

A cell shows its weight as a rounded percentage, so the map says the same in color, in black and
white, and as copied text. Source tokens stand above their columns, staggered over several lines; a
source too wide for the terminal is split into several maps, one below the other.
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
LABEL_OFFSET = 2  # the token and the rule of a column stand over the last digit of its cells
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
    targets = _labels(attention_map.target, max_width=min(MAX_LABEL_WIDTH, width // 3))
    margin = max(map(cell_len, targets)) + 1
    sources = _labels(
        attention_map.source, max_width=min(MAX_LABEL_WIDTH, width - margin - LABEL_OFFSET)
    )
    lines = []
    for columns in _split_columns(sources, max_width=width - margin):
        lines += _header_lines(sources[columns], margin)
        lines += _rows(targets, attention_map.weights, columns=columns, margin=margin)
        lines.append(Text())
    return lines


def _labels(tokens: Sequence[str], *, max_width: int) -> list[str]:
    return [truncate(split_joined_emoji(escape_invisible(token)), max_width) for token in tokens]


def _split_columns(sources: Sequence[str], *, max_width: int) -> list[slice]:
    """Split the columns so that every cell and every source token fits into the width."""
    starts = [0]
    for column, source in enumerate(sources):
        left = CELL_WIDTH * (column - starts[-1])
        if (
            column > starts[-1]
            and left + max(CELL_WIDTH, LABEL_OFFSET + cell_len(source)) > max_width
        ):
            starts.append(column)
    return [slice(*ends) for ends in zip(starts, [*starts[1:], len(sources)], strict=True)]


def _header_lines(sources: Sequence[str], margin: int) -> list[Text]:
    levels = _header_levels(sources)
    return [_header_line(line, levels, sources, margin=margin) for line in range(max(levels) + 1)]


def _header_levels(sources: Sequence[str]) -> list[int]:
    """Return for each token the highest line from which its rule crosses no earlier token."""
    levels: list[int] = []
    ends: list[int] = []  # of the last token on each line
    for column, source in enumerate(sources):
        column_x = CELL_WIDTH * column + LABEL_OFFSET
        crossed = [line for line, end in enumerate(ends) if end >= column_x]
        level = crossed[-1] + 1 if crossed else 0
        ends[level : level + 1] = [column_x + cell_len(source)]
        levels.append(level)
    return levels


def _header_line(line: int, levels: Sequence[int], sources: Sequence[str], *, margin: int) -> Text:
    line_text = Text(" " * margin)
    for column, (level, source) in enumerate(zip(levels, sources, strict=True)):
        if level <= line:
            column_x = margin + CELL_WIDTH * column + LABEL_OFFSET
            line_text.append(" " * (column_x - line_text.cell_len))
            label, style = (_isolate_direction(source), "bold") if level == line else (_RULE, "dim")
            line_text.append(label, style=style)
    return line_text


def _isolate_direction(label: str) -> str:
    """Keep a right-to-left token from changing the direction of its neighbors."""
    if any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in label):
        return _LEFT_TO_RIGHT_MARK + label + _LEFT_TO_RIGHT_MARK
    return label


def _rows(
    targets: Sequence[str],
    weights: Float[np.ndarray, "T S"],
    *,
    columns: slice,
    margin: int,
) -> list[Text]:
    rows = []
    for target, row in zip(targets, weights.tolist(), strict=True):
        line_text = Text(" " * (margin - 1 - cell_len(target)) + _isolate_direction(target) + " ")
        for weight in row[columns]:
            line_text.append(_cell(weight, is_strongest=weight == max(row)))
        rows.append(line_text)
    return rows


def _cell(weight: float, *, is_strongest: bool) -> Text:
    colors = f"{digit_color(LIGHT, weight)} on {weight_color(LIGHT, weight)}"
    return Text(f"{format_percent(weight):>3} ", style=f"bold {colors}" if is_strongest else colors)


def _legend(width: int) -> list[Text]:
    scale = Text.assemble(
        *(_cell(weight, is_strongest=False) for weight in (0.001, 0.25, 0.5, 0.75, 1.0)), "  "
    )
    words = f"percent of a token's attention ({TRACE_MARK} under half, blank none)"
    first, *rest = textwrap.wrap(words, width, initial_indent=" " * scale.cell_len)
    scale.append(first.lstrip(), style="dim")
    return [scale, *(Text(line, style="dim") for line in rest)]
