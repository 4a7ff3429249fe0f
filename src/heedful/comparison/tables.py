"""The table of a comparison in Markdown, CSV, LaTeX and HTML.

Columns are the metrics and then the costs, in the form of Vaswani et al. 2017, table 2. Invariants:
the best cells of a column are all that are printed like the best value, so equal numbers are either
all bold or none is; names are escaped in each format; CSV reads back exactly.
"""

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
from heedful.plotting import html
from heedful.plotting.charts import LIGHT_LINE_COLORS, MARKER_PATHS, MAX_LINES
from heedful.plotting.svg import escape_line

NOT_AVAILABLE = "-"
_SMALL = 10.0  # metrics that stay below it, such as bits per character, get another digit


class Cell(NamedTuple):
    """The number of a system in one column."""

    text: str  # with the standard deviation, if there is one
    value: float | None  # None if unknown
    is_best: bool = False
    mark: str = ""  # of a significant difference from the baseline

    @property
    def number(self) -> str:
        """The text without the standard deviation."""
        return self.text.partition(" +- ")[0]


class Column(NamedTuple):
    """One number of each system."""

    name: str
    cells: list[Cell]
    direction: Direction


def make_columns(comparison: Comparison) -> list[Column]:
    """Return each column: metrics in their order, then costs."""
    costs = [system.cost for system in comparison.systems]
    parameters = [RunStatistics(cost.num_parameters) for cost in costs]
    _, _, seconds, flops, memory, speeds, token_speeds = zip(*costs, strict=True)
    return [
        *map(_metric_column, zip(*(system.scores for system in comparison.systems), strict=True)),
        _cost_column("training FLOPs", flops, format_scientific),
        _cost_column("seconds", seconds, _format_seconds),
        _cost_column("memory", memory, _format_bytes),
        _cost_column("parameters", parameters, _format_millions),
        _cost_column("sentences/s", speeds, _format_rounded, "higher"),
        _cost_column("tokens/s", token_speeds, _format_rounded, "higher"),
    ]


def _metric_column(scores: Sequence[SystemScore]) -> Column:
    digits = 2 if max(abs(score.stats.mean) for score in scores) >= _SMALL else 3
    cells = []
    for score in scores:
        numbers = [f"{number:.{digits}f}" for number in score.stats if number is not None]
        cells.append(Cell(" +- ".join(numbers), score.stats.mean, mark=_mark(score)))
    return _mark_best(Column(scores[0].score.name, cells, scores[0].direction))


def _mark(score: SystemScore) -> str:
    return SIGNIFICANCE_MARK if score.difference and score.difference.is_significant else ""


def _cost_column(
    name: str,
    costs: Sequence[RunStatistics | None],
    format_number: Callable[[float], str],
    direction: Direction = "lower",
) -> Column:
    unknown = Cell(NOT_AVAILABLE, None)
    cells = [Cell(format_number(cost.mean), cost.mean) if cost else unknown for cost in costs]
    return _mark_best(Column(name, cells, direction))


def _mark_best(column: Column) -> Column:
    values = [(cell.value, cell.number) for cell in column.cells if cell.value is not None]
    if len({text for _, text in values}) < 2:  # where all are equal, none is the best
        return column
    _, best = (max if column.direction == "higher" else min)(values)
    cells = [cell._replace(is_best=cell.number == best) for cell in column.cells]
    return column._replace(cells=cells)


def format_scientific(number: float) -> str:
    """Format a large number by its power of ten: 2.3e19."""
    digits, _, power = f"{number:.1e}".partition("e")
    return f"{digits}e{int(power)}"


def _format_seconds(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}"


def _format_bytes(count: float) -> str:
    return f"{count / (1 << 30):.2f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"


def _format_millions(count: float) -> str:
    return f"{count / 1e6:,.2f} M" if count >= 1e5 else f"{count:,.0f}"


def _format_rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _all_scores(comparison: Comparison) -> list[SystemScore]:
    return [score for system in comparison.systems for score in system.scores]


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """Yield the notes of the table: test set, budget, runs, significance test."""
    yield f"tested on {comparison.test_set}"
    if comparison.budget:
        yield f"budget of each run: {comparison.budget}"
    scores = comparison.systems[0].scores
    if lower := [score.score.name for score in scores if score.direction == "lower"]:
        yield f"lower is better: {', '.join(lower)}"
    counts = sorted({len(system.runs) for system in comparison.systems})
    if counts[-1] > 1:
        runs = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        yield f"means +- standard deviations of {runs} runs"
    scores = _all_scores(comparison)
    if any(score.difference for score in scores):
        prefix = f"{SIGNIFICANCE_MARK} differs" if any(map(_mark, scores)) else "nothing differs"
        yield (
            f"{prefix} from {comparison.baseline} with p < {SIGNIFICANCE_LEVEL:g}, "
            f"by approximate randomization ({NUM_TRIALS} trials)"
        )
    for name, run, message in comparison.failures:
        yield f"failed: {name} ({run}): {message}"


