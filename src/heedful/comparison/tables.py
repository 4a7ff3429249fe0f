"""Tables: a comparison as Markdown, as CSV and as LaTeX.

Markdown and LaTeX show what a reader of a paper looks for, with the best in bold; CSV holds the
numbers themselves, with deviations and p. Laws: every system is a row and every column of
`columns` is there; a name means itself in every form, whatever signs it is made of; what CSV holds
reads back to the same numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence

from heedful.comparison.columns import NOT_TOLD, Cell, columns
from heedful.comparison.remarks import remarks
from heedful.comparison.results import Comparison, Over, System

_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|~&]")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_POWER = re.compile(r"(-?\d+\.\d)e(-?\d+)")


def as_markdown(comparison: Comparison) -> str:
    """A table of pipes and dashes, and the remarks below it."""
    header, *rows = _rows(comparison, _escape_markdown, _cell_in_markdown)
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    below = "".join(f"- {_escape_markdown(remark)}\n" for remark in remarks(comparison))
    return f"{table}\n{below}"


def as_latex(comparison: Comparison) -> str:
    """A table of the package booktabs, with the remarks as comments above it."""
    header, *rows = _rows(comparison, _escape_latex, _cell_in_latex)
    above = "".join(f"% {' '.join(remark.split())}\n" for remark in remarks(comparison))
    body = "".join(f"{' & '.join(row)} \\\\\n" for row in rows)
    columns_as = f"l{'r' * (len(header) - 1)}"
    return (
        f"% needs \\usepackage{{booktabs}}\n{above}\\begin{{tabular}}{{{columns_as}}}\n"
        f"\\toprule\n{' & '.join(header)} \\\\\n\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    )


def as_csv(comparison: Comparison) -> str:
    """All numbers as they are; what is not told is an empty field."""
    rows = [_numbers(system) for system in comparison.systems]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _rows(
    comparison: Comparison, escape: Callable[[str], str], write: Callable[[Cell], str]
) -> list[list[str]]:
    found = columns(comparison)
    header = [escape("system"), *(escape(column.name) for column in found)]
    cells = zip(*(column.cells for column in found), strict=True)
    return [
        header,
        *(
            [escape(system.name), *map(write, row)]
            for system, row in zip(comparison.systems, cells, strict=True)
        ),
    ]


def _escape_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def _cell_in_markdown(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.is_best else cell.text
    return f"{text}{_escape_markdown(cell.mark)}"


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))


def _cell_in_latex(cell: Cell) -> str:
    if cell.text == NOT_TOLD:
        return "--"
    if power := _POWER.fullmatch(cell.text):
        number = f"{power[1]} \\cdot 10^{{{power[2]}}}"
        return f"$\\mathbf{{{number}}}$" if cell.is_best else f"${number}$"
    text = cell.text.replace(" +- ", r" $\pm$ ")
    shown = f"\\textbf{{{text}}}" if cell.is_best else text
    return f"{shown}$^{{*}}$" if cell.mark else shown


def _numbers(system: System) -> Mapping[str, str | float]:
    cost = system.cost
    row: dict[str, str | float] = {"system": system.name, "runs": len(system.runs)}
    for each in system.judged:
        row |= _with_deviation(each.metric.name, each.over)
        row[f"{each.metric.name} p"] = "" if each.difference is None else each.difference.p
    told: Sequence[tuple[str, Over | None]] = [
        ("training FLOPs", cost.operations),
        ("steps", cost.steps),
        ("seconds", cost.seconds),
        ("memory", cost.memory),
        ("sentences/s", cost.sentences_per_second),
        ("tokens/s", cost.tokens_per_second),
    ]
    for name, over in told:
        row |= _with_deviation(name, over)
    return {**row, "parameters": cost.parameters}


def _with_deviation(name: str, over: Over | None) -> dict[str, str | float]:
    mean, deviation = over or ("", None)
    return {name: mean, f"{name} deviation": "" if deviation is None else deviation}
