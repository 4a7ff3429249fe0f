"""Columns: what stands in the table of a comparison, whatever it is written as?

Quality by each metric, and beside it what it cost: the form of Vaswani et al. 2017, table 2. A
column has a cell for each system. Law: the best cells of a column are those that read like the cell
of the best value, so that no reader sees two equal numbers of which one is bold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from heedful.comparison.results import Comparison, Judged, Over
from heedful.evaluation.measures import Direction
from heedful.evaluation.sheet import MARK

NOT_TOLD = "-"
_SMALL = 10.0  # metrics that stay below it, such as bits per character, get a digit more


class Cell(NamedTuple):
    """What one system has in one column."""

    text: str  # as written, with its deviation where there is one
    value: float | None  # None where the runs have not told
    is_best: bool = False
    mark: str = ""  # of a significant difference from the baseline


class Column(NamedTuple):
    """One number of every system."""

    name: str
    cells: list[Cell]  # one for each system, in order
    better: Direction


def columns(comparison: Comparison) -> list[Column]:
    """Every column: metrics in their order, then costs."""
    systems = comparison.systems
    judged = zip(*(system.judged for system in systems), strict=True)
    costs = [system.cost for system in systems]
    return [
        *map(_of_metric, judged),
        _of_cost("training FLOPs", [cost.operations for cost in costs], in_powers),
        _of_cost("seconds", [cost.seconds for cost in costs], _in_seconds),
        _of_cost("memory", [cost.memory for cost in costs], _in_bytes),
        _of_cost("parameters", [Over(cost.parameters) for cost in costs], _in_millions),
        _of_cost("sentences/s", [cost.sentences_per_second for cost in costs], _rounded, "higher"),
        _of_cost("tokens/s", [cost.tokens_per_second for cost in costs], _rounded, "higher"),
    ]


def in_powers(number: float) -> str:
    """Write a large number by its power of ten: 2.3e19."""
    digits, _, power = f"{number:.1e}".partition("e")
    return f"{digits}e{int(power)}"


def _of_metric(judged: Sequence[Judged]) -> Column:
    digits = 2 if max(abs(each.over.mean) for each in judged) >= _SMALL else 3
    cells = [Cell(_with_deviation(each.over, digits), each.over.mean) for each in judged]
    marked = [
        cell._replace(mark=MARK if each.difference and each.difference.is_significant else "")
        for cell, each in zip(cells, judged, strict=True)
    ]
    return _with_best(Column(judged[0].metric.name, marked, judged[0].better))


def _of_cost(
    name: str,
    costs: Sequence[Over | None],
    write: Callable[[float], str],
    better: Direction = "lower",
) -> Column:
    cells = [Cell(write(over.mean), over.mean) if over else Cell(NOT_TOLD, None) for over in costs]
    return _with_best(Column(name, cells, better))


def _with_best(column: Column) -> Column:
    known = [(cell.value, _number(cell)) for cell in column.cells if cell.value is not None]
    if len({text for _, text in known}) < 2:  # where all are alike, none is the best
        return column
    _, best = (max if column.better == "higher" else min)(known)
    return column._replace(
        cells=[cell._replace(is_best=_number(cell) == best) for cell in column.cells]
    )


def _number(cell: Cell) -> str:
    """What is written of the value, without its deviation."""
    return cell.text.partition(" +- ")[0]


def _with_deviation(over: Over, digits: int) -> str:
    beside = "" if over.deviation is None else f" +- {over.deviation:.{digits}f}"
    return f"{over.mean:.{digits}f}{beside}"


def _in_seconds(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}"


def _in_bytes(count: float) -> str:
    return f"{count / (1 << 30):.2f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"


def _in_millions(count: float) -> str:
    return f"{count / 1e6:,.2f} M" if count >= 1e5 else f"{count:,.0f}"


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
