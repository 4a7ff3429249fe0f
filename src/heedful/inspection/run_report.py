"""The report of a training run: one self-contained HTML page.

It is drawn from metrics.jsonl, samples.jsonl and config.yaml: key figures, curves, samples with
their attention maps, validations, configuration and environment. A run that has just started, or
whose last line is incomplete, also has a report.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise, product
from statistics import median
from string import Template
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from heedful.config import flatten_settings
from heedful.errors import DataError
from heedful.inspection import training_curves
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.training_curves import CurveChart, Entry, Metrics, Timeline, as_finite_float
from heedful.plotting import charts, html
from heedful.plotting.axes import PlotFrame, format_value
from heedful.plotting.charts import ChartEvent, LineSeries
from heedful.plotting.svg import escape_invisible, escape_line, escape_text, format_weight

Entries = Sequence[Entry]
KeyFigure = tuple[str, object, str, str]  # name, value, unit and note

MAX_EVENTS = 200
MAX_ROWS = 1000  # of the table of validations
MAX_MARKERS = 80  # more would hide the line
MAX_VALIDATIONS = 100
MAX_WEIGHTS = 1_000_000  # about 6 MB of JSON
MAX_TOKENS = 64  # per side; a larger map is unreadable
MAX_CELLS = 1024  # of an image
MAX_TEXT_LENGTH = 2000  # characters
_AXIS_NAMES, _AXIS_UNITS = ("Step", "Time", "FLOPs"), ("", "seconds", "")
_WIDE, _NARROW = (1200, 230), (395, 120)  # width and height of a plot
_NOT_AVAILABLE = "\u2013"


def render_run_page(
    title: str, config_text: str, entries: Entries, samples: Entries, *, metrics: Metrics
) -> str:
    """Return the report; `metrics` have label, unit and direction of validation metrics."""
    curve_charts = training_curves.make_charts(entries, metrics)
    content = Template(html.read_asset("run.html")).substitute(
        key_figures=html.serialize(html.key_figures(_key_figures(entries, metrics))),
        curves=html.serialize(*_curves_section(curve_charts, entries)),
        validations=html.serialize(*_validations_section(entries, metrics)),
        environments=html.serialize(_environment_section(entries)),
    )
    return html.render_page(
        content,
        title=title,
        styles=["attention_map.css", "caption.css", "run.css"],
        scripts=["run-page.js"],
        data={
            "charts": [_chart_to_dict(chart) for chart in curve_charts],
            "run": {"samples": group_by_step(samples), "configuration": escape_text(config_text)},
        },
        extra_style=charts.CHART_STYLE,
        page_type="run",
    )


def _nothing(text: str) -> Element:
    return html.element("p", text, css_class="nothing")


# ----- key figures -----


def _key_figures(entries: Entries, metrics: Metrics) -> list[tuple[str, str, str]]:
    """Return name, value and note of the numbers that sum up a run."""
    training = training_curves.entries_of_type(entries, "training")
    validations = training_curves.entries_of_type(entries, "validation")
    if not training and not validations:
        return []
    last_step = max(entry["step"] for entry in (*training[-1:], *validations[-1:]))
    _, seconds, flops = Timeline([*training, *validations]).locate({"step": last_step})
    speeds, memory, epochs = (
        [value for value in _values(training, name) if value is not None]
        for name in ("tokens_per_second", "peak_memory", "epoch")
    )
    names = ("loss", *training_curves.logged_names(validations, metrics))
    figures: list[KeyFigure] = [
        ("Steps", last_step, "", f"epoch {epochs[-1]:g}" if epochs else ""),
        ("Time", seconds, "seconds", ""),
        *(_best_figure(name, validations, metrics) for name in names),
        ("Tokens per second", median(speeds) if speeds else None, "", "median"),
        ("Peak memory", max(memory, default=None), "bytes", ""),
        ("FLOPs", flops, "", ""),
        ("Skipped steps", sum(count for _, count in _skipped_steps(entries)) or None, "", ""),
    ]
    return [
        (name, format_value(value, unit), note)
        for name, number, unit, note in figures
        if (value := as_finite_float(number)) is not None
    ]


def _values(entries: Iterable[Entry], name: str) -> list[float | None]:
    return [as_finite_float(entry.get(name)) for entry in entries]


def _skipped_steps(entries: Entries) -> list[tuple[Entry, int]]:
    """Return each training entry with the number of steps skipped since the one before it."""
    training = training_curves.entries_of_type(entries, "training")
    counts = [0.0, *(count or 0.0 for count in _values(training, "num_skipped_steps"))]
    new = [max(0, int(after - before)) for before, after in pairwise(counts)]
    return list(zip(training, new, strict=True))


def _best_figure(name: str, validations: Entries, metrics: Metrics) -> KeyFigure:
    style = training_curves.curve_style(name, metrics)
    index = _best_index(_values(validations, name), style.lower_is_better)
    if index is None:
        return name, None, "", ""
    value, step = float(validations[index][name]), f"step {validations[index]['step']:,}"
    if name == "loss":
        perplexity = math.exp(min(value, 50.0))
        return "Lowest validation loss", value, "", f"{step}, perplexity {perplexity:.4g}"
    # Names such as BLEU keep their capitals.
    label = style.name.lower() if style.name[1:].islower() else style.name
    return f"Best {label}", value, style.unit, step


def _best_index(values: Sequence[float | None], lower_is_better: bool) -> int | None:
    sign = 1 if lower_is_better else -1
    known = [(sign * value, index) for index, value in enumerate(values) if value is not None]
    return min(known)[1] if known else None


# ----- curves -----


def _curves_section(curve_charts: Sequence[CurveChart], entries: Entries) -> list[Element]:
    """Return the charts, each drawn over each axis that is known; a script shows one of them."""
    if not curve_charts:
        text = "Nothing yet: training has not logged any metrics."
        return [html.element("h2", "Curves"), _nothing(text)]
    points = [point for chart in curve_charts for curve in chart.curves for point in curve.points]
    axes = [axis for axis in range(3) if all(point[axis] is not None for point in points)]
    ends = {axis: max(point[axis] or 0.0 for point in points) for axis in axes}
    events = {axis: _events(entries, axis) for axis in axes}
    figures = []
    for index, chart in enumerate(curve_charts):
        parts = [_caption(chart)]
        # The first chart is wide, and drawn once more for narrow screens.
        wide = {"curves broad": _WIDE, "curves slim": _NARROW}
        frames = wide if index == 0 else {"curves": _NARROW}
        for (choice, axis), (css_class, size) in product(enumerate(axes), frames.items()):
            svg = html.embed_svg(_draw_chart(chart, axis, ends[axis], events[axis], size))
            position = {"data-axis": str(choice), "data-column": str(axis)}
            parts.append(html.element("div", svg, css_class=css_class, attributes=position))
        css_class = "chart wide" if index == 0 else "chart"
        attributes = {"data-chart": chart.id, "tabindex": "0"}
        figure = html.element("figure", *parts, css_class=css_class, attributes=attributes)
        figures.append(html.element("line-chart", figure))
    hint = "Point at a curve, or use the arrow keys, to read it."
    legends = {"resumed": "Dashed: resumed.", "skipped": "Triangles: skipped steps."}
    legend = [legends[event_type] for event_type in sorted({event.type for event in events[0]})]
    bar = html.element(
        "div",
        html.element("h2", "Curves"),
        html.radio_group("axis", "over", [_AXIS_NAMES[axis] for axis in axes]),
        html.element("output", " ".join([hint, *legend]), attributes={"id": "read-out"}),
        css_class="bar",
    )
    return [bar, html.element("div", *figures, css_class="charts")]


def _events(entries: Entries, axis: int) -> list[ChartEvent]:
    """Return where training was resumed and where steps were skipped; at most the newest."""
    timeline = Timeline(entry for entry in entries if entry.get("type") != "environment")
    resumed = [entry for entry in entries if entry.get("type") == "environment"][1:]
    skipped = [entry for entry, count in _skipped_steps(entries) if count]
    sources = [("resumed", "resumed at", entry) for entry in resumed]
    sources += [("skipped", "steps were skipped before", entry) for entry in skipped]
    events = []
    for event_type, title, entry in sources[-MAX_EVENTS:]:
        position = timeline.locate({"step": entry.get("step")})
        if (x := position[axis]) is not None:
            events.append(ChartEvent(x, event_type, f"{title} step {position[0]:g}"))
    return events


def _draw_chart(
    chart: CurveChart, axis: int, end: float, events: Sequence[ChartEvent], size: tuple[int, int]
) -> str:
    style, raw, lines = chart.style, [], []
    for index, curve in enumerate(chart.curves):
        kept = training_curves.downsample(curve.points, 2 * size[0])  # two for each pixel
        points = curve._replace(points=kept).over(axis)
        line = LineSeries(curve.name or style.name, points, style_index=index, max_markers=0)
        if curve.type == "raw":
            raw = [points]
            continue
        if curve.type == "smoothed":
            line = line._replace(style_index=0, run_curves=raw)
        elif curve.type == "validation":
            best = _best_index([value for _, value in points], style.lower_is_better)
            ring = points[best] if best is not None and len(points) > 1 else None
            max_markers = None if len(points) <= MAX_MARKERS else 0
            line = line._replace(style_index=1, max_markers=max_markers, best=ring)
        lines.append(line)
    values = [point.value for curve in chart.curves for point in curve.points]
    y_included = (0.0,) if style.from_zero and min(values) >= 0 else ()
    units = (_AXIS_UNITS[axis], style.unit)
    return charts.render_line_chart(
        lines,
        title=style.name,
        x_label=_AXIS_NAMES[axis].lower(),
        y_label=style.name,
        log_axes=(False, style.is_logarithmic),
        events=[event for event in events if event.x <= end],
        frame=PlotFrame(*size, True, units, included=((0.0, end), y_included)),
    )


def _caption(chart: CurveChart) -> Element:
    """Return the name of a chart, and for each curve its name and the value at the pointer."""
    parts = [html.element("span", chart.style.name, css_class="chart-name")]
    for index, curve in enumerate(chart.curves):
        color = {"raw": 0, "smoothed": 0, "validation": 1}.get(curve.type, index)
        css_class = "run-curve" if curve.type == "raw" else "line"
        css_class += f" line-{color % len(charts.LIGHT_LINE_COLORS)}"
        value = html.element("output", attributes={"aria-live": "off"})
        if curve.name:
            parts.append(html.curve_key(css_class, html.element("span", curve.name), value))
        else:
            parts.append(html.element("span", value, css_class="key"))
    if count := chart.num_missing:
        parts.append(html.element("span", f"{count} not a finite number", css_class="missing"))
    return html.element("figcaption", *parts)


def _chart_to_dict(chart: CurveChart) -> dict[str, Any]:
    """Return the numbers that the script shows at the pointer, in columns."""

    def rounded(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.6g}") if value % 1 else int(value)

    curves = []
    for curve in chart.curves:
        columns = [list(map(rounded, column)) for column in zip(*curve.points, strict=True)]
        curves.append({"type": curve.type, "columns": columns or [[], [], [], []]})
    return {"id": chart.id, "unit": chart.style.unit, "curves": curves}


# ----- validations and environment -----


def _validations_section(entries: Entries, metrics: Metrics) -> list[Element]:
    """Return the table of validations, the newest first, with the best of each metric marked."""
    validations = training_curves.entries_of_type(entries, "validation")
    if not validations:
        return [_nothing("Nothing yet: there has been no validation.")]
    shown = validations[-MAX_ROWS:]
    timeline = Timeline(entry for entry in entries if entry.get("type") != "environment")
    rows: list[list[Element]] = []
    for entry in shown:
        step, seconds, _ = timeline.locate(entry)
        time = _NOT_AVAILABLE if seconds is None else format_value(seconds, "seconds")
        rows.append([html.element("td", format_value(step)), html.element("td", time)])
    titles = ["Step", "Time"]
    for name in ("loss", *training_curves.logged_names(validations, metrics)):
        style, values = training_curves.curve_style(name, metrics), _values(shown, name)
        best = _best_index(values, style.lower_is_better)
        for index, text in enumerate(_format_column(values, style.unit)):
            css_class = "best" if index == best else ""
            rows[index].append(html.element("td", text, css_class=css_class))
        titles.append(style.name)
    head = [html.column_header(title) for title in titles]
    table = html.table(head, rows[::-1], css_class="plain", caption="Validations")
    if len(shown) == len(validations):
        return [table]
    note = f"The newest {len(shown)} are shown; {len(validations) - len(shown)} older ones are not."
    return [table, html.element("p", note, css_class="note")]


def _format_column(values: Sequence[float | None], unit: str) -> list[str]:
    """Format the values of a column with equally many decimals, so that they can be compared."""
    factor, suffix = (100, " %") if unit == "fraction" else (1, "")
    largest = max((abs(value) * factor for value in values if value is not None), default=0.0)
    digits = 4 if largest < 10 else 2
    if not 1e-3 <= largest < 1e7:
        return [_NOT_AVAILABLE if z is None else format_value(z, unit) for z in values]
    return [_NOT_AVAILABLE if z is None else f"{factor * z:.{digits}f}{suffix}" for z in values]


def _environment_section(entries: Entries) -> Element:
    """Return the environment of each segment of a run: the first in full, then what changed."""
    parts: list[Element] = []
    previous: dict[str, str] = {}
    for entry in entries:
        if entry.get("type") != "environment":
            continue
        facts = {key: entry[key] for key in entry if key not in {"type", "step"}}
        values = {
            name: " ".join(map(str, value)) if isinstance(value, list) else str(value)
            for name, value in flatten_settings(facts)
        }
        changed = [(name, value) for name, value in values.items() if previous.get(name) != value]
        title = f"Resumed at step {as_finite_float(entry.get('step')) or 0:,g}"
        title = (title + ", with these changes" if changed else title) if parts else "Started"
        parts += [html.element("h3", title), html.definition_list(changed)]
        previous = values
    section = html.element("div", *parts, css_class="environments")
    return section if parts else _nothing("The environment was not logged.")


# ----- samples -----


def group_by_step(samples: Entries) -> dict[str, Any]:
    """Group samples by step, in order; of many steps an even selection with first and last."""
    steps: dict[int, list[Entry]] = {}
    for sample in samples:
        if isinstance(step := sample.get("step"), int):
            steps.setdefault(step, []).append(sample)
    kept, count = sorted(steps), _max_steps_shown(list(steps.values()))
    if len(kept) > count:
        kept = [kept[index * (len(kept) - 1) // (count - 1)] for index in range(count)]
    validations = [
        {"step": step, "items": [_sample_to_dict(sample) for sample in steps[step]]}
        for step in kept
    ]
    return {"validations": validations, "total": len(steps)}


def _max_steps_shown(steps: Sequence[Entries]) -> int:
    """Return for how many validations a page has room, by the largest of them."""
    sizes = [_max_num_weights(sample) for samples in steps for sample in samples]
    num_weights = max(map(len, steps), default=1) * max(sizes, default=1)
    return max(2, min(MAX_VALIDATIONS, MAX_WEIGHTS // max(1, num_weights)))


def _max_num_weights(sample: Entry) -> int:
    source, output = (len(_tokens(sample, side)) for side in ("source", "output"))
    if _grid(sample):
        return min(source, MAX_CELLS) * min(output, MAX_TOKENS)
    return (min(source, MAX_TOKENS) + min(output, MAX_TOKENS)) ** 2 // 4


def _sample_to_dict(sample: Entry) -> dict[str, Any]:
    """Return a sample as far as it goes; weights only if they are an attention map."""
    source, output = _tokens(sample, "source"), _tokens(sample, "output")
    weights: list[list[float]] | None = None
    notes: list[str] = []
    grid: tuple[int, int] | None = None
    with suppress(DataError, ValueError, TypeError, OverflowError):
        array = np.array(sample.get("attention"), dtype=np.float64)
        copied = sample.get("copy_probs", sample.get("copy_shares", ()))  # the name until 0.1.0
        copy_probs = [float(prob) for prob in copied]
        grid = _grid(sample)
        attention_map = AttentionMap(
            source, output, array, copy_probs=copy_probs or None, grid=grid
        )
        if not attention_map.is_empty:
            attention_map = attention_map.join_bytes()
            source, output = list(attention_map.source), list(attention_map.target)
            notes = attention_map.notes[:MAX_TOKENS]
            max_columns = MAX_TOKENS if grid is None else None
            rows = attention_map.weights[:MAX_TOKENS, :max_columns]
            weights = [[float(format_weight(weight)) for weight in row] for row in rows]
    shown_source = source if grid is None else str(sample.get("source_text", "")).split()
    return {
        "source": [escape_invisible(token) for token in shown_source[:MAX_TOKENS]],
        "output": [escape_invisible(token) for token in output[:MAX_TOKENS]],
        "reference": _text(sample.get("reference")),
        "text": _text(sample.get("text")),
        "weights": weights,
        "notes": notes,
        "grid": grid if weights else None,
        "is_cut": max(len(shown_source), len(output)) > MAX_TOKENS,
    }


def _grid(sample: Entry) -> tuple[int, int] | None:
    """Return the rows and columns of an image; None of a text, and of too many cells to draw."""
    match sample.get("grid"):
        case [int(rows), int(columns)] if rows > 0 < columns and rows * columns <= MAX_CELLS:
            return rows, columns
    return None


def _tokens(sample: Entry, side: str) -> list[str]:
    tokens = sample.get(side)
    return [str(token) for token in tokens] if isinstance(tokens, list) else []


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    cut = text[:MAX_TEXT_LENGTH] + ("..." if len(text) > MAX_TEXT_LENGTH else "")
    return "\n".join(map(escape_line, cut.split("\n")))
