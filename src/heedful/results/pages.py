"""Pages of results: the table of one, docs/results.md of all, and one page with plots."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from heedful.plotting import charts, html
from heedful.plotting.charts import CHART_STYLE, MAX_LINES, ScatterPoint
from heedful.results.config import ResultConfig, load_result, result_names
from heedful.results.summary import Summary
from heedful.storage.json_files import read_json

_HEADER = ("system", "metric", "published", "ours", "95 % over seeds", "95 % bootstrap", "runs")
_INTRODUCTION = """# Results

Published results, reproduced by one command each: `heedful reproduce NAME` checks the data, trains every system with each seed, chooses by
the dev set, reads the test set once and prints these rows ([how](reproduction.md)). This page is written by `heedful reproduce --collect docs`.

Ours is the mean over seeds with the sample standard deviation. The first interval is Student's t over the seeds (three of them: wide); the
second is a bootstrap over seeds and sentences. Minutes are those of one training, with others on the same machine. FLOPs are counted from
shapes, forward and backward; they are no GPU hours. A published value has the way it was read: paper, a copy of its table, a README that quotes
it, the lectures, or memory (not checked).
"""


def measured(folder: Path | None = None) -> dict[str, Summary]:
    """Return the summaries by name: those of the package, replaced by those of a folder."""
    found: dict[str, Summary] = {}
    package = resources.files("heedful.results")
    for name in result_names():
        own = None if folder is None else folder / name / "summary.json"
        file = package.joinpath(f"{name}.json")
        if own is not None and own.is_file():
            found[name] = read_json(own)
        elif file.is_file():
            found[name] = json.loads(file.read_text(encoding="utf-8"))
    return found


def format_number(value: float | None) -> str:
    """Return a number with two digits after the point, or in powers of ten."""
    if value is None:
        return ""
    return f"{value:.1e}" if abs(value) >= 1e5 else f"{value:.2f}"


def _interval(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"


def rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table: our systems, each above the published rows beside it."""
    for name, system in summary["systems"].items():
        for column, score in system["metrics"].items():
            spread = "" if score["sd"] is None else f" +- {score['sd']:.2f}"
            ends = _interval(score["interval"]), _interval(score["bootstrap"])
            ours = f"{score['mean']:.2f}{spread}"
            yield name, column, "", ours, *ends, str(len(score["values"]))
    for row in summary["published"]:
        values = ", ".join(f"{metric} {value:g}" for metric, value in row["values"].items())
        difference = "" if row["difference"] is None else f"{row['difference']:+.2f}"
        yield row["system"], row["verdict"], values, difference, f"read: {row['read']}", "", ""


def to_markdown(name: str, result: ResultConfig, summary: Summary | None) -> str:
    """Return the section of a result."""
    lines = [f"## {name}", "", f"{result.title}.{f' Lectures: {result.lectures}.' if result.lectures else ''}", ""]
    if summary is None:
        needed = f"data `{result.data.folder}`" if result.data else "no data"
        return "\n".join([*lines, f"Not measured yet; needs {needed}.", ""])
    if summary["cells"]:
        lines += ["| cell | product | printed | agrees |", "|---|--:|--:|---|"]
        for cell in summary["cells"]:
            agrees = "yes" if cell["agrees"] else "no"
            product = f"{cell['product']:.3g}" if cell["factors"] else "not known"
            lines.append(f"| {cell['name']} | {product} | {cell['printed']:.2g} | {agrees} |")
        return "\n".join([*lines, ""])
    lines += _system_table(summary)
    lines += _published_table(summary)
    lines += _claim_list(summary)
    lines += [f"- {text}" for text in _notes(result, summary)]
    return "\n".join([*lines, ""])


def _system_table(summary: Summary) -> Iterator[str]:
    columns = list(summary["directions"])
    names = [f"{column} ({'+' if summary['directions'][column] == 'higher' else '-'})" for column in columns]
    yield f"| system | {' | '.join(names)} | 95 % over seeds | 95 % bootstrap | runs | minutes | FLOPs |"
    yield f"|---|{'--:|' * (len(columns) + 5)}"
    for name, system in summary["systems"].items():
        metrics = system["metrics"]
        if not metrics:
            continue
        cells = []
        for column in columns:
            score = metrics.get(column)
            spread = f" +- {score['sd']:.2f}" if score and score["sd"] is not None else ""
            cells.append(f"{score['mean']:.2f}{spread}" if score else "")
        first = metrics.get(columns[0], {"interval": None, "bootstrap": None})
        cells += [_interval(first["interval"]), _interval(first["bootstrap"]), str(system["runs"])]
        cells += [format_number(system["minutes"]), format_number(system["flops"])]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def _published_table(summary: Summary) -> Iterator[str]:
    if not summary["published"]:
        return
    yield "| published | values | source | read | ours - published | verdict |"
    yield "|---|---|---|---|--:|---|"
    for row in summary["published"]:
        values = ", ".join(f"{metric} {value:g}" for metric, value in row["values"].items())
        difference = "" if row["difference"] is None else f"{row['difference']:+.2f}"
        verdict = row["verdict"] or "quoted"
        yield f"| {row['system']} | {values} | {row['source']} | {row['read']} | {difference} | {verdict} |"
    yield ""


