"""Tables of the page: every number of a comparison, under headers that sort it.

The columns are those of the other tables (`columns`). A cell carries its number as `data-value`, a
header which way is better, so that a click can bring the best to the top.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from heedful.comparison.columns import NOT_TOLD, Cell, Column, columns
from heedful.comparison.markup import column_header, node, row_header, table
from heedful.comparison.plots import length_groups
from heedful.comparison.results import Comparison, Judged, System
from heedful.evaluation.sheet import MARK
from heedful.evaluation.significance import LEVEL, TRIALS
from heedful.inspection.chart import LIGHT_LINES, MARKS, MOST_LINES
from heedful.inspection.labels import visible_line
from heedful.inspection.run_curves import number


def name_of(system: System, look: int, *, summary: bool = False) -> Element:
    """A system as the head of a row, with the mark that it has in the plots."""
    name = visible_line(system.name)
    held = {"type": "button", "aria-pressed": "false", "data-name": name}
    parts = [node("button", *_mark(look), name, look="system", attributes=held)]
    if summary and system.summary:
        parts.append(node("small", visible_line(system.summary)))
    return row_header(*parts)


def _mark(look: int) -> list[Element]:
    if look >= MOST_LINES:
        return []
    path = node("path", look=f"mark line-{look % len(LIGHT_LINES)}")
    path.set("d", MARKS[look % len(MARKS)])
    about = {"viewBox": "-6 -6 12 12", "aria-hidden": "true"}
    return [node("svg", path, look="swatch", attributes=about)]


# --- the table -----------------------------------------------------------------------------


def draw_table(comparison: Comparison) -> Element:
    """Every system, with what it is worth and what it cost."""
    told = columns(comparison)
    head = [_sorting("system", ""), *(_sorting(each.name, each.better) for each in told)]
    rows = [
        [name_of(system, look, summary=True), *(_cell(each, look) for each in told)]
        for look, system in enumerate(comparison.systems)
    ]
    return table(head, rows, look="plain sortable", caption="Quality and cost of every system")


def _sorting(name: str, better: str) -> Element:
    button = node("button", name, attributes={"type": "button"})
    return column_header(button, attributes={"data-better": better, "aria-sort": "none"})


def _cell(column: Column, row: int) -> Element:
    cell = column.cells[row]
    value = "" if number(cell.value) is None else repr(cell.value)
    is_marked = any(each.mark for each in column.cells)
    return node("td", *_written(cell, is_marked), attributes={"data-value": value})


def _written(cell: Cell, is_marked: bool) -> Iterator[Element | str]:
    main, sign, deviation = cell.text.partition(" +- ")
    yield node("b", main) if cell.is_best else main
    if is_marked:
        yield node("sup", cell.mark)
    if sign:
        yield node("small", f" \u00b1 {deviation}")


def footnotes(comparison: Comparison) -> Iterator[str]:
    """What the signs in the table mean."""
    yield "Bold: the best of a column. Click a header to sort by it."
    judged = [each for system in comparison.systems for each in system.judged]
    if lower := {each.metric.name: None for each in judged if each.better == "lower"}:
        yield f"Lower is better: {', '.join(map(visible_line, lower))}."
    if any(each.over.deviation is not None for each in judged):
        yield "\u00b1: one standard deviation over the runs of a system."
    differences = [each.difference for each in judged if each.difference]
    if differences:
        is_marked = any(each.is_significant for each in differences)
        who = f"{MARK}: differs" if is_marked else "No system differs"
        yield (
            f"{who} from {visible_line(comparison.baseline)} with p < {LEVEL:g}, by approximate "
            f"randomisation ({TRIALS:,} trials); p is how often a difference at least as large "
            "would come about by chance, were the two equally good."
        )


# --- differences ---------------------------------------------------------------------------


def draw_differences(comparison: Comparison) -> Element | None:
    """How far each system is from the baseline by each metric, and how likely that is by chance."""
    every = [judged for system in comparison.systems for judged in system.judged]
    if not any(judged.difference or judged.interval for judged in every):
        return None
    metrics = [judged.metric.name for judged in comparison.systems[0].judged]
    rows = [
        [
            name_of(system, look),
            *(node("td", *_difference(judged, comparison, system)) for judged in system.judged),
        ]
        for look, system in enumerate(comparison.systems)
    ]
    caption = f"Differences from {visible_line(comparison.baseline)}, with p-values"
    if levels := {judged.interval.level for judged in every if judged.interval}:
        caption += f"; in brackets, the score's {100 * max(levels):g} % interval over sentences"
    head = [column_header("system"), *map(column_header, metrics)]
    return table(head, rows, look="plain", caption=caption)


def _difference(judged: Judged, comparison: Comparison, system: System) -> Iterator[Element | str]:
    if judged.difference is None:
        yield "baseline" if system.name == comparison.baseline else NOT_TOLD
    else:
        mark = MARK if judged.difference.is_significant else ""
        yield f"{judged.difference.value:+.2f}, p = {judged.difference.p:.4f}"
        yield node("sup", mark)
    if judged.interval:
        yield node("small", f" [{judged.interval.low:.2f}, {judged.interval.high:.2f}]")


# --- by length -----------------------------------------------------------------------------


def draw_by_length(comparison: Comparison) -> Element | None:
    """The metric that decides, by the length of the source."""
    groups = length_groups(comparison)
    if not groups:
        return None
    measured = [_by_group(system) for system in comparison.systems]
    best = {name: _best(comparison, [found.get(name) for found in measured]) for name in groups}
    rows = [
        [name_of(system, look), *(_score(found.get(name), best[name]) for name in groups)]
        for look, (system, found) in enumerate(zip(comparison.systems, measured, strict=True))
    ]
    sizes = [column_header(name, node("small", f" n={size:,}")) for name, size in groups.items()]
    caption = f"{comparison.systems[0].judged[0].metric.name} by words of the source; n: sentences"
    return table([column_header("system"), *sizes], rows, look="plain", caption=caption)


def _by_group(system: System) -> dict[str, float]:
    told = ((name, number(score)) for name, _, score in system.judged[0].by_length)
    return {name: score for name, score in told if score is not None}


def _best(comparison: Comparison, scores: Sequence[float | None]) -> str | None:
    """How the best score reads; nothing is best where all are alike."""
    known = [score for score in scores if score is not None]
    if len({f"{score:.2f}" for score in known}) < 2:
        return None
    is_higher = comparison.systems[0].judged[0].better == "higher"
    return f"{(max if is_higher else min)(known):.2f}"


def _score(score: float | None, best: str | None) -> Element:
    text = NOT_TOLD if score is None else f"{score:.2f}"
    return node("td", node("b", text) if text == best else text)
