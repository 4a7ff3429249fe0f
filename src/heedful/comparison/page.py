"""The page: which of several systems is better, at which cost, and how can that be seen?

One file that asks nothing of the network (`framing`): a table that can be sorted, plots, examples,
and how all of it was found. Its tables and pictures are there without its script, which only sorts,
switches and points out. What is shown enters it as text (`markup`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element

from heedful.comparison.columns import columns
from heedful.comparison.examples import draw_example
from heedful.comparison.figures import Figure
from heedful.comparison.learning import AXES, learning_curves, scores_of
from heedful.comparison.markup import (
    column_header,
    definitions,
    embedded,
    node,
    row_header,
    table,
    write_markup,
)
from heedful.comparison.page_tables import (
    draw_by_length,
    draw_differences,
    draw_table,
    footnotes,
    name_of,
)
from heedful.comparison.plots import (
    quality_against_operations,
    quality_against_speed,
    quality_by_length,
)
from heedful.comparison.results import Comparison
from heedful.inspection.chart import begin
from heedful.inspection.framing import frame
from heedful.inspection.labels import visible_line
from heedful.inspection.run_curves import look_of


def draw_comparison(comparison: Comparison) -> str:
    """Write a self-contained page about systems that answered the same test set."""
    return frame(
        "comparison.html",
        title=comparison.title,
        styles=["page.css", "run.css", "comparison.css"],
        scripts=["comparison.js"],
        data={},
        variables=_plot_style(),
        kind="run comparison",
        content=write_markup(_main(comparison)),
    )


def _plot_style() -> str:
    """The style of plots, which inside a page is the page's."""
    picture = begin(1, 1, title="", description="")
    return f"svg {{ {''.join(style.text or '' for style in picture.iter('style'))} }}\n"


def _main(comparison: Comparison) -> Element:
    return node(
        "main",
        node("p", _told(comparison), look="told"),
        _facts(comparison),
        _section("table", "Systems", _table(comparison)),
        _section("cost", "Quality and cost", _cost(comparison)),
        _section("length", "Quality and length", _length(comparison)),
        _section("learning", "Learning", _learning(comparison)),
        _section("examples", "Examples", _examples(comparison)),
        _section("found", "How this was found", _found(comparison)),
    )


def _section(name: str, title: str, parts: Iterable[Element]) -> Element:
    return node("section", node("h2", title), *parts, attributes={"id": name})


def _told(comparison: Comparison) -> str:
    """What was tested, in a sentence."""
    count = len(comparison.systems)
    said = [f"{count} {'system' if count == 1 else 'systems'} on {visible_line(comparison.test)}"]
    if comparison.budget:
        said.append(f"each trained within {visible_line(comparison.budget)}")
    if count > 1:
        said.append(f"beside {visible_line(comparison.baseline)} as the baseline")
    return f"{', '.join(said)}."


def _facts(comparison: Comparison) -> Element:
    """A few numbers that say most: how much was tested, and who is best at what."""
    told = [("Test sentences", f"{comparison.num_sentences:,}", "")]
    if comparison.budget:
        told.append(("Budget of training", visible_line(comparison.budget), "for each run"))
    told += _bests(comparison)
    tiles = (
        node(
            "div",
            node("dt", name),
            node("dd", value, look="value"),
            node("dd", note, look="beside"),
        )
        for name, value, note in told
    )
    return node("dl", *tiles, attributes={"id": "facts"})


