"""The report of a training run: one self-contained HTML page.

It is drawn from metrics.jsonl, samples.jsonl and config.yaml: key figures, curves, samples with
their attention maps, validations, configuration and environment. A run that has just started, or
whose last line is incomplete, has a report, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from string import Template
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from heedful.inspection.attention_map import attention_data
from heedful.inspection.run_samples import group_by_step
from heedful.inspection.training_curves import (
    AXES,
    CurveChart,
    Entry,
    MetricInfo,
    Timeline,
    as_finite_float,
    curve_style,
    entries_of_type,
    make_charts,
    validation_metric_names,
)
from heedful.plotting.axes import PlotFrame, format_value
from heedful.plotting.charts import (
    LIGHT_LINE_COLORS,
    ChartEvent,
    LineSeries,
    chart_style,
    render_line_chart,
)
from heedful.plotting.html import (
    column_header,
    definition_list,
    embed_svg,
    key_figures,
    make_element,
    make_table,
    radio_group,
    read_asset,
    render_page,
    to_html,
)
from heedful.plotting.svg import escape_text

MAX_EVENTS = 200
MAX_ROWS = 1000  # of the table of validations
MAX_MARKERS = 80  # more would hide the line

_AXIS_NAMES = ("Step", "Time", "FLOPs")
_AXIS_UNITS = ("", "seconds", "")
_WIDE, _NARROW = (1200, 230), (395, 120)  # width and height of a plot
_NOT_AVAILABLE = "\u2013"

Metrics = Mapping[str, MetricInfo]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read the objects of a JSON lines file, if it exists; incomplete lines are skipped."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [entry for line in lines if isinstance(entry := _parse_line(line), dict)]


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def render_run_page(
    title: str,
    config_text: str,
    entries: Sequence[Entry],
    samples: Sequence[Entry],
    *,
    metrics: Metrics,
) -> str:
    """Return the report; `metrics` give label, unit and direction of what validations computed."""
    charts = make_charts(entries, metrics)
    content = Template(read_asset("run.html")).substitute(
        key_figures=to_html(key_figures(_key_figures(entries, metrics))),
        curves=to_html(*_curves_section(charts, entries)),
        validations=to_html(*_validations_section(entries, metrics)),
        environments=to_html(_environment_section(entries)),
    )
    return render_page(
        content,
        title=title,
        styles=["attention_map.css", "run.css"],
        scripts=["attention_map.js", "charts.js", "run.js"],
        data={
            "maps": attention_data([]),
            "charts": [_chart_to_dict(chart) for chart in charts],
            "run": {"samples": group_by_step(samples), "configuration": escape_text(config_text)},
        },
        extra_style=chart_style(),
        page_type="run",
    )


def _nothing(text: str) -> Element:
    return make_element("p", text, css_class="nothing")


# ----- key figures -----


def _key_figures(entries: Sequence[Entry], metrics: Metrics) -> list[tuple[str, str, str]]:
    """Return name, value and note of the numbers that sum up a run."""
    training = entries_of_type(entries, "training")
    validations = entries_of_type(entries, "validation")
    if not training and not validations:
        return []
    last_step = max(entry["step"] for entry in (*training[-1:], *validations[-1:]))
    _, seconds, flops = Timeline([*training, *validations]).locate({"step": last_step})
    speeds, memory, epochs = (
        [value for value in _values(training, name) if value is not None]
        for name in ("tokens_per_second", "peak_memory", "epoch")
    )
    names = ("loss", *validation_metric_names(validations, metrics))
    figures: list[tuple[str, object, str, str]] = [
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


def _skipped_steps(entries: Sequence[Entry]) -> list[tuple[Entry, int]]:
    """Return each training entry with the number of steps skipped since the one before it."""
    training = entries_of_type(entries, "training")
    counts = [0.0, *(count or 0.0 for count in _values(training, "num_skipped_steps"))]
    new = [max(0, int(after - before)) for before, after in pairwise(counts)]
    return list(zip(training, new, strict=True))


def _best_figure(
    name: str, validations: Sequence[Entry], metrics: Metrics
) -> tuple[str, object, str, str]:
    style = curve_style(name, metrics)
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


class _Event(NamedTuple):
    type: str
    title: str
    position: tuple[float, float | None, float | None]  # on each axis


def _curves_section(charts: Sequence[CurveChart], entries: Sequence[Entry]) -> list[Element]:
    """Return the charts, each drawn over every axis that is known; a script shows one of them."""
    if not charts:
        text = "Nothing yet: training has not logged any metrics."
        return [make_element("h2", "Curves"), _nothing(text)]
    points = [point for chart in charts for curve in chart.curves for point in curve.points]
    axes = [axis for axis in range(len(AXES)) if all(point[axis] is not None for point in points)]
    highest = {axis: max(point[axis] or 0.0 for point in points) for axis in axes}
    events = _events(entries)
    figures = []
    for index, chart in enumerate(charts):
        drawings = [
            make_element(
                "div",
                embed_svg(_draw_chart(chart, axis, highest[axis], events, is_wide=index == 0)),
                css_class="curves",
                attributes={"data-axis": str(choice), "data-column": str(axis)},
            )
            for choice, axis in enumerate(axes)
        ]
        figure = {"data-chart": chart.id, "tabindex": "0"}
        css_class = "chart wide" if index == 0 else "chart"
        figures.append(
            make_element(
                "figure", _caption(chart), *drawings, css_class=css_class, attributes=figure
            )
        )
    hint = "Point at a curve, or use the arrow keys, to read it."
    legends = {"resumed": "Dashed: resumed.", "skipped": "Triangles: skipped steps."}
    legend = [legends[event_type] for event_type in sorted({event.type for event in events})]
    bar = make_element(
        "div",
        make_element("h2", "Curves"),
        radio_group("axis", "over", [_AXIS_NAMES[axis] for axis in axes]),
        make_element("output", " ".join([hint, *legend]), attributes={"id": "read-out"}),
        css_class="bar",
    )
    return [bar, make_element("div", *figures, css_class="charts")]


def _events(entries: Sequence[Entry]) -> list[_Event]:
    """Return where training was resumed and where steps were skipped; at most the newest."""
    timeline = Timeline(entry for entry in entries if entry.get("type") != "environment")
    resumed = [entry for entry in entries if entry.get("type") == "environment"][1:]
    skipped = [entry for entry, count in _skipped_steps(entries) if count]
    events = [("resumed", "resumed at step {}", entry) for entry in resumed]
    events += [("skipped", "steps were skipped before step {}", entry) for entry in skipped]
    result = []
    for event_type, title, entry in events[-MAX_EVENTS:]:
        position = timeline.locate({"step": entry.get("step")})
        result.append(_Event(event_type, title.format(f"{position[0]:g}"), position))
    return result


def _draw_chart(
    chart: CurveChart, axis: int, highest: float, events: Sequence[_Event], *, is_wide: bool
) -> str:
    style, raw, lines = chart.style, [], []
    for index, curve in enumerate(chart.curves):
        points = curve.over(axis)
        if curve.type == "raw":
            raw = [points]
            continue
        line = LineSeries(curve.name or style.name, points, style_index=index, max_markers=0)
        if curve.type == "smoothed":
            line = line._replace(style_index=0, run_curves=raw)
        elif curve.type == "validation":
            best = _best_index([value for _, value in points], style.lower_is_better)
            line = line._replace(
                style_index=1,
                max_markers=None if len(points) <= MAX_MARKERS else 0,
                best=points[best] if best is not None and len(points) > 1 else None,
            )
        lines.append(line)
    values = [point.value for curve in chart.curves for point in curve.points]
    width, height = _WIDE if is_wide else _NARROW
    frame = PlotFrame(
        width,
        height,
        is_compact=True,
        units=(_AXIS_UNITS[axis], style.unit),
        included=((0.0, highest), (0.0,) if style.from_zero and min(values) >= 0 else ()),
    )
    shown = [
        ChartEvent(x, event_type, title)
        for event_type, title, position in events
        if (x := position[axis]) is not None and x <= highest
    ]
    return render_line_chart(
        lines,
        title=style.name,
        x_label=_AXIS_NAMES[axis].lower(),
        y_label=style.name,
        log_axes=(False, style.is_logarithmic),
        events=shown,
        frame=frame,
    )


def _caption(chart: CurveChart) -> Element:
    """Return the name of a chart, and for each curve its name and the value at the pointer."""
    parts = [make_element("span", chart.style.name, css_class="chart-name")]
    for index, curve in enumerate(chart.curves):
        color = {"raw": 0, "smoothed": 0, "validation": 1}.get(curve.type, index)
        css_class = "run-curve" if curve.type == "raw" else "line"
        css_class += f" line-{color % len(LIGHT_LINE_COLORS)}"
        path = make_element("path", css_class=css_class, attributes={"d": "M1,5 H15"})
        swatch = {"viewBox": "0 0 16 10", "aria-hidden": "true"}
        key: list[Element | str] = [make_element("output", attributes={"aria-live": "off"})]
        if curve.name:
            line = make_element("svg", path, css_class="swatch", attributes=swatch)
            key = [line, make_element("span", curve.name), *key]
        parts.append(make_element("span", *key, css_class="key"))
    if chart.num_missing:
        text = f"{chart.num_missing} not a finite number"
        parts.append(make_element("span", text, css_class="missing"))
    return make_element("figcaption", *parts)


def _chart_to_dict(chart: CurveChart) -> dict[str, Any]:
    """Return the numbers that the script shows at the pointer, in columns."""
    curves = []
    for curve in chart.curves:
        columns = [
            list(map(_round_significant, column)) for column in zip(*curve.points, strict=True)
        ]
        curves.append({"type": curve.type, "columns": columns or [[], [], [], []]})
    return {"id": chart.id, "unit": chart.style.unit, "curves": curves}


def _round_significant(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}") if value % 1 else int(value)


# ----- validations and environment -----


def _validations_section(entries: Sequence[Entry], metrics: Metrics) -> list[Element]:
    """Return the table of validations, the newest first, with the best of each metric marked."""
    validations = entries_of_type(entries, "validation")
    if not validations:
        return [_nothing("Nothing yet: there has been no validation.")]
    names = ["loss", *validation_metric_names(validations, metrics)]
    shown = validations[-MAX_ROWS:]
    timeline = Timeline(entry for entry in entries if entry.get("type") != "environment")
    columns = []
    for name in names:
        style, values = curve_style(name, metrics), _values(shown, name)
        best = _best_index(values, style.lower_is_better)
        cells = [
            make_element("td", text, css_class="best" if index == best else "")
            for index, text in enumerate(_format_column(values, style.unit))
        ]
        columns.append((style.name, cells))
    rows = []
    for index, entry in enumerate(shown):
        step, seconds, _ = timeline.locate(entry)
        time = _NOT_AVAILABLE if seconds is None else format_value(seconds, "seconds")
        position = [make_element("td", format_value(step)), make_element("td", time)]
        rows.append([*position, *(cells[index] for _, cells in columns)])
    head = [column_header(name) for name in ("Step", "Time", *(name for name, _ in columns))]
    table = make_table(head, rows[::-1], css_class="plain", caption="Validations")
    if len(shown) == len(validations):
        return [table]
    note = f"The newest {len(shown)} are shown; {len(validations) - len(shown)} older ones are not."
    return [table, make_element("p", note, css_class="note")]


def _format_column(values: Sequence[float | None], unit: str) -> list[str]:
    """Format the values of a column with equally many decimals, so that they can be compared."""
    factor, suffix = (100, " %") if unit == "fraction" else (1, "")
    largest = max((abs(value) * factor for value in values if value is not None), default=0.0)
    digits = 4 if largest < 10 else 2

    def format_cell(value: float) -> str:
        is_fixed = 1e-3 <= largest < 1e7
        return f"{factor * value:.{digits}f}{suffix}" if is_fixed else format_value(value, unit)

    return [_NOT_AVAILABLE if value is None else format_cell(value) for value in values]


def _environment_section(entries: Sequence[Entry]) -> Element:
    """Return the environment of each segment of a run: the first in full, then what changed."""
    parts: list[Element] = []
    previous: dict[str, str] = {}
    for entry in entries:
        if entry.get("type") != "environment":
            continue
        values = dict(_flatten({key: entry[key] for key in entry if key not in {"type", "step"}}))
        changed = [(name, value) for name, value in values.items() if previous.get(name) != value]
        title = f"Resumed at step {as_finite_float(entry.get('step')) or 0:,g}"
        title = (title + ", with these changes" if changed else title) if parts else "Started"
        parts += [make_element("h3", title), definition_list(changed)]
        previous = values
    if not parts:
        return _nothing("The environment was not logged.")
    return make_element("div", *parts, css_class="environments")


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, dict):
            yield from _flatten(inner, f"{name}.")
        else:
            yield name, " ".join(map(str, inner)) if isinstance(inner, list) else str(inner)
