"""The full text of errors about time series; what was written before is kept."""

import pytest

from tests.commands import heedful
from tests.forecasting import write_series_recipe

SORT = (
    "sort the rows of a series by time; a file of several series needs a column of ids (id_column)"
)
KEEP = "keep one of the two rows; a file of several series needs a column of ids (id_column)"
NUMBERS = "write numbers as -12.5, and leave the cell of a missing value empty"
TIMES = "write times as 2013-01-31, 2013-01-31T18:00 or 2013-01, or as whole numbers"
EQUAL = "give times at equal distances; those in between may be left out"
CELLS = "give every row a cell for each column; an empty cell is a missing value"
BROKEN = {
    "unordered": ("time,value\n2,5\n1,6\n", ":3: the time is earlier than in line 2", SORT),
    "twice": ("time,value\n1,5\n2,6\n2,7\n", ":4: the time is the same as in line 3", KEEP),
    "no number": (
        "time,value\n1,5\n2,six\n",
        ":3: 'six' in column 'value' is not a number",
        NUMBERS,
    ),
    "no time": ("time,value\nnoon,5\n", ":2: 'noon' in column 'time' is not a time", TIMES),
    "off the grid": (
        "time,value\n1,5\n3,6\n6,7\n",
        ":4: the time is 3 after the one before, not a multiple of 2, the smallest distance in "
        "the file",
        EQUAL,
    ),
    "short row": ("time,value\n1,5\n2\n", ":3: has 1 column, but the first row names 2", CELLS),
    "no values": (
        "time,value\n1,\n2,\n",
        ": series 'value' has no values",
        "remove it, or add values",
    ),
}


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words: heedful(capsys, monkeypatch, *words, "--device", "cpu")


@pytest.mark.parametrize("name", BROKEN)
def test_broken_series_not_trained_on(name, call, tmp_path):
    text, message, hint = BROKEN[name]
    (tmp_path / "bad.csv").write_text(text)
    ended = call(
        "train", write_series_recipe(tmp_path), "--series", "bad.csv", "--run", "run", "-q"
    )
    assert (ended.code, ended.err) == (2, f"heedful: bad.csv{message}\n  {hint}\n")
    assert not list(tmp_path.glob("run/checkpoints/*"))


@pytest.mark.parametrize(
    ("option", "setting", "message"),
    [
        (
            "--value-column",
            "valeu",
            "bad.csv: no column is called 'valeu'; did you mean 'value'?\n"
            "  columns found: 'time', 'value'",
        ),
        (
            "--set",
            "data.train.gaps=error",
            "bad.csv:4: 2 times are left out before this one\n  add them, or set `gaps: missing`",
        ),
    ],
    ids=["missing column", "gaps"],
)
def test_columns_and_gaps_checked(option, setting, message, call, tmp_path):
    (tmp_path / "bad.csv").write_text("time,value\n1,5\n2,6\n5,7\n")
    files = ("--series", "bad.csv", "--run", "run", "-q")
    ended = call("train", write_series_recipe(tmp_path), *files, option, setting)
    assert (ended.code, ended.err) == (2, f"heedful: {message}\n")


def test_broken_series_leave_a_run_and_the_forecasts_as_they_were(call, tmp_path):
    recipe, series = write_series_recipe(tmp_path, steps=2, every=2), tmp_path / "series.csv"
    assert call("train", recipe, "--run", "run", "-q").code == 0
    assert call("forecast", "run", series, "-o", "out.csv").code == 0
    text, message, hint = BROKEN["unordered"]
    series.write_text(text)
    files = [path for path in tmp_path.rglob("*") if path.suffix in (".safetensors", ".csv")]
    before = {path: path.read_bytes() for path in files}
    for command in (
        ("forecast", "run", series, "-o", "out.csv"),
        ("evaluate", "run", series),
        ("train", recipe, "--run", "run", "-q", "--set", "training.max_steps=4"),
    ):
        ended = call(*command)
        assert (ended.code, ended.err) == (2, f"heedful: {series}{message}\n  {hint}\n")
    assert {path: path.read_bytes() for path in files} == before
