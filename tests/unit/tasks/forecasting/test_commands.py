"""Training, resuming, forecasting and evaluating series by the commands, and their messages."""

import csv
import io
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.data.series.series import SeriesFileConfig
from heedful.errors import ConfigError, DataError, RunError
from tests.forecasting import BACKBONES

RECIPE = {
    "data": {"series_batching": {"batch_size": 4, "batches_per_epoch": 3}},
    "tokenizers": {"type": "none"},
    "model": {
        "type": "forecaster",
        "context_length": 6,
        "prediction_length": 3,
        "season_length": 4,
        "covariates": {"calendar": ["hour-of-day"], "columns": ["price"]},
        **BACKBONES["lstm"],
    },
    "training": {
        "max_steps": 4,
        "validate_every": 2,
        "num_logged_samples": 1,
        "lr_scheduler": {"type": "constant"},
    },
}


def write_series(path, count=2, length=40, future=3):
    """Write a long file with missing values and a covariate that is known for longer."""
    rows = ["id,time,value,price"]
    for index in range(count):
        for t in range(length + future):
            value = "" if t in (9, 17) or t >= length else round(10 + index + math.sin(t), 3)
            rows.append(f"s{index},2020-01-{1 + t // 24:02}T{t % 24:02}:00,{value},{t % 5}")
    path.write_text("\n".join(rows) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecasting")
    series = write_series(folder / "series.csv")
    result = heedful.train(RECIPE, folder / "run", series=series, device="cpu")
    assert result.step == 4
    return folder / "run", series


@pytest.fixture(scope="module")
def transformer(trained):
    """A Transformer that forecasts fewer values."""
    run, series = trained
    model = {**RECIPE["model"], **BACKBONES["transformer"], "prediction_length": 2}
    recipe = {**RECIPE, "model": model}
    settings = {"training.max_steps": 2}
    heedful.train(recipe, run.parent / "other", series=series, settings=settings, device="cpu")
    return run.parent / "other"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_forecast_prints_quantiles_in_order_from_the_end_of_each_series(trained):
    run, series = trained
    output = invoke("forecast", run, series, "--quantiles", "0.9,0.1", "--device", "cpu").stdout
    rows = list(csv.DictReader(io.StringIO(output)))
    assert list(rows[0]) == ["id", "time", "mean", "q0.1", "q0.9"]
    assert [row["id"] for row in rows] == ["s0"] * 3 + ["s1"] * 3
    assert rows[0]["time"] == "2020-01-02T16:00"
    assert all(float(row["q0.1"]) < float(row["q0.9"]) for row in rows)


def test_forecast_writes_all_files_and_prints_a_summary(trained, tmp_path):
    run, series = trained
    names = {"-o": "f.jsonl", "--html": "f.html", "--svg": "f.svg", "--save-paths": "p.csv"}
    files = [part for option, name in names.items() for part in (option, tmp_path / name)]
    result = invoke(
        *("forecast", run, series, "--json", "--num-samples", 7, "--backtest", 2, *files),
        *("--device", "cpu"),
    )
    assert result.exit_code == 0, result.output
    assert "80 % interval at the end" in result.output
    assert "\n% of values below it" in result.output
    forecasts = [json.loads(line) for line in (tmp_path / "f.jsonl").read_text().splitlines()]
    assert [forecast["id"] for forecast in forecasts] == ["s0", "s0", "s1", "s1"]
    values = SeriesFileConfig(path=series).read()[0].values
    assert forecasts[1]["actual"] == values[-3:].tolist()
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + 4 * 7 * 3
    page = (tmp_path / "f.html").read_text()
    titles = re.findall(r'class="chart-name">(.*?)</span>', page)
    assert titles[0].startswith("Calibration")
    assert len(titles) == len(set(titles)) == 1 + len(forecasts)  # two windows of each series
    assert 'class="band"' in (tmp_path / "f.svg").read_text()


def test_evaluate_compares_the_model_with_the_seasonal_naive(trained):
    run, series = trained
    output = invoke("evaluate", run, series, "--json", "--device", "cpu").stdout
    scores = {entry["name"]: entry for entry in json.loads(output)}
    assert {"negative log-likelihood", "MASE", "MASE, seasonal naive"} <= scores.keys()
    many = SeriesFileConfig(path=series).read()
    errors, differences = [], []
    for single in many:
        before, after = single.values[:-3], single.values[-3:]
        errors.append(np.abs(after - before[-4:-1]).mean())
        differences.append(np.nanmean(np.abs(before[4:] - before[:-4])))
    expected = np.mean(np.array(errors) / differences)
    assert scores["MASE, seasonal naive"]["value"] == pytest.approx(expected)


def test_evaluate_writes_the_calibration_that_it_prints(trained, tmp_path):
    run, series = trained
    page = tmp_path / "page.html"
    command = ("evaluate", run, series, "--json", "--html", page, "--device", "cpu")
    scores = {entry["name"]: entry["value"] for entry in json.loads(invoke(*command).stdout)}
    (points,) = re.findall(r'data-name="forecasts">(.*?)</g>', page.read_text(), re.DOTALL)
    drawn = dict(re.findall(r'data-x="([\d.]+)" data-y="([\d.]+)"', points))
    assert len(drawn) == 9
    forecasts = list(heedful.load(run, device="cpu").backtest(SeriesFileConfig(path=series).read()))
    for level, fraction in drawn.items():
        below = [
            target <= np.quantile(path, float(level))
            for forecast in forecasts
            for target, path in zip(forecast.targets, forecast.samples.T, strict=True)
        ]
        assert float(fraction) == pytest.approx(np.mean(below))
        assert scores[f"coverage of quantile {level}"] == pytest.approx(100 * np.mean(below))


def test_encoding_of_series_is_an_option(trained, tmp_path):
    run, series = trained
    (tmp_path / "in.csv").write_bytes(Path(series).read_text().encode("utf-16"))
    expected, actual = (
        invoke("forecast", run, path, *options, "--device", "cpu").stdout
        for path, options in ((series, ()), (tmp_path / "in.csv", ("--encoding", "utf-16")))
    )
    assert actual == expected != ""


def test_legend_shades_intervals_as_the_chart_does(trained, tmp_path):
    run, series = trained
    options = ["--quantiles", "0.05,0.25,0.5,0.75,0.95", "--html", tmp_path / "page.html"]
    invoke("forecast", run, series, *options, "--device", "cpu")
    swatches = re.findall(
        r'class="key"><svg((?:(?!</svg>).)*)</svg>(\d+) % interval',
        (tmp_path / "page.html").read_text(),
    )
    assert [(name, drawn.count("<path")) for drawn, name in swatches] == [("90", 1), ("50", 2)]


def test_changed_series_cannot_resume_a_run(trained, tmp_path):
    _, series = trained
    copy = tmp_path / "series.csv"
    text = Path(series).read_text()
    copy.write_text(text)
    heedful.train(RECIPE, tmp_path / "run", series=copy, device="cpu")
    copy.write_text(text.replace("10.0,", "10.5,", 1))
    settings = {"training.max_steps": 6}
    with pytest.raises(RunError, match="the training data has changed"):
        heedful.train(RECIPE, tmp_path / "run", series=copy, settings=settings, device="cpu")


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"model.prediction_length": 30}, DataError, "has 40 values, but one needs 61 values"),
        ({"model.head": "negative-binomial"}, DataError, "and a negative-binomial distribution"),
        ({"model.covariates.columns": ["cost"]}, DataError, "series 's0' has no column 'cost'"),
        ({"tokenizers": {"type": "shared"}}, ConfigError, "a forecaster reads numbers"),
        ({"training.label_smoothing": 0.1}, ConfigError, "a forecaster has no tokens to smooth"),
        ({"training.objective.type": "minimum-risk"}, ConfigError, "needs tokens, and a foreca"),
        (
            {"model.head": "negative-binomial", "model.scaling": "standard"},
            ConfigError,
            "scaling 'standard' gives negative numbers",
        ),
    ],
)
def test_wrong_settings_reported_before_writing(settings, error, message, tmp_path):
    series = write_series(tmp_path / "series.csv")
    with pytest.raises(error, match=message):
        heedful.train(RECIPE, tmp_path / "run", series=series, settings=settings, device="cpu")
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_forecast_without_future_covariates_names_missing_rows(trained, tmp_path):
    run, _ = trained
    series = write_series(tmp_path / "series.csv", future=0)
    output = invoke("forecast", run, series, "--device", "cpu")
    assert isinstance(output.exception, DataError)
    assert "has no 'price' at 2020-01-02T16:00" in str(output.exception)


