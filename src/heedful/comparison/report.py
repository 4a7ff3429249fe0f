"""Examples: what do systems make of the same few texts?

Words of an output that the reference has not are marked. Law: the words that are left unmarked
stand in the reference in the same order, and there are as many of them as can be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from heedful.comparison.figures import (
    AXES,
    Figure,
    plot_learning_curves,
    plot_quality_by_length,
    plot_quality_vs_flops,
    plot_quality_vs_speed,
    validation_metrics,
)
from heedful.comparison.results import Comparison
from heedful.comparison.tables import (
    footnotes,
    make_columns,
    render_differences,
    render_length_table,
    render_table,
    system_header,
    to_csv,
    to_latex,
    to_markdown,
)
from heedful.inspection.training_curves import curve_style
from heedful.plotting.charts import begin_chart
from heedful.plotting.html import (
    column_header,
    definition_list,
    embed_svg,
    make_element,
    make_table,
    render_page,
    row_header,
    to_html,
)
from heedful.plotting.svg import escape_line
from heedful.storage import explain_os_errors, write_text

MAX_EXAMPLE_LENGTH = 200  # words of an output that are compared and shown
_EXACT_MATCH_MARK = "\u2713"  # a check mark


def render_example(comparison: Comparison, index: int, names: Sequence[Element]) -> Element:
    """One example: its source, its reference, and what each system of these names made of it."""
    source, reference = comparison.sources[index], comparison.references[index]
    rows = [_row(row_header("source"), [source]), _row(row_header("reference"), [reference])]
    for name, system in zip(names, comparison.systems, strict=True):
        if index < len(system.outputs):
            rows.append(_row(name, _mark_differences(system.outputs[index], reference)))
    caption = make_element("caption", f"Example {index + 1} of {len(comparison.sources)}")
    return make_element(
        "table", caption, make_element("tbody", *rows), css_class="plain words example"
    )


def _row(name: Element, parts: Sequence[Element | str]) -> Element:
    # Texts are of any language: each finds its own direction.
    return make_element("tr", name, make_element("td", *parts, attributes={"dir": "auto"}))


def _mark_differences(output: str, reference: str) -> list[Element | str]:
    """An output with the words that the reference has not in `mark`."""
    if output == reference:
        return [
            output,
            make_element("span", f" {_EXACT_MATCH_MARK}", attributes={"title": "as the reference"}),
        ]
    if not output.strip():
        return [make_element("em", "nothing")]
    return list(_diff_elements(output, reference))


def _diff_elements(output: str, reference: str) -> Iterator[Element | str]:
    words = diff_words(output.split()[:MAX_EXAMPLE_LENGTH], reference.split()[:MAX_EXAMPLE_LENGTH])
    stretches = [
        (is_other, " ".join(word for word, _ in stretch))
        for is_other, stretch in groupby(words, key=lambda pair: pair[1])
    ]
    for order, (is_other, text) in enumerate(stretches):
        if order:
            yield " "
        yield make_element("mark", text) if is_other else text
    if len(output.split()) > MAX_EXAMPLE_LENGTH:
        yield " ..."


def diff_words(words: Sequence[str], other_words: Sequence[str]) -> list[tuple[str, bool]]:
    """Each word, and whether it is outside the longest row of words common to both."""
    # common[i][j]: how many words words[i:] and others[j:] have in common, in order.
    common = [[0] * (len(other_words) + 1) for _ in range(len(words) + 1)]
    for i in reversed(range(len(words))):
        for j in reversed(range(len(other_words))):
            is_same = words[i] == other_words[j]
            longer = max(common[i + 1][j], common[i][j + 1])
            common[i][j] = common[i + 1][j + 1] + 1 if is_same else longer
    found, j = list[tuple[str, bool]](), 0
    for i, word in enumerate(words):
        while (
            j < len(other_words) and word != other_words[j] and common[i][j + 1] >= common[i + 1][j]
        ):
            j += 1
        is_common = j < len(other_words) and word == other_words[j]
        j += is_common
        found.append((word, not is_common))
    return found


# The page: which of several systems is better, at which cost, and how can that be seen?
#
# One file that asks nothing of the network (`framing`): a table that can be sorted, plots, examples,
# and how all of it was found. Its tables and pictures are there without its script, which only sorts,
# switches and points out. What is shown enters it as text (`markup`).


def render_comparison_page(comparison: Comparison) -> str:
    """Write a self-contained page about systems that answered the same test set."""
    return render_page(
        "comparison.html",
        title=comparison.title,
        styles=["page.css", "run.css", "comparison.css"],
        scripts=["comparison.js"],
        data={},
        variables=_plot_style(),
        page_type="run comparison",
        content=to_html(_main(comparison)),
    )


def _plot_style() -> str:
    """The style of plots, which inside a page is the page's."""
    picture = begin_chart(1, 1, title="", description="")
    return f"svg {{ {''.join(style.text or '' for style in picture.iter('style'))} }}\n"


