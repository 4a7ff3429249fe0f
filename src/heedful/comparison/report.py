"""The report of a comparison: an HTML page, tables and JSON.

The page is one file that makes no network requests. Tables and figures are complete without its
script, which sorts, switches and highlights.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from heedful.comparison import figures, tables
from heedful.comparison.figures import Figure
from heedful.comparison.results import Comparison
from heedful.comparison.tables import system_header
from heedful.plotting import html
from heedful.plotting.charts import CHART_STYLE
from heedful.plotting.svg import escape_line
from heedful.storage.atomic import explain_os_errors, write_text

MAX_EXAMPLE_LENGTH = 200  # words of an output that are compared and shown
_EXACT_MATCH_MARK = "\u2713"  # a check mark


def save_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write comparison.json, table.csv, table.md, table.tex and report.html; return the paths."""
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # The numbers first: they may have taken hours.
    formats: Mapping[str, Callable[[Comparison], str]] = {
        "comparison.json": comparison_to_json,
        "table.csv": tables.to_csv,
        "table.md": tables.to_markdown,
        "table.tex": tables.to_latex,
        "report.html": render_comparison_page,
    }
    for name, render in formats.items():
        write_text(folder / name, render(comparison))
    return [folder / name for name in formats]


def comparison_to_json(comparison: Comparison) -> str:
    """Return everything under the field names of `results`; non-finite numbers become null."""
    return json.dumps(_to_plain(comparison), indent=2, allow_nan=False) + "\n"


def _to_plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return _to_plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(name): _to_plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_to_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def render_comparison_page(comparison: Comparison) -> str:
    """Return a self-contained HTML page."""
    by_flops = figures.plot_quality_vs_flops(comparison)
    by_speed = figures.plot_quality_vs_speed(comparison)
    length_parts = [_figure(figures.plot_quality_by_length(comparison))]
    if (length_table := tables.render_length_table(comparison)) is not None:
        length_parts.append(length_table)
    sections: list[tuple[str, str, Iterable[Element]]] = [
        ("table", "Systems", _table(comparison)),
        ("cost", "Quality and cost", map(_figure, [by_flops, by_speed])),
        ("length", "Quality and length", length_parts),
        ("learning", "Learning curves", _learning(comparison)),
        ("examples", "Examples", _examples(comparison)),
        ("reproduction", "How to reproduce this", _reproduction(comparison)),
    ]
    main = html.element(
        "main",
        html.element("p", _summary_sentence(comparison), css_class="summary"),
        html.key_figures(_key_figures(comparison)),
        *(
            html.element("section", html.element("h2", title), *parts, attributes={"id": name})
            for name, title, parts in sections
        ),
    )
    return html.render_page(
        html.serialize(main),
        title=comparison.title,
        styles=["attention_map.css", "run.css", "comparison.css"],
        scripts=["comparison-page.js"],
        extra_style=CHART_STYLE,
        page_type="run comparison",
    )


def _note(text: str, css_class: str = "note") -> Element:
    return html.element("p", text, css_class=css_class)


def _summary_sentence(comparison: Comparison) -> str:
    count = len(comparison.systems)
    name = "system" if count == 1 else "systems"
    parts = [f"{count} {name} on {escape_line(comparison.test_set)}"]
    if comparison.budget:
        parts.append(f"each trained within {escape_line(comparison.budget)}")
    if count > 1:
        parts.append(f"with {escape_line(comparison.baseline)} as the baseline")
    return f"{', '.join(parts)}."