def _claim_list(summary: Summary) -> Iterator[str]:
    if not summary["claims"]:
        return
    yield "| claim | difference | p (Holm) | |"
    yield "|---|--:|--:|---|"
    for claim in summary["claims"]:
        p = "" if claim["p"] is None else f"{claim['p']:.4f}"
        difference = "" if claim["difference"] is None else f"{claim['difference']:+.2f}"
        outcome = {True: "holds", False: "does not hold", None: "not measured"}[claim["holds"]]
        asserted = "" if claim["asserted"] else " (not asserted)"
        yield f"| {claim['text']} | {difference} | {p} | {outcome}{asserted} |"
    yield ""


def _notes(result: ResultConfig, summary: Summary) -> Iterator[str]:
    seeds = ", ".join(map(str, summary["seeds"]))
    yield f"{summary['budget']} a run; seeds {seeds}; {summary['device']}, torch {summary['torch']}, heedful {summary['heedful']}, commit {summary['commit'] or 'unknown'}, {summary['date']}"
    if len(summary["seeds"]) == 1 and len(result.seeds) > 1:
        yield "one seed: differences smaller than the spread of seeds mean nothing"
    for column, signature in summary["signatures"].items():
        if signature:
            yield f"{column}: `{signature.replace('|', ', ')}`"
    if result.test_is_dev:
        yield "the test set is not at hand: dev is the test, and a piece of train chooses"
    yield from result.deviations


def write_pages(folder: Path, records: Path | None) -> list[Path]:
    """Write results.md and results.html into a folder; return the paths."""
    from heedful.storage.atomic import write_text

    summaries = measured(records)
    results = {name: load_result(name) for name in result_names()}
    sections = [to_markdown(name, each, summaries.get(name)) for name, each in results.items()]
    text = "\n".join([_INTRODUCTION, *sections])
    page = render_page(results, summaries)
    paths = [folder / "results.md", folder / "results.html"]
    for path, content in zip(paths, (text, page), strict=True):
        write_text(path, content)
    return paths


# ----- the page with plots -----


def render_page(results: Mapping[str, ResultConfig], summaries: Mapping[str, Summary]) -> str:
    """Return one page that makes no network requests."""
    parts = [_section(name, results[name], summary) for name, summary in summaries.items()]
    body = html.element("main", html.element("h1", "Results"), *parts)
    return html.render_page(
        html.serialize(body),
        title="Results",
        styles=["attention_map.css", "run.css", "comparison.css"],
        extra_style=CHART_STYLE,
        page_type="results",
    )


def _section(name: str, result: ResultConfig, summary: Summary) -> Element:
    parts: list[Element] = [html.element("h2", name), html.element("p", f"{result.title}.")]
    if (svg := plot_quality_vs_flops(summary)) is not None:
        parts.append(html.element("figure", html.embed_svg(svg), css_class="plot"))
    header = html.element("tr", *(html.element("th", text) for text in _HEADER))
    body = [html.element("tr", *(html.element("td", cell) for cell in row)) for row in rows(summary)]
    parts.append(html.element("table", header, *body))
    return html.element("section", *parts, attributes={"id": name})


def plot_quality_vs_flops(summary: Summary) -> str | None:
    """Return the plot of the first metric against counted FLOPs, as the lectures' figure has it."""
    column = next(iter(summary["directions"]), "")
    points = []
    for name, system in summary["systems"].items():
        score = system["metrics"].get(column)
        if score and system["flops"] and len(points) < MAX_LINES:
            error = score["sd"] or 0.0
            points.append(ScatterPoint(name, system["flops"], score["mean"], len(points), 0.0, error))
    if len(points) < 2:
        return None
    return charts.render_scatter_plot(
        points,
        title=f"{column} against training FLOPs",
        x_label="counted training FLOPs",
        y_label=f"{column} ({summary['directions'][column]} is better)",
        is_logarithmic=True,
    )


def format_table(table: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table with aligned columns."""
    cells = list(table)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def format_summary(result: ResultConfig, summary: Summary) -> Iterator[str]:
    """Yield the lines that the command prints."""
    yield result.title
    if summary["cells"]:
        table = [("cell", "product", "printed", "")]
        for cell in summary["cells"]:
            product = f"{cell['product']:.3g}" if cell["factors"] else "not known"
            mark = "agrees" if cell["agrees"] else "differs"
            table.append((cell["name"], product, f"{cell['printed']:.2g}", mark))
        yield from format_table(table)
        return
    yield from format_table([_HEADER, *rows(summary)])
    for claim in summary["claims"]:
        p = "" if claim["p"] is None else f", p = {claim['p']:.4f}"
        outcome = {True: "holds", False: "does not hold", None: "not measured"}[claim["holds"]]
        yield f"claim: {claim['text']}: {outcome}{p}{'' if claim['asserted'] else ' (not asserted)'}"
    yield from _notes(result, summary)


def summary_json(summary: Any) -> str:
    """Return a summary as JSON."""
    return json.dumps(summary, indent=1, allow_nan=False) + "\n"