def _main(comparison: Comparison) -> Element:
    return make_element(
        "main",
        make_element("p", _summary_sentence(comparison), css_class="told"),
        _facts(comparison),
        _section("table", "Systems", _table(comparison)),
        _section("cost", "Quality and cost", _cost(comparison)),
        _section("length", "Quality and length", _length(comparison)),
        _section("learning", "Learning", _learning(comparison)),
        _section("examples", "Examples", _examples(comparison)),
        _section("found", "How this was found", _provenance(comparison)),
    )


def _section(name: str, title: str, parts: Iterable[Element]) -> Element:
    return make_element("section", make_element("h2", title), *parts, attributes={"id": name})


def _summary_sentence(comparison: Comparison) -> str:
    """What was tested, in a sentence."""
    count = len(comparison.systems)
    summary = [
        f"{count} {'system' if count == 1 else 'systems'} on {escape_line(comparison.test_set)}"
    ]
    if comparison.budget:
        summary.append(f"each trained within {escape_line(comparison.budget)}")
    if count > 1:
        summary.append(f"beside {escape_line(comparison.baseline)} as the baseline")
    return f"{', '.join(summary)}."


def _facts(comparison: Comparison) -> Element:
    """A few numbers that say most: how much was tested, and who is best at what."""
    facts = [("Test sentences", f"{comparison.num_sentences:,}", "")]
    if comparison.budget:
        facts.append(("Budget of training", escape_line(comparison.budget), "for each run"))
    facts += _best_facts(comparison)
    tiles = (
        make_element(
            "div",
            make_element("dt", name),
            make_element("dd", value, css_class="value"),
            make_element("dd", note, css_class="beside"),
        )
        for name, value, note in facts
    )
    return make_element("dl", *tiles, attributes={"id": "facts"})


