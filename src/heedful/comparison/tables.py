"""Columns: what stands in the table of a comparison, whatever it is written as?

Quality by each metric, and beside it what it cost: the form of Vaswani et al. 2017, table 2. A
column has a cell for each system. Law: the best cells of a column are those that read like the cell
of the best value, so that no reader sees two equal numbers of which one is bold.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from heedful.comparison.figures import length_groups
from heedful.comparison.results import Comparison, RunStatistics, System, SystemScore
from heedful.evaluation.base import Direction
from heedful.evaluation.score_table import SIGNIFICANCE_MARK
from heedful.evaluation.significance import NUM_TRIALS, SIGNIFICANCE_LEVEL
from heedful.inspection.training_curves import as_finite_float
from heedful.plotting.charts import LIGHT_LINE_COLORS, MARKER_PATHS, MAX_LINES
from heedful.plotting.html import column_header, make_element, make_table, row_header
from heedful.plotting.svg import escape_line

NOT_AVAILABLE = "-"
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
    direction: Direction


def make_columns(comparison: Comparison) -> list[Column]:
    """Every column: metrics in their order, then costs."""
    systems = comparison.systems
    judged = zip(*(system.scores for system in systems), strict=True)
    costs = [system.cost for system in systems]
    return [
        *map(_metric_column, judged),
        _cost_column("training FLOPs", [cost.training_flops for cost in costs], format_scientific),
        _cost_column("seconds", [cost.training_seconds for cost in costs], _format_seconds),
        _cost_column("memory", [cost.peak_memory for cost in costs], _format_bytes),
        _cost_column(
            "parameters", [RunStatistics(cost.num_parameters) for cost in costs], _format_millions
        ),
        _cost_column(
            "sentences/s", [cost.sentences_per_second for cost in costs], _format_rounded, "higher"
        ),
        _cost_column(
            "tokens/s", [cost.tokens_per_second for cost in costs], _format_rounded, "higher"
        ),
    ]


def format_scientific(number: float) -> str:
    """Write a large number by its power of ten: 2.3e19."""
    digits, _, power = f"{number:.1e}".partition("e")
    return f"{digits}e{int(power)}"


def _metric_column(scores: Sequence[SystemScore]) -> Column:
    digits = 2 if max(abs(each.stats.mean) for each in scores) >= _SMALL else 3
    cells = [Cell(_format_with_std(each.stats, digits), each.stats.mean) for each in scores]
    marked = [
        cell._replace(
            mark=SIGNIFICANCE_MARK if each.difference and each.difference.is_significant else ""
        )
        for cell, each in zip(cells, scores, strict=True)
    ]
    return _mark_best(Column(scores[0].score.name, marked, scores[0].direction))


def _cost_column(
    name: str,
    costs: Sequence[RunStatistics | None],
    write: Callable[[float], str],
    better: Direction = "lower",
) -> Column:
    cells = [
        Cell(write(over.mean), over.mean) if over else Cell(NOT_AVAILABLE, None) for over in costs
    ]
    return _mark_best(Column(name, cells, better))


def _mark_best(column: Column) -> Column:
    known = [(cell.value, _number(cell)) for cell in column.cells if cell.value is not None]
    if len({text for _, text in known}) < 2:  # where all are alike, none is the best
        return column
    _, best = (max if column.direction == "higher" else min)(known)
    return column._replace(
        cells=[cell._replace(is_best=_number(cell) == best) for cell in column.cells]
    )


def _number(cell: Cell) -> str:
    """What is written of the value, without its deviation."""
    return cell.text.partition(" +- ")[0]


def _format_with_std(stats: RunStatistics, digits: int) -> str:
    beside = "" if stats.std is None else f" +- {stats.std:.{digits}f}"
    return f"{stats.mean:.{digits}f}{beside}"


def _format_seconds(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}"


def _format_bytes(count: float) -> str:
    return f"{count / (1 << 30):.2f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"


def _format_millions(count: float) -> str:
    return f"{count / 1e6:,.2f} M" if count >= 1e5 else f"{count:,.0f}"


def _format_rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


# Remarks: what must a reader of the table know that does not stand in it?


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """What was tested and how, one remark after the other, in plain text."""
    yield f"tested on {comparison.test_set}"
    if comparison.budget:
        yield f"budget of each run: {comparison.budget}"
    yield from _score_notes(comparison)
    yield from _significance_notes(comparison)
    for name, run, problem in comparison.failures:
        yield f"failed: {name} ({run}): {problem}"


def _score_notes(comparison: Comparison) -> Iterator[str]:
    scores = comparison.systems[0].scores
    lower = [each.score.name for each in scores if each.direction == "lower"]
    if lower:
        yield f"lower is better: {', '.join(lower)}"
    counts = sorted({len(system.runs) for system in comparison.systems})
    if counts[-1] > 1:
        runs = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        yield f"means and +- deviations of {runs} runs"


def _significance_notes(comparison: Comparison) -> Iterator[str]:
    if any(each.difference for system in comparison.systems for each in system.scores):
        marked = any(cell.mark for column in make_columns(comparison) for cell in column.cells)
        which = f"{SIGNIFICANCE_MARK} differs" if marked else "nothing differs"
        yield (
            f"{which} from {comparison.baseline} with p < {SIGNIFICANCE_LEVEL:g}, by approximate randomisation "
            f"({NUM_TRIALS} trials)"
        )


# Tables: a comparison as Markdown, as CSV and as LaTeX.
#
# Markdown and LaTeX show what a reader of a paper looks for, with the best in bold; CSV holds the
# numbers themselves, with deviations and p. Laws: every system is a row and every column of
# `make_columns` is there; a name means itself in every form, whatever signs it is made of; what CSV holds
# reads back to the same numbers.

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


def to_markdown(comparison: Comparison) -> str:
    """A table of pipes and dashes, and the remarks below it."""
    header, *rows = _rows(comparison, _escape_markdown, _markdown_cell)
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    below = "".join(f"- {_escape_markdown(note)}\n" for note in comparison_notes(comparison))
    return f"{table}\n{below}"


def to_latex(comparison: Comparison) -> str:
    """A table of the package booktabs, with the remarks as comments above it."""
    header, *rows = _rows(comparison, _escape_latex, _latex_cell)
    above = "".join(f"% {' '.join(note.split())}\n" for note in comparison_notes(comparison))
    body = "".join(f"{' & '.join(row)} \\\\\n" for row in rows)
    columns_as = f"l{'r' * (len(header) - 1)}"
    return (
        f"% needs \\usepackage{{booktabs}}\n{above}\\begin{{tabular}}{{{columns_as}}}\n"
        f"\\toprule\n{' & '.join(header)} \\\\\n\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    )


def to_csv(comparison: Comparison) -> str:
    """All numbers as they are; what is not told is an empty field."""
    rows = [_csv_row(system) for system in comparison.systems]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _rows(
    comparison: Comparison, escape: Callable[[str], str], write: Callable[[Cell], str]
) -> list[list[str]]:
    found = make_columns(comparison)
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


def _markdown_cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.is_best else cell.text
    return f"{text}{_escape_markdown(cell.mark)}"


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))


def _latex_cell(cell: Cell) -> str:
    if cell.text == NOT_AVAILABLE:
        return "--"
    if power := _POWER.fullmatch(cell.text):
        number = f"{power[1]} \\cdot 10^{{{power[2]}}}"
        return f"$\\mathbf{{{number}}}$" if cell.is_best else f"${number}$"
    text = cell.text.replace(" +- ", r" $\pm$ ")
    shown = f"\\textbf{{{text}}}" if cell.is_best else text
    return f"{shown}$^{{*}}$" if cell.mark else shown


def _csv_row(system: System) -> Mapping[str, str | float]:
    cost = system.cost
    row: dict[str, str | float] = {"system": system.name, "runs": len(system.runs)}
    for each in system.scores:
        row |= _mean_and_std(each.score.name, each.stats)
        row[f"{each.score.name} p"] = "" if each.difference is None else each.difference.p_value
    cost_columns: Sequence[tuple[str, RunStatistics | None]] = [
        ("training FLOPs", cost.training_flops),
        ("steps", cost.steps),
        ("seconds", cost.training_seconds),
        ("memory", cost.peak_memory),
        ("sentences/s", cost.sentences_per_second),
        ("tokens/s", cost.tokens_per_second),
    ]
    for name, over in cost_columns:
        row |= _mean_and_std(name, over)
    return {**row, "parameters": cost.num_parameters}


def _mean_and_std(name: str, stats: RunStatistics | None) -> dict[str, str | float]:
    mean, deviation = stats or ("", None)
    return {name: mean, f"{name} deviation": "" if deviation is None else deviation}


# Tables of the page: every number of a comparison, under headers that sort it.
#
# The columns are those of the other tables (`make_columns`). A cell carries its number as `data-value`, a
# header which way is better, so that a click can bring the best to the top.


def system_header(system: System, style_index: int, *, summary: bool = False) -> Element:
    """A system as the head of a row, with the mark that it has in the plots."""
    name = escape_line(system.name)
    held = {"type": "button", "aria-pressed": "false", "data-name": name}
    parts = [
        make_element(
            "button", *_legend_marker(style_index), name, css_class="system", attributes=held
        )
    ]
    if summary and system.summary:
        parts.append(make_element("small", escape_line(system.summary)))
    return row_header(*parts)


def _legend_marker(style_index: int) -> list[Element]:
    if style_index >= MAX_LINES:
        return []
    path = make_element("path", css_class=f"mark line-{style_index % len(LIGHT_LINE_COLORS)}")
    path.set("d", MARKER_PATHS[style_index % len(MARKER_PATHS)])
    about = {"viewBox": "-6 -6 12 12", "aria-hidden": "true"}
    return [make_element("svg", path, css_class="swatch", attributes=about)]


# --- the table -----------------------------------------------------------------------------
def render_table(comparison: Comparison) -> Element:
    """Every system, with what it is worth and what it cost."""
    table_columns = make_columns(comparison)
    head = [
        _sortable_header("system", ""),
        *(_sortable_header(each.name, each.direction) for each in table_columns),
    ]
    rows = [
        [system_header(system, look, summary=True), *(_cell(each, look) for each in table_columns)]
        for look, system in enumerate(comparison.systems)
    ]
    return make_table(
        head, rows, css_class="plain sortable", caption="Quality and cost of every system"
    )


def _sortable_header(name: str, direction: str) -> Element:
    button = make_element("button", name, attributes={"type": "button"})
    return column_header(button, attributes={"data-better": direction, "aria-sort": "none"})


def _cell(column: Column, row: int) -> Element:
    cell = column.cells[row]
    value = "" if as_finite_float(cell.value) is None else repr(cell.value)
    is_marked = any(each.mark for each in column.cells)
    return make_element("td", *_format_cell(cell, is_marked), attributes={"data-value": value})


def _format_cell(cell: Cell, is_marked: bool) -> Iterator[Element | str]:
    main, sign, deviation = cell.text.partition(" +- ")
    yield make_element("b", main) if cell.is_best else main
    if is_marked:
        yield make_element("sup", cell.mark)
    if sign:
        yield make_element("small", f" \u00b1 {deviation}")


def footnotes(comparison: Comparison) -> Iterator[str]:
    """What the signs in the table mean."""
    yield "Bold: the best of a column. Click a header to sort by it."
    judged = [each for system in comparison.systems for each in system.scores]
    if lower := {each.score.name: None for each in judged if each.direction == "lower"}:
        yield f"Lower is better: {', '.join(map(escape_line, lower))}."
    if any(each.stats.std is not None for each in judged):
        yield "\u00b1: one standard deviation over the runs of a system."
    differences = [each.difference for each in judged if each.difference]
    if differences:
        is_marked = any(each.is_significant for each in differences)
        who = f"{SIGNIFICANCE_MARK}: differs" if is_marked else "No system differs"
        yield (
            f"{who} from {escape_line(comparison.baseline)} with p < {SIGNIFICANCE_LEVEL:g}, by approximate "
            f"randomisation ({NUM_TRIALS:,} trials); p is how often a difference at least as large "
            "would come about by chance, were the two equally good."
        )


# --- differences ---------------------------------------------------------------------------
def render_differences(comparison: Comparison) -> Element | None:
    """How far each system is from the baseline by each metric, and how likely that is by chance."""
    every = [judged for system in comparison.systems for judged in system.scores]
    if not any(judged.difference or judged.interval for judged in every):
        return None
    metrics = [judged.score.name for judged in comparison.systems[0].scores]
    rows = [
        [
            system_header(system, look),
            *(
                make_element("td", *_format_difference(judged, comparison, system))
                for judged in system.scores
            ),
        ]
        for look, system in enumerate(comparison.systems)
    ]
    caption = f"Differences from {escape_line(comparison.baseline)}, with p-values"
    if levels := {judged.interval.level for judged in every if judged.interval}:
        caption += f"; in brackets, the score's {100 * max(levels):g} % interval over sentences"
    head = [column_header("system"), *map(column_header, metrics)]
    return make_table(head, rows, css_class="plain", caption=caption)


def _format_difference(
    score: SystemScore, comparison: Comparison, system: System
) -> Iterator[Element | str]:
    if score.difference is None:
        yield "baseline" if system.name == comparison.baseline else NOT_AVAILABLE
    else:
        mark = SIGNIFICANCE_MARK if score.difference.is_significant else ""
        yield f"{score.difference.value:+.2f}, p = {score.difference.p_value:.4f}"
        yield make_element("sup", mark)
    if score.interval:
        yield make_element("small", f" [{score.interval.low:.2f}, {score.interval.high:.2f}]")


# --- by length -----------------------------------------------------------------------------
def render_length_table(comparison: Comparison) -> Element | None:
    """The metric that decides, by the length of the source."""
    groups = length_groups(comparison)
    if not groups:
        return None
    measured = [_by_group(system) for system in comparison.systems]
    best = {name: _best(comparison, [found.get(name) for found in measured]) for name in groups}
    rows = [
        [system_header(system, look), *(_score(found.get(name), best[name]) for name in groups)]
        for look, (system, found) in enumerate(zip(comparison.systems, measured, strict=True))
    ]
    sizes = [
        column_header(name, make_element("small", f" n={size:,}")) for name, size in groups.items()
    ]
    caption = f"{comparison.systems[0].scores[0].score.name} by words of the source; n: sentences"
    return make_table([column_header("system"), *sizes], rows, css_class="plain", caption=caption)


def _by_group(system: System) -> dict[str, float]:
    scores = ((name, as_finite_float(score)) for name, _, score in system.scores[0].by_length)
    return {name: score for name, score in scores if score is not None}


def _best(comparison: Comparison, scores: Sequence[float | None]) -> str | None:
    """How the best score reads; nothing is best where all are alike."""
    known = [score for score in scores if score is not None]
    if len({f"{score:.2f}" for score in known}) < 2:
        return None
    is_higher = comparison.systems[0].scores[0].direction == "higher"
    return f"{(max if is_higher else min)(known):.2f}"


def _score(score: float | None, best: str | None) -> Element:
    text = NOT_AVAILABLE if score is None else f"{score:.2f}"
    return make_element("td", make_element("b", text) if text == best else text)
