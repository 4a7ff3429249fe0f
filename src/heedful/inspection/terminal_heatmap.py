"""Attention maps in the terminal.

Invariant: no line is wider than the terminal, and each weight is readable without color.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from heedful.inspection.attention_map import MAX_COLUMNS, AttentionMap
from heedful.plotting import svg
from heedful.plotting.svg import escape_invisible, escape_line, format_percent

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
    drawn = Text("\n", no_wrap=True, overflow="ignore").join(lines)
    drawn.highlight_words([svg.SPACE_MARK], "dim")
    return drawn


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