def _best_facts(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    main, *others = make_columns(comparison)
    titles = {"training FLOPs": "Fewest training FLOPs", "sentences/s": "Most sentences/s"}
    wanted = [(f"Best {main.name}", main)] + [
        (titles[column.name], column) for column in others if column.name in titles
    ]
    for title, column in wanted:
        best = [index for index, cell in enumerate(column.cells) if cell.is_best]
        if best:
            names = ", ".join(escape_line(comparison.systems[index].name) for index in best)
            yield title, column.cells[best[0]].text.partition(" +- ")[0], names


# --- the sections --------------------------------------------------------------------------
def _table(comparison: Comparison) -> Iterator[Element]:
    yield make_element("p", css_class="sorted note", attributes={"role": "status"})
    yield render_table(comparison)
    for note in footnotes(comparison):
        yield make_element("p", note, css_class="note")
    for name, run, problem in comparison.failures:
        yield make_element("p", f"Failed: {name} ({run}): {problem}", css_class="note failure")
    if differences := render_differences(comparison):
        yield differences


def _cost(comparison: Comparison) -> Iterator[Element]:
    yield _figure(plot_quality_vs_flops(comparison))
    yield _figure(plot_quality_vs_speed(comparison))


def _length(comparison: Comparison) -> Iterator[Element]:
    yield _figure(plot_quality_by_length(comparison))
    if by_length := render_length_table(comparison):
        yield by_length


def _figure(figure: Figure) -> Element:
    """A plot beside its notes; without a plot, its title and why there is none."""
    notes = [make_element("p", note) for note in figure.notes]
    if figure.svg is None:
        return make_element(
            "p", f"{figure.title}: nothing to draw. ", *figure.notes, css_class="nothing"
        )
    picture = make_element("div", embed_svg(figure.svg), css_class="picture")
    return make_element("figure", picture, make_element("figcaption", *notes), css_class="plot")


def _learning(comparison: Comparison) -> Iterator[Element]:
    scores = validation_metrics(comparison)
    if not scores:
        yield make_element("p", "No run has told how it learned.", css_class="nothing")
        return
    names = [curve_style(score).name for score in scores]
    yield make_element(
        "div",
        _radio_group("score", "of", names),
        _radio_group("axis", "over", [axis.title for axis in AXES]),
        css_class="bar switches",
    )
    for order, score in enumerate(scores):
        for index, axis in enumerate(AXES):
            figure = _figure(plot_learning_curves(comparison, score, axis))
            chosen = {"data-score": str(order), "data-axis": str(index)}
            yield make_element("div", figure, css_class="curves", attributes=chosen)


def _radio_group(name: str, legend: str, choices: Sequence[str]) -> Element:
    """One of several, as a row of buttons."""
    labels = []
    for index, choice in enumerate(choices):
        radio = make_element(
            "input", attributes={"type": "radio", "name": name, "value": str(index)}
        )
        if index == 0:
            radio.set("checked", "")
        labels.append(make_element("label", radio, choice))
    return make_element("fieldset", make_element("legend", legend), *labels, css_class="switch")


def _examples(comparison: Comparison) -> Iterator[Element]:
    if not comparison.sources:
        yield make_element("p", "There are no outputs to show.", css_class="nothing")
        return
    yield make_element(
        "p", "Marked: words that the reference has not, or not there.", css_class="note"
    )
    for index, _ in enumerate(comparison.sources):
        names = [
            system_header(system, style_index)
            for style_index, system in enumerate(comparison.systems)
        ]
        yield render_example(comparison, index, names)


def _provenance(comparison: Comparison) -> Iterator[Element]:
    yield make_element("h3", "The command that makes this again")
    yield make_element(
        "pre", make_element("code", comparison.command), attributes={"tabindex": "0"}
    )
    yield _signatures(comparison)
    yield _runs(comparison)
    yield make_element("h3", "Environment")
    if comparison.environment:
        yield make_element(
            "div", definition_list(comparison.environment.items()), css_class="environments"
        )
    else:
        yield make_element("p", "Nothing was noted.", css_class="nothing")


def _signatures(comparison: Comparison) -> Element:
    metrics = [score.score for score in comparison.systems[0].scores]
    rows = [
        [row_header(name), make_element("td", make_element("code", said))]
        for name, _, said in metrics
    ]
    head = [column_header("metric"), column_header("signature")]
    return make_table(head, rows, css_class="plain words", caption="How each metric is computed")


def _runs(comparison: Comparison) -> Element:
    rows = [
        [system_header(system, style_index), make_element("td", *_lines(system.runs))]
        for style_index, system in enumerate(comparison.systems)
    ]
    head = [column_header("system"), column_header("runs")]
    return make_table(head, rows, css_class="plain words", caption="The runs of each system")


def _lines(texts: Sequence[str]) -> Iterator[Element]:
    for text in texts:
        yield make_element("code", text)


# Saving: a comparison as files, each whole in itself.
#
# report.html      the page, with plots and examples
# table.md, table.tex, table.csv
# comparison.json  every number


def save_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write every file; give their paths."""
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # The numbers first: they may have taken hours.
    forms: Mapping[str, Callable[[Comparison], str]] = {
        "comparison.json": comparison_to_json,
        "table.csv": to_csv,
        "table.md": to_markdown,
        "table.tex": to_latex,
        "report.html": render_comparison_page,
    }
    for name, write in forms.items():
        write_text(folder / name, write(comparison))
    return [folder / name for name in forms]


def comparison_to_json(comparison: Comparison) -> str:
    """Everything that is known, by the names of `results`; what is no finite number is null."""
    return json.dumps(_to_plain(comparison), indent=2, allow_nan=False) + "\n"


def _to_plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return _to_plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(name): _to_plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_to_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
