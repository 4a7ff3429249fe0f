"""Forecasts as CSV, JSON lines, a summary for the terminal, fan charts and a page.

Invariant: the rows of the CSV are in the order of the series and of time.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

import numpy as np

from heedful.errors import format_count
from heedful.evaluation.base import Array
from heedful.evaluation.forecast_metrics import QUANTILE_LEVELS
from heedful.plotting import html
from heedful.plotting.axes import CategoryTick, PlotFrame
from heedful.plotting.charts import CHART_STYLE, FULL_FRAME, Band, LineSeries, render_line_chart
from heedful.tasks.forecasting.forecast import Forecast, quantile_coverage

_MAX_CHARTS = 60  # on a page
_MAX_TICKS = 6
_PAGE_FRAME = PlotFrame(width=395, height=180, is_compact=True)
_HISTORY_RATIO = 3  # values shown before a forecast, per forecast value
_BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"


def format_csv(forecasts: Sequence[Forecast], levels: Sequence[float]) -> Iterator[str]:
    """Yield the lines of a CSV file: id, time, mean and quantiles."""
    yield _csv_line(["id", "time", "mean", *(f"q{level:g}" for level in levels)])
    for forecast in forecasts:
        columns = zip(forecast.times, forecast.mean, forecast.quantiles(levels), strict=True)
        for time, mean, quantiles in columns:
            numbers = (f"{value:.6g}" for value in (mean, *quantiles))
            yield _csv_line([forecast.series.id, time, *numbers])


def format_paths_csv(forecasts: Sequence[Forecast]) -> str:
    """Return all sample paths as CSV: id, path, time, value."""
    rows = [_csv_line(["id", "path", "time", "value"])]
    for forecast in forecasts:
        times = forecast.times
        for index, path in enumerate(forecast.samples, start=1):
            cells = zip(times, path, strict=True)
            rows += [
                _csv_line([forecast.series.id, str(index), time, f"{value:.6g}"])
                for time, value in cells
            ]
    return "".join(f"{row}\n" for row in rows)


def format_json_lines(forecasts: Sequence[Forecast], levels: Sequence[float]) -> Iterator[str]:
    """Yield one JSON object for each forecast."""
    for forecast in forecasts:
        yield json.dumps(forecast.to_json(levels), ensure_ascii=False)


def _csv_line(cells: Sequence[str]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="").writerow(cells)
    return stream.getvalue()


def format_summary(forecasts: Sequence[Forecast]) -> Iterator[str]:
    """Yield a line for each forecast: last values and medians as bars, the last interval."""
    width = max(len("series"), *(len(forecast.series.id) for forecast in forecasts))
    yield f"{'series':<{width}}  {'from':<16}  {'history | median':<41}  80 % interval at the end"
    for forecast in forecasts:
        start, times = forecast.forecast_start, forecast.times
        history = forecast.series.values[max(0, start - 20) : start]
        low, median, high = forecast.quantiles([0.1, 0.5, 0.9]).T
        values = np.concatenate([history, median[:20]])
        bars = sparkline(values)
        chart = f"{bars[: len(history)]}|{bars[len(history) :]}"
        interval = f"{low[-1]:.4g} to {high[-1]:.4g} at {times[-1]}"
        yield f"{forecast.series.id:<{width}}  {times[0]:<16}  {chart:<41}  {interval}"
    if _has_targets(forecasts):
        yield ""
        yield "quantile             " + "".join(f"{level:7g}" for level in QUANTILE_LEVELS)
        below = "".join(f"{100 * fraction:7.1f}" for fraction in quantile_coverage(forecasts))
        yield f"% of values below it {below}"


def _has_targets(forecasts: Sequence[Forecast]) -> bool:
    return any((~np.isnan(forecast.targets)).any() for forecast in forecasts)


def sparkline(values: Array) -> str:
    """Return a character for each value, higher for larger ones; a space where it is missing."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    steps = (values - low) / ((high - low) or 1) * (len(_BARS) - 1)
    return "".join(" " if np.isnan(step) else _BARS[round(float(step))] for step in steps)


def _interval_names(levels: Sequence[float]) -> dict[float, str]:
    """Return the name of the interval above each level below the median, the widest first."""
    return {
        level: f"{100 * (1 - 2 * level):g} % interval" for level in sorted(levels) if level < 0.5
    }


def _title(forecast: Forecast) -> str:
    """Return the series and the times of a forecast, which tell windows of a backtest apart."""
    times = forecast.times
    return f"{forecast.series.id}, {times[0]} to {times[-1]}"