# ----- Markdown, LaTeX, CSV -----

_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|~&]")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_POWER = re.compile(r"(-?\d+\.\d)e(-?\d+)")


def to_markdown(comparison: Comparison) -> str:
    """Return a Markdown table with the best in bold, and notes."""
    header, *rows = _rows(comparison, _escape_markdown, _markdown_cell)
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    notes = "".join(f"- {_escape_markdown(note)}\n" for note in comparison_notes(comparison))
    return f"{table}\n{notes}"


def to_latex(comparison: Comparison) -> str:
    """Return a LaTeX table of the package booktabs, with the notes as comments."""
    header, *rows = _rows(comparison, _escape_latex, _latex_cell)
    notes = "".join(f"% {' '.join(note.split())}\n" for note in comparison_notes(comparison))
    body = "".join(f"{' & '.join(row)} \\\\\n" for row in rows)
    alignment = f"l{'r' * (len(header) - 1)}"
    return (
        f"% needs \\usepackage{{booktabs}}\n{notes}\\begin{{tabular}}{{{alignment}}}\n"
        f"\\toprule\n{' & '.join(header)} \\\\\n\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    )


def _rows(
    comparison: Comparison, escape: Callable[[str], str], format_cell: Callable[[Cell], str]
) -> list[list[str]]:
    columns = make_columns(comparison)
    rows = [[escape(name) for name in ("system", *(column.name for column in columns))]]
    for index, system in enumerate(comparison.systems):
        cells = [format_cell(column.cells[index]) for column in columns]
        rows.append([escape(system.name), *cells])
    return rows


def _escape_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def _markdown_cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.is_best else cell.text
    return f"{text}{_escape_markdown(cell.mark)}"


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def _latex_cell(cell: Cell) -> str:
    if cell.text == NOT_AVAILABLE:
        return "--"
    if power := _POWER.fullmatch(cell.text):
        number = f"{power[1]} \\cdot 10^{{{power[2]}}}"
        return f"$\\mathbf{{{number}}}$" if cell.is_best else f"${number}$"
    text = cell.text.replace(" +- ", r" $\pm$ ")
    cell_text = f"\\textbf{{{text}}}" if cell.is_best else text
    return f"{cell_text}$^{{*}}$" if cell.mark else cell_text


def to_csv(comparison: Comparison) -> str:
    """Return all numbers unrounded, with standard deviations and p-values; unknown ones empty."""
    rows = [_csv_row(system) for system in comparison.systems]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _csv_row(system: System) -> Mapping[str, str | float]:
    row: dict[str, str | float] = {"system": system.name, "runs": len(system.runs)}

    def add(name: str, stats: RunStatistics | None) -> None:
        mean, std = stats or ("", None)
        row[name], row[f"{name} std"] = mean, "" if std is None else std

    for score in system.scores:
        add(score.score.name, score.stats)
        row[f"{score.score.name} p"] = score.difference.p_value if score.difference else ""
    num_parameters, steps, seconds, flops, memory, sentences, tokens = system.cost
    costs = {"training FLOPs": flops, "steps": steps, "seconds": seconds, "memory": memory}
    for name, stats in {**costs, "sentences/s": sentences, "tokens/s": tokens}.items():
        add(name, stats)
    return {**row, "parameters": num_parameters}


# ----- HTML -----


def system_header(system: System, index: int, *, has_summary: bool = False) -> Element:
    """Return a system as the header of a row, with its marker from the plots."""
    name = escape_line(system.name)
    label: list[Element | str] = [name]
    if index < MAX_LINES:
        marker = MARKER_PATHS[index % len(MARKER_PATHS)]
        css_class = f"marker line-{index % len(LIGHT_LINE_COLORS)}"
        path = html.element("path", css_class=css_class, attributes={"d": marker})
        swatch = {"viewBox": "-6 -6 12 12", "aria-hidden": "true"}
        label.insert(0, html.element("svg", path, css_class="swatch", attributes=swatch))
    button = {"type": "button", "aria-pressed": "false", "data-name": name}
    parts = [html.element("button", *label, css_class="system", attributes=button)]
    if has_summary and system.summary:
        parts.append(html.element("small", escape_line(system.summary)))
    return html.row_header(*parts)


def render_table(comparison: Comparison) -> Element:
    """Return the sortable table of each system.

    A cell carries its number as `data-value`, a header its direction, so that a click can sort.
    """
    columns = make_columns(comparison)
    head = []
    titles = [("system", ""), *((column.name, column.direction) for column in columns)]
    for name, direction in titles:
        button = html.element("button", name, attributes={"type": "button"})
        sorting = {"data-better": direction, "aria-sort": "none"}
        head.append(html.column_header(button, attributes=sorting))
    rows = []
    for index, system in enumerate(comparison.systems):
        cells = [_table_cell(column, index) for column in columns]
        rows.append([system_header(system, index, has_summary=True), *cells])
    caption = "Quality and cost of every system"
    table = html.table(head, rows, css_class="plain sortable", caption=caption)
    return html.element("sortable-table", table)


def _table_cell(column: Column, index: int) -> Element:
    cell = column.cells[index]
    number, sign, std = cell.text.partition(" +- ")
    parts: list[Element | str] = [html.element("b", number) if cell.is_best else number]
    if any(other.mark for other in column.cells):
        parts.append(html.element("sup", cell.mark))
    if sign:
        parts.append(html.element("small", f" \u00b1 {std}"))
    value = "" if as_finite_float(cell.value) is None else repr(cell.value)
    return html.element("td", *parts, attributes={"data-value": value})


def footnotes(comparison: Comparison) -> Iterator[str]:
    """Yield the legend of the HTML table."""
    yield "Bold: the best of a column. Click a header to sort by it."
    scores = _all_scores(comparison)
    if lower := {score.score.name: None for score in scores if score.direction == "lower"}:
        yield f"Lower is better: {', '.join(map(escape_line, lower))}."
    if any(score.stats.std is not None for score in scores):
        yield "\u00b1: one standard deviation over the runs of a system."
    if any(score.difference for score in scores):
        prefix = f"{SIGNIFICANCE_MARK}: differs" if any(map(_mark, scores)) else "No system differs"
        yield (
            f"{prefix} from {escape_line(comparison.baseline)} with p < {SIGNIFICANCE_LEVEL:g}, by "
            f"approximate randomization ({NUM_TRIALS:,} trials); p is the probability of a "
            "difference at least as large between two equally good systems."
        )


def render_differences(comparison: Comparison) -> Element | None:
    """Return the differences from the baseline with p-values and confidence intervals, if any."""
    scores = _all_scores(comparison)
    intervals = [score.interval for score in scores if score.interval]
    if not intervals and not any(score.difference for score in scores):
        return None
    rows = []
    for index, system in enumerate(comparison.systems):
        default = "baseline" if system.name == comparison.baseline else NOT_AVAILABLE
        cells = [_difference_cell(score, default) for score in system.scores]
        rows.append([system_header(system, index), *cells])
    caption = f"Differences from {escape_line(comparison.baseline)}, with p-values"
    if intervals:
        level = 100 * max(interval.level for interval in intervals)
        caption += f"; in brackets, the {level:g} % confidence interval of the score"
    metrics = [score.score.name for score in comparison.systems[0].scores]
    head = [html.column_header(name) for name in ("system", *metrics)]
    return html.table(head, rows, css_class="plain", caption=caption)


def _difference_cell(score: SystemScore, default: str) -> Element:
    parts: list[Element | str] = [default]
    if score.difference:
        text = f"{score.difference.value:+.2f}, p = {score.difference.p_value:.4f}"
        parts = [text, html.element("sup", _mark(score))]
    if score.interval:
        low, high, _ = score.interval
        parts.append(html.element("small", f" [{low:.2f}, {high:.2f}]"))
    return html.element("td", *parts)


def render_length_table(comparison: Comparison) -> Element | None:
    """Return the main metric by source length, if there is one."""
    if not (groups := length_groups(comparison)):
        return None
    rows = [[system_header(system, index)] for index, system in enumerate(comparison.systems)]
    head = [html.column_header("system")]
    main = [system.scores[0] for system in comparison.systems]
    by_system = [{name: as_finite_float(v) for name, _, v in score.by_length} for score in main]
    for name, size in groups.items():
        values = [scores.get(name) for scores in by_system]
        cells = [Cell(NOT_AVAILABLE if v is None else f"{v:.2f}", v) for v in values]
        column = _mark_best(Column(name, cells, main[0].direction))
        for row, cell in zip(rows, column.cells, strict=True):
            text = html.element("b", cell.text) if cell.is_best else cell.text
            row.append(html.element("td", text))
        head.append(html.column_header(name, html.element("small", f" n={size:,}")))
    caption = f"{main[0].score.name} by words of the source; n: number of sentences"
    return html.table(head, rows, css_class="plain", caption=caption)
