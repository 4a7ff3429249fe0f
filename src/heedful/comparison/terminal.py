"""The terminal's table: a comparison as people see it at once.

Columns that do not fit side by side go into a further table below, each beginning with the names of
the systems. Law: no line is wider than it may be, unless one column alone is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heedful.comparison.columns import Column, columns
from heedful.comparison.remarks import remarks
from heedful.comparison.results import Comparison

WIDTH = 100
_FIRST = "system"
_BETWEEN = 2  # blanks between columns: one of padding, one of the box


def print_table(comparison: Comparison, console: Console, *, width: int = WIDTH) -> None:
    """Print the table, in as many parts as it takes, and the remarks."""
    names = [system.name for system in comparison.systems]
    room = width - max(map(cell_len, [*names, _FIRST]))
    for part in _parts(columns(comparison), room):
        console.print(_table(names, part), no_wrap=True, crop=False, overflow="ignore")
        console.print()
    for remark in remarks(comparison):
        console.print(Text(remark), soft_wrap=True)


def _parts(found: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """Part columns, in order, so that each part fits into the room."""
    part, taken = list[Column](), 0
    for column in found:
        width = _width(column) + _BETWEEN
        if part and taken + width > room:
            yield part
            part, taken = [], 0
        part.append(column)
        taken += width
    yield part


def _width(column: Column) -> int:
    return max(cell_len(column.name), *(cell.cell_len for cell in _texts(column)))


def _table(names: Sequence[str], part: Sequence[Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(Text(_FIRST), no_wrap=True)
    for column in part:
        table.add_column(Text(column.name), justify="right", no_wrap=True)
    for name, *cells in zip(names, *map(_texts, part), strict=True):
        table.add_row(Text(name), *cells)
    return table


def _texts(column: Column) -> list[Text]:
    """The cells of a column, with room for marks behind all of them if there is one."""
    blank = " " if any(cell.mark for cell in column.cells) else ""
    return [
        Text(f"{cell.text}{cell.mark or blank}", style="bold" if cell.is_best else "")
        for cell in column.cells
    ]