def render_fan_chart(
    forecast: Forecast, levels: Sequence[float], frame: PlotFrame = FULL_FRAME
) -> str:
    """Draw the end of a series, the median and the intervals between pairs of quantiles."""
    start, steps = forecast.forecast_start, forecast.samples.shape[1]
    first = max(0, start - _HISTORY_RATIO * steps)
    bands = []
    for level, name in _interval_names(levels).items():
        low, high = forecast.quantiles([level, 1 - level]).T
        bands.append(Band(name, _points(low, start), _points(high, start), style_index=1))
    values = np.append(forecast.series.values[first:start], forecast.targets)
    actual = [
        (first + index, None if np.isnan(value) else float(value))
        for index, value in enumerate(values)
    ]
    median = _points(forecast.quantiles([0.5])[:, 0], start)
    lines = [
        LineSeries("actual", actual, max_markers=0, style_index=0),
        LineSeries("median", median, max_markers=0, style_index=1),
    ]
    positions = np.linspace(first, start + steps - 1, _MAX_TICKS).round().astype(int)
    ticks = [
        CategoryTick(position, forecast.series.format_times(position, position + 1)[0])
        for position in dict.fromkeys(positions.tolist())
    ]
    title = ", ".join([_title(forecast), *(band.name for band in bands)])
    return render_line_chart(
        lines, title=title, bands=bands, category_ticks=ticks, x_label="time", frame=frame
    )


def _points(values: Array, start: int) -> list[tuple[float, float]]:
    return [(start + index, float(value)) for index, value in enumerate(values)]


def render_calibration_chart(forecasts: Sequence[Forecast], frame: PlotFrame = FULL_FRAME) -> str:
    """Draw the fraction of actual values that are not above each quantile against its level."""
    below = quantile_coverage(forecasts)
    diagonal = [(level, level) for level in QUANTILE_LEVELS]
    lines = [
        LineSeries("forecasts", list(zip(QUANTILE_LEVELS, below.tolist(), strict=True))),
        LineSeries("calibrated", diagonal, dashed=True, max_markers=0, style_index=5),
    ]
    x_label, y_label = "level of the quantile", "values not above it"
    return render_line_chart(
        lines, title="Calibration", x_label=x_label, y_label=y_label, frame=frame
    )


def _figure(chart: str, name: str, *keys: Element) -> Element:
    title = html.element("span", name, css_class="chart-name")
    caption = html.element("figcaption", title, *keys)
    return html.element("figure", caption, html.embed_svg(chart), css_class="chart")


def render_forecast_page(
    forecasts: Sequence[Forecast], levels: Sequence[float], title: str = "Forecasts"
) -> str:
    """Return a page with a fan chart of each series, and the calibration if values are known."""
    steps, paths = forecasts[0].samples.shape[1], forecasts[0].samples.shape[0]
    text = f"{format_count(len(forecasts), 'forecast')} of {format_count(steps, 'step')}; "
    text += f"quantiles of {format_count(paths, 'sample path')}."
    if len(forecasts) > _MAX_CHARTS:
        text += f" The first {_MAX_CHARTS} are drawn."
    figures = []
    if _has_targets(forecasts):
        name = "Calibration: values not above a quantile, by its level"
        keys = [html.curve_key("line line-0", "forecasts")]
        keys.append(html.curve_key("line dashed line-5", "calibrated"))
        chart = render_calibration_chart(forecasts, _PAGE_FRAME)
        figures.append(_figure(chart, name, *keys))
    for forecast in forecasts[:_MAX_CHARTS]:
        chart = render_fan_chart(forecast, levels, _PAGE_FRAME)
        figures.append(_figure(chart, _title(forecast)))
    keys = [html.curve_key("line line-0", "actual"), html.curve_key("line line-1", "median")]
    for num_layers, name in enumerate(_interval_names(levels).values(), start=1):
        keys.append(html.curve_key("band line-1", name, num_layers=num_layers))
    legend = (html.element("p", text, css_class="intro"), html.element("p", *keys, css_class="bar"))
    content = [
        html.element("div", *legend, attributes={"role": "region", "aria-label": "legend"}),
        html.element("main", html.element("div", *figures, css_class="charts")),
    ]
    return html.render_page(
        html.serialize(*content),
        title=title,
        styles=["attention_map.css", "run.css"],
        extra_style=CHART_STYLE,
        page_type="run",
    )