def _key_figures(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """Yield the size of the test set, the budget, and the best systems."""
    yield "Test sentences", f"{comparison.num_sentences:,}", ""
    if comparison.budget:
        yield "Training budget", escape_line(comparison.budget), "for each run"
    main, *others = tables.make_columns(comparison)
    titles = {"training FLOPs": "Fewest training FLOPs", "sentences/s": "Most sentences/s"}
    columns = [(f"Best {main.name}", main)]
    columns += [(titles[column.name], column) for column in others if column.name in titles]
    for title, column in columns:
        best = [index for index, cell in enumerate(column.cells) if cell.is_best]
        if best:
            names = ", ".join(escape_line(comparison.systems[index].name) for index in best)
            yield title, column.cells[best[0]].number, names


# ----- sections -----


def _table(comparison: Comparison) -> Iterator[Element]:
    yield html.element("p", css_class="sorted note", attributes={"role": "status"})
    yield tables.render_table(comparison)
    yield from map(_note, tables.footnotes(comparison))
    for name, run, message in comparison.failures:
        yield _note(f"Failed: {name} ({run}): {message}", "note failure")
    if differences := tables.render_differences(comparison):
        yield differences


def _figure(figure: Figure) -> Element:
    """Return a plot next to its notes; without a plot, its title and the reason."""
    if figure.svg is None:
        return _note(f"{figure.title}: nothing to draw. {' '.join(figure.notes)}", "nothing")
    drawing = html.element("div", html.embed_svg(figure.svg), css_class="drawing")
    notes = [html.element("p", note) for note in figure.notes]
    return html.element("figure", drawing, html.element("figcaption", *notes), css_class="plot")


def _learning(comparison: Comparison) -> Iterator[Element]:
    scores = figures.validation_metrics(comparison)
    if not scores:
        yield _note("No run has logged a validation.", "nothing")
        return
    names = [figures.validation_metric_style(score).name for score in scores]
    yield html.element(
        "div",
        html.radio_group("score", "of", names),
        html.radio_group("axis", "over", [axis.title for axis in figures.AXES]),
        css_class="bar switches",
    )
    for score_index, score in enumerate(scores):
        for axis_index, axis in enumerate(figures.AXES):
            figure = _figure(figures.plot_learning_curves(comparison, score, axis))
            choice = {"data-score": str(score_index), "data-axis": str(axis_index)}
            yield html.element("div", figure, css_class="curves", attributes=choice)


def _examples(comparison: Comparison) -> Iterator[Element]:
    if not comparison.sources:
        yield _note("There are no outputs to show.", "nothing")
        return
    yield _note("Marked: words that are not in the reference, or not in that order.")
    for index in range(len(comparison.sources)):
        headers = [system_header(system, i) for i, system in enumerate(comparison.systems)]
        yield render_example(comparison, index, headers)


def _reproduction(comparison: Comparison) -> Iterator[Element]:
    yield html.element("h3", "Command")
    command = html.element("code", comparison.command)
    yield html.element("pre", command, attributes={"tabindex": "0"})
    signatures, runs = [], []
    for name, _, signature in (score.score for score in comparison.systems[0].scores):
        cell = html.element("td", html.element("code", signature))
        signatures.append([html.row_header(name), cell])
    for index, system in enumerate(comparison.systems):
        cell = html.element("td", *(html.element("code", run) for run in system.runs))
        runs.append([system_header(system, index), cell])
    for names, rows, caption in (
        (("metric", "signature"), signatures, "How each metric is computed"),
        (("system", "runs"), runs, "The runs of each system"),
    ):
        head = [html.column_header(name) for name in names]
        yield html.table(head, rows, css_class="plain words", caption=caption)
    yield html.element("h3", "Environment")
    if not comparison.environment:
        yield _note("The environment was not recorded.", "nothing")
        return
    values = html.definition_list(comparison.environment.items())
    yield html.element("div", values, css_class="environments")


# ----- examples -----


def render_example(comparison: Comparison, index: int, headers: Sequence[Element]) -> Element:
    """Return source, reference and the output of each system, under these row headers."""
    source, reference = comparison.sources[index], comparison.references[index]
    texts: list[tuple[Element, list[Element | str]]] = [
        (html.row_header("source"), [source]),
        (html.row_header("reference"), [reference]),
    ]
    for header, system in zip(headers, comparison.systems, strict=True):
        if index < len(system.outputs):
            texts.append((header, _mark_differences(system.outputs[index], reference)))
    rows = []
    for header, parts in texts:
        # Texts may be in any language: each gets its own direction.
        cell = html.element("td", *parts, attributes={"dir": "auto"})
        rows.append(html.element("tr", header, cell))
    caption = html.element("caption", f"Example {index + 1} of {len(comparison.sources)}")
    body = html.element("tbody", *rows)
    return html.element("table", caption, body, css_class="plain words example")


def _mark_differences(output: str, reference: str) -> list[Element | str]:
    """Return an output with the words that the reference does not have in `mark`."""
    if output == reference:
        title = {"title": "equal to the reference"}
        return [output, html.element("span", f" {_EXACT_MATCH_MARK}", attributes=title)]
    if not output.strip():
        return [html.element("em", "nothing")]
    words, reference_words = output.split(), reference.split()
    marked = diff_words(words[:MAX_EXAMPLE_LENGTH], reference_words[:MAX_EXAMPLE_LENGTH])
    parts: list[Element | str] = []
    for is_marked, group in groupby(marked, key=lambda pair: pair[1]):
        text = " ".join(word for word, _ in group)
        parts += [" ", html.element("mark", text) if is_marked else text]
    return [*parts[1:], *([" ..."] if len(words) > MAX_EXAMPLE_LENGTH else [])]


def diff_words(words: Sequence[str], other_words: Sequence[str]) -> list[tuple[str, bool]]:
    """Return each word and whether it is outside the longest common subsequence."""
    # common[i][j]: length of the longest common subsequence of words[i:] and other_words[j:].
    common = [[0] * (len(other_words) + 1) for _ in range(len(words) + 1)]
    for i in reversed(range(len(words))):
        for j in reversed(range(len(other_words))):
            is_same = words[i] == other_words[j]
            longer = max(common[i + 1][j], common[i][j + 1])
            common[i][j] = common[i + 1][j + 1] + 1 if is_same else longer
    result: list[tuple[str, bool]] = []
    j, num_others = 0, len(other_words)
    for i, word in enumerate(words):
        while j < num_others and word != other_words[j] and common[i][j + 1] >= common[i + 1][j]:
            j += 1
        is_common = j < num_others and word == other_words[j]
        j += is_common
        result.append((word, not is_common))
    return result
