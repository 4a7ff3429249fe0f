"""Pages of results: what the command prints, docs/results.md, and one page with plots.

Invariant: all three show the same tables.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from heedful.plotting import charts, html
from heedful.plotting.charts import CHART_STYLE, MAX_LINES, LineSeries, ScatterPoint
from heedful.results.config import ResultConfig, load_result, result_names
from heedful.results.summary import Summary
from heedful.storage.atomic import write_text
from heedful.storage.json_files import read_json

PAGE_NAMES = ("results.md", "results.html")
_SUMMARY = "summary.json"
_CAPTIONS = {"system": "systems", "published": "published rows", "claim": "claims", "cell": "cells"}
_OUTCOMES = {True: "holds", False: "does not hold", None: "not measured"}
_INTRODUCTION = """# Results

Published results, each reproduced by one command ([how](reproduction.md)). This page is written by
`heedful reproduce --collect docs`.

Ours is the mean over seeds with the sample standard deviation, of the first metric with two
intervals of 95 %: Student's t over the seeds (three of them: wide), and a bootstrap over seeds and
test examples. Minutes are those of one training, with others on the same machine. FLOPs are counted
from shapes, forward and backward; they are not GPUs x days x peak rate. A published value has the
way it was read: the paper, a copy of its table, a README that quotes it, the lectures, or memory,
which is not checked. A system that continues another has the FLOPs and minutes of both.
"""


class Table(NamedTuple):
    """A table of texts."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_summary(folder: Path, summary: Summary) -> None:
    """Write a summary into the folder of the records of a result."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / _SUMMARY, to_json(summary))


def to_json(summary: Any) -> str:
    """Return a summary as JSON."""
    return json.dumps(summary, indent=1, allow_nan=False) + "\n"


def read_summaries(folder: Path | None = None) -> dict[str, Summary]:
    """Return the summaries by name: those of the package, replaced by those of a folder."""
    summaries: dict[str, Summary] = {}
    for name in result_names():
        written = None if folder is None else folder / name / _SUMMARY
        packaged = resources.files("heedful.results").joinpath(f"{name}.json")
        if written is not None and written.is_file():
            summaries[name] = read_json(written)
        elif packaged.is_file():
            summaries[name] = json.loads(packaged.read_text(encoding="utf-8"))
    return summaries


# ----- tables -----


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1e}" if abs(value) >= 1e5 else f"{value:.2f}"


def _score(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return ""
    return _number(score["mean"]) + ("" if score["sd"] is None else f" +- {score['sd']:.2f}")


def _interval(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f"{_number(ends[0])} to {_number(ends[1])}"


def tables(summary: Summary) -> Iterator[Table]:
    """Yield the tables of a result: systems, published rows and claims; or cells."""
    if summary["cells"]:
        cells = [
            (cell["name"], f"{cell['product']:.3g}", f"{cell['printed']:.2g}", "agrees")
            if cell["agrees"]
            else (cell["name"], "not known", f"{cell['printed']:.2g}", "cannot be checked")
            for cell in summary["cells"]
        ]
        yield Table(("cell", "product", "printed", ""), cells)
        return
    yield _system_table(summary)
    if summary["published"]:
        header = ("published", "values", "source", "read", "ours - published", "verdict")
        yield Table(header, list(map(_published_row, summary["published"])))
    if summary["claims"]:
        rows = [_claim_row(claim) for claim in summary["claims"]]
        yield Table(("claim", "difference", "p (Holm)", "outcome"), rows)


def _system_table(summary: Summary) -> Table:
    columns = summary["directions"]
    names = [f"{name} ({way} is better)" for name, way in columns.items()]
    rows = []
    for name, system in summary["systems"].items():
        scores = [system["metrics"].get(column) for column in columns]
        if not (first := scores[0]):
            continue
        ends = [_interval(first["interval"]), _interval(first["bootstrap"])]
        steps = "" if system["steps"] is None else f"{system['steps']:,.0f}"
        cost = [steps, _number(system["minutes"]), _number(system["flops"])]
        rows.append((name, *map(_score, scores), *ends, str(system["runs"]), *cost))
    header = ("system", *names, "over seeds", "bootstrap", "runs", "steps", "minutes", "FLOPs")
    return Table(header, rows)


def overview(summaries: Mapping[str, Summary]) -> Table:
    """Return one row for each published value beside one of ours, or else for the best system."""
    rows: list[Sequence[str]] = []
    for name, summary in summaries.items():
        beside = [row for row in summary["published"] if row["verdict"]]
        for row in beside or [None] * bool(summary["directions"]):
            column = next(iter(summary["directions"]))
            system = row["beside"] if row else best_system(summary)
            ours = summary["systems"][system]
            rows.append(
                (
                    f"[{name}](#{name})",
                    str(system),
                    column,
                    _score(ours["metrics"][column]),
                    f"{row['values'][column]:g} ({row['system']})" if row else "",
                    str(row["verdict"]) if row else "",
                    *(_number(ours["minutes"]), _number(ours["flops"]), str(ours["runs"])),
                    *(str(summary[fact]) for fact in ("commit", "date")),
                )
            )
    header = ("result", "system", "metric", "ours", "published", "verdict")
    return Table((*header, "minutes", "FLOPs", "runs", "commit", "date"), rows)


def best_system(summary: Summary) -> str | None:
    """Return the system that is best in the first metric."""
    column, direction = next(iter(summary["directions"].items()), ("", ""))
    means = {
        name: system["metrics"][column]["mean"]
        for name, system in summary["systems"].items()
        if column in system["metrics"]
    }
    return (min if direction == "lower" else max)(means, key=means.__getitem__) if means else None


def _published_row(row: Mapping[str, Any]) -> Sequence[str]:
    values = ", ".join(f"{metric} {value:g}" for metric, value in row["values"].items())
    difference = "" if row["difference"] is None else f"{row['difference']:+.2f}"
    verdict = row["verdict"] or "quoted"
    return row["system"], values, row["source"], row["read"], difference, verdict


def _claim_row(claim: Mapping[str, Any]) -> Sequence[str]:
    difference = "" if claim["difference"] is None else f"{claim['difference']:+.2f}"
    p_value = "" if claim["p"] is None else f"{claim['p']:.4f}"
    outcome = _OUTCOMES[claim["holds"]] + ("" if claim["asserted"] else " (not asserted)")
    return claim["text"], difference, p_value, outcome


def notes(result: ResultConfig, summary: Summary) -> Iterator[str]:
    """Yield what is below the tables: budget, versions, signatures and deviations."""
    if summary["seeds"]:
        seeds = ", ".join(map(str, summary["seeds"]))
        facts = [f"{summary['budget']} a run", f"seeds {seeds}", summary["device"]]
        facts += [f"{name} {summary[name]}" for name in ("torch", "heedful", "commit")]
        yield "; ".join([*facts, summary["date"]])
    if len(summary["seeds"]) == 1 and len(result.seeds) > 1:
        yield "one seed: differences smaller than the spread of seeds mean nothing"
    for column, signature in summary["signatures"].items():
        if signature:
            yield f"{column}: {signature.replace('|', ', ')}"
    if result.test_is_dev:
        yield "the test set is not at hand: dev is the test, and a piece of train chooses"
    yield from result.deviations


def format_table(table: Table) -> Iterator[str]:
    """Yield the lines of a table with aligned columns."""
    cells = [table.header, *table.rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def format_summary(result: ResultConfig, summary: Summary) -> Iterator[str]:
    """Yield the lines that the command prints."""
    yield result.title
    for table in tables(summary):
        yield ""
        yield from format_table(table)
    yield ""
    yield from notes(result, summary)


# ----- files -----


def write_pages(folder: Path, records: Path) -> list[Path]:
    """Write results.md and results.html into a folder; return the paths."""
    summaries = read_summaries(records)
    results = {name: load_result(name) for name in result_names()}
    sections = (_markdown(name, result, summaries.get(name)) for name, result in results.items())
    head = [_INTRODUCTION, *_markdown_table(overview(summaries)), ""]
    texts = ("\n".join([*head, *sections]), _html_page(results, summaries))
    paths = [folder / name for name in PAGE_NAMES]
    for path, text in zip(paths, texts, strict=True):
        write_text(path, text)
    return paths


def _markdown(name: str, result: ResultConfig, summary: Summary | None) -> str:
    lectures = f" Lectures: {result.lectures}." if result.lectures else ""
    lines = [f"## {name}", "", f"{result.title}.{lectures} `heedful reproduce {name}`", ""]
    if summary is None:
        return "\n".join([*lines, "Not measured yet.", ""])
    for table in tables(summary):
        lines += [*_markdown_table(table), ""]
    return "\n".join([*lines, *(f"- {note}" for note in notes(result, summary)), ""])


def _markdown_table(table: Table) -> list[str]:
    rule = f"|{'---|' * len(table.header)}"
    rows = [f"| {' | '.join(row)} |" for row in (table.header, *table.rows)]
    return [rows[0], rule, *rows[1:]]


def _html_page(results: Mapping[str, ResultConfig], summaries: Mapping[str, Summary]) -> str:
    sections = [_section(name, results[name], summary) for name, summary in summaries.items()]
    links = [html.element("a", name, attributes={"href": f"#{name}"}) for name in summaries]
    items = [html.element("li", link) for link in links]
    contents = html.element("nav", html.element("ul", *items), attributes={"aria-label": "results"})
    main = html.element("main", contents, *sections)
    return html.render_page(
        html.serialize(main),
        title="Results",
        styles=["attention_map.css", "run.css", "comparison.css"],
        extra_style=CHART_STYLE,
        page_type="run comparison results",
    )


def _section(name: str, result: ResultConfig, summary: Summary) -> Element:
    parts = [html.element("h2", name), html.element("p", f"{result.title}.")]
    for svg in (plot_quality_vs_flops(summary), plot_learning_vs_flops(summary)):
        if svg is not None:
            parts.append(html.element("figure", html.embed_svg(svg), css_class="plot"))
    for header, rows in tables(summary):
        heads = [html.column_header(text) for text in header]
        cells = (
            [html.row_header(first), *(html.element("td", text) for text in others)]
            for first, *others in rows
        )
        parts.append(html.table(heads, cells, css_class="plain", caption=_CAPTIONS[header[0]]))
    parts += [html.element("p", note, css_class="note") for note in notes(result, summary)]
    return html.element("section", *parts, attributes={"id": name})


# ----- plots -----


def plot_quality_vs_flops(summary: Summary) -> str | None:
    """Plot the first metric against counted FLOPs, as in the lectures; None if all are equal."""
    column = next(iter(summary["directions"]), "")
    points = [
        ScatterPoint(name, system["flops"], score["mean"], index, 0.0, score["sd"] or 0.0)
        for index, (name, system) in enumerate(summary["systems"].items())
        if (score := system["metrics"].get(column)) and system["flops"]
    ]
    if len({f"{point.x:.0e}" for point in points}) < 2:
        return None
    return charts.render_scatter_plot(
        points[:MAX_LINES],
        title=f"{column} against training FLOPs",
        x_label="counted training FLOPs",
        y_label=f"{column} ({summary['directions'][column]} is better)",
        is_logarithmic=True,
    )


def plot_learning_vs_flops(summary: Summary) -> str | None:
    """Plot the dev score of the first seed against FLOPs; None for fewer than two systems."""
    curves = summary.get("curves", {})
    lines = [
        LineSeries(name, [(flops, score) for flops, score in points], style_index=index)
        for index, (name, points) in enumerate(curves.items())
        if len(points) > 1
    ]
    if len(lines) < 2:
        return None
    return charts.render_line_chart(
        lines[:MAX_LINES],
        title="Dev score while training",
        x_label="counted training FLOPs",
        y_label=summary["dev_metric"],
        log_axes=(True, False),
    )
