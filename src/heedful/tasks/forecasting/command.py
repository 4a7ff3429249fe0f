"""`heedful forecast`, and the file options of forecasting; imports no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from heedful.data.text_files import ALSO_COMPRESSED
from heedful.errors import ConfigError, check
from heedful.tasks.command_line import (
    EncodingName,
    EnsembleWith,
    FileOption,
    FileOptions,
    PredictorLoader,
    Split,
    check_local,
    write_lines,
)
from heedful.tasks.remote import RemoteRequest
from heedful.terminal import figure_option, page_option, save_text, with_progress

_COLUMNS = {
    "time_column": "column of the times; default: time, timestamp, date or ds, else the first",
    "id_column": "column that names the series of a long file; default: id, item_id or unique_id",
    "value_column": "column of the values of a long file; default: value, target or y",
}
_HELP: Mapping[Split, str] = {
    "train": f"time series for a forecaster: .csv, long or wide; {ALSO_COMPRESSED}",
    "dev": "series whose end is validated on; default: the end of the training series",
    "test": "time series whose end is forecast",
}
FILE_OPTIONS = FileOptions(
    (FileOption("series", "path", _HELP, file_names=("{split}.csv",)),),
    {"type": "series"},
    data="time series",
    model="a forecaster",
    columns=_COLUMNS,
)

SeriesFile = Annotated[str, Argument(help="CSV file of series, long or wide; - is standard input")]
Quantiles = Annotated[str, Option(help="comma-separated levels")]
NumSamples = Annotated[int, Option(min=1, help="sample paths of each series")]
Backtest = Annotated[
    int, Option(min=0, help="forecast the last values instead, this many windows of each series")
]
OutputFile = Annotated[Path | None, Option("--output", "-o", help="write the forecasts here")]
AsJSONLines = Annotated[bool, Option("--json", help="JSON lines instead of CSV")]
PathsFile = Annotated[Path | None, Option("--save-paths", help="write all sample paths as CSV")]
FigureFiles = Annotated[list[Path] | None, figure_option("write a fan chart of the first series")]
HTMLFile = Annotated[Path | None, page_option("write a page with a fan chart of each series")]
TimeColumn = Annotated[str | None, Option(help=_COLUMNS["time_column"], metavar="COLUMN")]
IdColumn = Annotated[str | None, Option(help=_COLUMNS["id_column"], metavar="COLUMN")]
ValueColumn = Annotated[str | None, Option(help=_COLUMNS["value_column"], metavar="COLUMN")]


def forecast(
    load: PredictorLoader,
    file: SeriesFile = "-",
    *,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    value_column: ValueColumn = None,
    encoding: EncodingName = None,
    ensemble_with: EnsembleWith = None,
    quantiles: Quantiles = "0.1,0.5,0.9",
    num_samples: NumSamples = 200,
    seed: Annotated[int, Option(help="random seed")] = 0,
    backtest: Backtest = 0,
    output: OutputFile = None,
    as_json: AsJSONLines = False,
    save_paths: PathsFile = None,
    figures: FigureFiles = None,
    html: HTMLFile = None,
) -> None:
    """Forecast time series: mean and quantiles at each step, as CSV.

    A forecast begins after the last value of a series. A model with given columns as covariates
    needs their future: rows with an empty value at the end. With --output, a summary is printed.
    With --backtest, the page also shows the calibration of the quantiles.

    Example: heedful forecast runs/flights flights.csv -o out.csv --html out.html
    Example: heedful forecast runs/flights flights.csv --quantiles 0.05,0.95 --json
    Example: heedful forecast runs/flights flights.csv --backtest 4 --html page.html
    """
    from heedful.plotting.svg import save_drawings
    from heedful.tasks.forecasting import pages

    levels = _parse_levels(quantiles)
    columns = {"time_column": time_column, "id_column": id_column, "value_column": value_column}
    check_local(load, {"--backtest": backtest})
    forecaster = load(ensemble_with=ensemble_with or ())
    series = forecaster.read_file(file, {**columns, "encoding": encoding})
    options = {"num_samples": num_samples, "seed": seed}
    if backtest:
        results = forecaster.backtest(series, num_windows=backtest, **options)
    else:
        results = forecaster.predict(series, forecaster.options_class(need_paths=True, **options))
    forecasts = list(with_progress(results, total=len(series) * max(backtest, 1)))
    written = {
        save_paths: lambda: pages.format_paths_csv(forecasts),
        html: lambda: pages.render_forecast_page(forecasts, levels),
    }
    format_rows = pages.format_json_lines if as_json else pages.format_csv
    if output is not None:
        written[output] = lambda: "".join(f"{line}\n" for line in format_rows(forecasts, levels))
    for path, render in written.items():
        if path is not None:
            save_text(path, render())
    save_drawings(figures, lambda: pages.render_fan_chart(forecasts[0], levels))
    lines = pages.format_summary(forecasts) if output else format_rows(forecasts, levels)
    write_lines(lines, None)


def _parse_levels(text: str) -> list[float]:
    """Return the quantile levels, sorted."""
    hint = "write levels between 0 and 1, as 0.1,0.5,0.9"
    try:
        levels = sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise ConfigError("--quantiles", f"{text!r} is no list of numbers", hint) from None
    is_valid = all(0 < level < 1 for level in levels)
    check(is_valid, "--quantiles", f"{text!r} has levels that are not between 0 and 1", hint)
    return levels


def read_remote(path: str, settings: Mapping[str, str | None], example: Any) -> list[RemoteRequest]:
    """Read the series of a CSV file, with the covariates of the example, for a server."""
    from functools import partial

    from heedful.data.series.series import SeriesFileConfig
    from heedful.tasks.forecasting.forecast import Forecast

    chosen = {name: value for name, value in settings.items() if value}
    covariates = {*(example or ())} - {"id", "time", "value"}
    series = SeriesFileConfig.model_validate({"path": path, **chosen}).read()
    return [
        RemoteRequest(item.to_json(covariates), partial(Forecast.from_json, item))
        for item in series
        if item.id not in covariates
    ]


COMMANDS = (forecast,)
