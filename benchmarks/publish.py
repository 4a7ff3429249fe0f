"""Results in the documentation: tables and charts of docs/performance.md and docs/scale.md.

    python -m benchmarks.gpu > benchmarks/results/h200.md
    python -m benchmarks.publish

Reads the tables that were printed, writes their medians between the marks of the documents, and
draws docs/images/performance-*.svg. Invariant: documents and charts show what the results say.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import ROOT, parse_no_options
from heedful.plotting.axes import CategoryTick
from heedful.plotting.charts import LineSeries, render_line_chart

RESULTS = [ROOT / "benchmarks/results/h200.md", ROOT / "benchmarks/results/cpu.md"]
DOCUMENTS = [ROOT / "docs/performance.md", ROOT / "docs/scale.md"]
IMAGES = ROOT / "docs/images"
FASTER = "heedful is faster by"

Row = dict[str, str]


class Kind(NamedTuple):
    """A kind of table: a column that no other has, and how the document shows it."""

    column: str
    rows: str  # column whose values become rows
    columns: str  # column whose values become columns
    values: tuple[str, ...]


KINDS = {
    "train": Kind("target tokens/s", "model", "system", ("target tokens/s", FASTER)),
    "decode": Kind("sentences/s", "work", "system", ("sentences/s", FASTER)),
    "additive": Kind("largest error", "B, T, S, A", "system", ("forward, ms", "backward, ms")),
    "additive-memory": Kind("largest error", "B, T, S, A", "system", ("memory, MiB",)),
    "length": Kind("length", "length", "layer", ("milliseconds",)),
    "length-memory": Kind("length", "length", "layer", ("memory, MiB",)),
    "vocabulary": Kind("vocabulary", "vocabulary", "system", ("milliseconds", "memory, GiB")),
    "endtoend": Kind("padding", "", "", ()),
    "cores": Kind("processes x threads", "", "", ()),
    "corpus": Kind("first batch, s", "", "", ()),
    "floors": Kind("limit of the device", "", "", ()),
}


def read_tables(text: str) -> list[list[Row]]:
    """Return the rows of every Markdown table, by column; other lines are skipped."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [
        [cell.strip() for cell in line.strip().removesuffix("|")[1:].split("|")] for line in lines
    ]
    tables: list[list[Row]] = []
    header: list[str] = []
    for cells, following in zip(rows, [*rows[1:], []], strict=True):
        if following and set("".join(following)) == {"-"}:
            header = cells
            tables.append([])
        elif set("".join(cells)) != {"-"}:
            tables[-1].append(dict(zip(header, cells, strict=True)))
    return tables


def rows_of(tables: Sequence[Sequence[Row]], kind: Kind) -> list[Row]:
    """Return the rows of all tables of a kind."""
    others = {"padding", "cores"} if kind.column == "target tokens/s" else set()  # of trainings
    return [
        row for table in tables for row in table if kind.column in row and not others & row.keys()
    ]


def median(cell: str) -> str:
    """Return a cell without quartiles or number of parameters."""
    return re.sub(r" \([^)]*\)", "", cell)


def number(cell: str) -> float:
    """Return the number that a cell begins with."""
    return float(median(cell).split(maxsplit=1)[0].replace(",", ""))


def format_table(rows: Sequence[Row], kind: Kind) -> str:
    """Return a Markdown table of medians; of several values, all but the first in brackets."""
    if not kind.rows:
        header = list(rows[0])
        body = [[median(cell) for cell in row.values()] for row in rows]
        return _markdown([header, *body])
    header = list(dict.fromkeys(median(row[kind.columns]) for row in rows))
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        first, *others = (median(row[value]) for value in kind.values)
        details = [
            f"x {other}" if name == FASTER else other
            for name, other in zip(kind.values[1:], others, strict=True)
            if other
        ]
        text = f"{first} ({', '.join(details)})" if details else first
        cells.setdefault(row[kind.rows], {})[median(row[kind.columns])] = text
    body = [[name, *(found.get(column, "") for column in header)] for name, found in cells.items()]
    return _markdown([[kind.rows, *header], *body])


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    header, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([header, "|" + "---|" * len(rows[0]), *body])