def test_series_cannot_be_prepared_as_tokens(tmp_path):
    series = write_series(tmp_path / "series.csv")
    result = invoke("prepare", "deepar-2020-small", "--series", series, "-o", tmp_path / "tokens")
    assert "series have no tokens to prepare" in str(result.exception)


def test_quantile_levels_checked(trained):
    run, series = trained
    for text in ("0.5,x", "1.5"):
        result = invoke("forecast", run, series, "--quantiles", text)
        assert "write levels between 0 and 1" in str(result.exception)


def test_compare_shows_the_scores_of_evaluate(trained, tmp_path):
    run, series = trained
    copy = shutil.copytree(run, tmp_path / "copy")
    files = ("--series", series, "--output-dir", tmp_path / "out", "--device", "cpu")
    result = invoke("compare", run, copy, *files, "--json")
    systems = json.loads(result.stdout)["systems"]
    scores = json.loads(invoke("evaluate", run, series, "--json", "--device", "cpu").stdout)
    expected = {entry["name"]: entry["value"] for entry in scores}
    for system in systems:
        actual = {entry["score"]["name"]: entry["score"]["value"] for entry in system["scores"]}
        assert actual == {name: pytest.approx(expected[name]) for name in actual}
        assert {"weighted quantile loss", "MASE", "calibration error"} <= actual.keys()


def test_forecasts_of_other_lengths_not_compared(trained, transformer, tmp_path):
    run, series = trained
    files = ("--series", series, "--output-dir", tmp_path, "--device", "cpu")
    error = invoke("compare", run, transformer, *files).exception
    assert isinstance(error, RunError)
    assert str(error) == (
        f"{transformer}: predicts other targets than {run}\n"
        "  compare runs with equal model.prediction_length, model.season_length and "
        "data.series_batching.num_validation_windows"
    )


def test_show_draws_the_self_attention_of_a_transformer_over_times(trained, transformer):
    run, series = trained
    output = invoke("show", transformer, series, "--json", "--head", "all", "--device", "cpu")
    first, _ = (json.loads(line) for line in output.stdout.splitlines())
    assert first["id"] == "s0"
    (head, _) = first["attention"]
    weights = np.array(head["weights"])
    assert weights.shape == (8, 8)  # 6 values of context, 2 of the prediction range
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-3)
    assert not np.triu(weights, 1).any()
    error = invoke("show", run, series, "--device", "cpu").exception
    assert str(error) == (
        f"{run}: this model has no attention to draw\n  name a run of a model with attention"
    )