def _bests(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    main, *others = columns(comparison)
    titles = {"training FLOPs": "Fewest training FLOPs", "sentences/s": "Most sentences/s"}
    wanted = [(f"Best {main.name}", main)] + [
        (titles[column.name], column) for column in others if column.name in titles
    ]
    for title, column in wanted:
        best = [place for place, cell in enumerate(column.cells) if cell.is_best]
        if best:
            names = ", ".join(visible_line(comparison.systems[place].name) for place in best)
            yield title, column.cells[best[0]].text.partition(" +- ")[0], names


# --- the sections --------------------------------------------------------------------------


def _table(comparison: Comparison) -> Iterator[Element]:
    yield node("p", look="sorted note", attributes={"role": "status"})
    yield draw_table(comparison)
    for note in footnotes(comparison):
        yield node("p", note, look="note")
    for name, run, problem in comparison.failures:
        yield node("p", f"Failed: {name} ({run}): {problem}", look="note failure")
    if differences := draw_differences(comparison):
        yield differences


def _cost(comparison: Comparison) -> Iterator[Element]:
    yield _figure(quality_against_operations(comparison))
    yield _figure(quality_against_speed(comparison))


def _length(comparison: Comparison) -> Iterator[Element]:
    yield _figure(quality_by_length(comparison))
    if by_length := draw_by_length(comparison):
        yield by_length


def _figure(figure: Figure) -> Element:
    """A plot beside its notes; without a plot, its title and why there is none."""
    notes = [node("p", note) for note in figure.notes]
    if figure.svg is None:
        return node("p", f"{figure.title}: nothing to draw. ", *figure.notes, look="nothing")
    picture = node("div", embedded(figure.svg), look="picture")
    return node("figure", picture, node("figcaption", *notes), look="plot")


def _learning(comparison: Comparison) -> Iterator[Element]:
    scores = scores_of(comparison)
    if not scores:
        yield node("p", "No run has told how it learned.", look="nothing")
        return
    names = [look_of(score).name for score in scores]
    yield node(
        "div",
        _switch("score", "of", names),
        _switch("axis", "over", [axis.title for axis in AXES]),
        look="bar switches",
    )
    for order, score in enumerate(scores):
        for place, axis in enumerate(AXES):
            figure = _figure(learning_curves(comparison, score, axis))
            chosen = {"data-score": str(order), "data-axis": str(place)}
            yield node("div", figure, look="curves", attributes=chosen)


def _switch(name: str, legend: str, choices: Sequence[str]) -> Element:
    """One of several, as a row of buttons."""
    labels = []
    for place, choice in enumerate(choices):
        radio = node("input", attributes={"type": "radio", "name": name, "value": str(place)})
        if place == 0:
            radio.set("checked", "")
        labels.append(node("label", radio, choice))
    return node("fieldset", node("legend", legend), *labels, look="switch")


def _examples(comparison: Comparison) -> Iterator[Element]:
    if not comparison.sources:
        yield node("p", "There are no outputs to show.", look="nothing")
        return
    yield node("p", "Marked: words that the reference has not, or not there.", look="note")
    for place, _ in enumerate(comparison.sources):
        names = [name_of(system, look) for look, system in enumerate(comparison.systems)]
        yield draw_example(comparison, place, names)


def _found(comparison: Comparison) -> Iterator[Element]:
    yield node("h3", "The command that makes this again")
    yield node("pre", node("code", comparison.command), attributes={"tabindex": "0"})
    yield _signatures(comparison)
    yield _runs(comparison)
    yield node("h3", "Environment")
    if comparison.environment:
        yield node("div", definitions(comparison.environment.items()), look="environments")
    else:
        yield node("p", "Nothing was noted.", look="nothing")


def _signatures(comparison: Comparison) -> Element:
    metrics = [judged.metric for judged in comparison.systems[0].judged]
    rows = [[row_header(name), node("td", node("code", said))] for name, _, said in metrics]
    head = [column_header("metric"), column_header("signature")]
    return table(head, rows, look="plain words", caption="How each metric is computed")


def _runs(comparison: Comparison) -> Element:
    rows = [
        [name_of(system, look), node("td", *_lines(system.runs))]
        for look, system in enumerate(comparison.systems)
    ]
    head = [column_header("system"), column_header("runs")]
    return table(head, rows, look="plain words", caption="The runs of each system")


def _lines(texts: Sequence[str]) -> Iterator[Element]:
    for text in texts:
        yield node("code", text)