def fill(document: str, tables: Sequence[Sequence[Row]]) -> str:
    """Return the document with new tables between its marks."""

    def replace(match: re.Match[str]) -> str:
        kind = KINDS[match[2]]
        rows = rows_of(tables, kind)
        return f"{match[1]}{format_table(rows, kind)}\n{match[3]}" if rows else match[0]

    return re.sub(r"(?s)(<!-- results: ([a-z-]+) -->\n).*?(<!-- end -->)", replace, document)


def length_chart(rows: Sequence[Row]) -> str:
    """Draw the time of layers against the length."""
    return _chart(
        [(row["layer"], number(row["length"]), number(row["milliseconds"])) for row in rows],
        ("Forward and backward of 16,384 tokens", "length of a sequence", "milliseconds"),
    )


def vocabulary_chart(rows: Sequence[Row]) -> str:
    """Draw the time of training steps against the size of the vocabulary."""
    return _chart(
        [(row["system"], number(row["vocabulary"]), number(row["milliseconds"])) for row in rows],
        ("A training step of Transformer base", "words in the vocabulary", "milliseconds"),
    )


def cores_chart(rows: Sequence[Row]) -> str:
    """Draw the speed of training against the number of cores, of the best setting for each."""
    best: dict[tuple[str, float], float] = {}
    for row in rows:
        is_one = row["processes x threads"].startswith("1 x")
        key = ("threads of one process" if is_one else "processes", number(row["cores"]))
        best[key] = max(best.get(key, 0.0), number(row["target tokens/s"]))
    points = [(name, cores, speed) for (name, cores), speed in best.items()]
    return _chart(points, ("Training on a CPU, default model", "cores", "target tokens per second"))


def corpus_chart(rows: Sequence[Row]) -> str:
    """Draw memory against the number of pairs."""
    columns = {"tokenizing": "tokenizing, MB", "reading": "reading, MB", "on disk": "tokens, MB"}
    points = [
        (name, number(row["pairs"]), number(row[column]))
        for name, column in columns.items()
        for row in rows
    ]
    return _chart(points, ("A corpus that is read from disk", "pairs", "MB"))


def decoding_chart(rows: Sequence[Row]) -> str:
    """Draw the speed of greedy search against the batch size."""
    title = "Transformer base, greedy, batch "
    return _chart(
        [
            (row["system"], number(row["work"].removeprefix(title)), number(row["sentences/s"]))
            for row in rows
            if row["work"].startswith(title)
        ],
        ("Greedy search, Transformer base", "sentences in a batch", "sentences per second"),
    )


def _chart(points: Sequence[tuple[str, float, float]], labels: tuple[str, str, str]) -> str:
    names = list(dict.fromkeys(name for name, _, _ in points))
    lines = [LineSeries(name, [(x, y) for line, x, y in points if line == name]) for name in names]
    ticks = [CategoryTick(x, f"{x:,.0f}") for x in sorted({x for _, x, _ in points})]
    title, x_label, y_label = labels
    return render_line_chart(
        lines,
        title=title,
        x_label=x_label,
        y_label=y_label,
        log_axes=(True, True),
        category_ticks=ticks,
    )


CHARTS: dict[str, tuple[str, Callable[[Sequence[Row]], str]]] = {
    "performance-decoding.svg": ("decode", decoding_chart),
    "performance-length.svg": ("length", length_chart),
    "performance-vocabulary.svg": ("vocabulary", vocabulary_chart),
    "performance-cores.svg": ("cores", cores_chart),
    "performance-corpus.svg": ("corpus", corpus_chart),
}


def contents() -> dict[Path, str]:
    """Return what each file should contain."""
    tables = read_tables("\n".join(path.read_text(encoding="utf-8") for path in RESULTS))
    documents = {path: fill(path.read_text(encoding="utf-8"), tables) for path in DOCUMENTS}
    charts = {
        IMAGES / name: draw(rows)
        for name, (kind, draw) in CHARTS.items()
        if (rows := rows_of(tables, KINDS[kind]))
    }
    return {**documents, **charts}


def main() -> None:
    parse_no_options(__doc__)
    for path, text in contents().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
