"""CSV files of time series: long equals wide, gaps are missing values, errors name the line."""

import math
import sys
import tracemalloc

import numpy as np
import pytest

from heedful.data.series.batching import CovariatesConfig
from heedful.data.series.series import SeriesFileConfig, parse_series
from heedful.errors import DataError


def read(folder, text, **settings):
    path = folder / "series.csv"
    path.write_text(text)
    return SeriesFileConfig(path=str(path), **settings).read()


LONG = """id,time,value,price
a,2020-01-30,1,5
b,2020-01-31,7,6
a,2020-01-31,2,6
a,2020-02-02,,8
a,2020-02-03,4,9
b,2020-02-01,8,7
"""


def test_long_file_places_values_at_times(tmp_path):
    a, b = read(tmp_path, LONG)
    assert (a.id, b.id) == ("a", "b")
    np.testing.assert_array_equal(a.values, [1, 2, math.nan, math.nan, 4])
    assert a.format_times(0, 6)[::5] == ["2020-01-30", "2020-02-04"]
    assert b.format_times(0, 1) == ["2020-01-31"]
    np.testing.assert_array_equal(a.columns["price"], [5, 6, math.nan, 8, 9])


def test_wide_file_has_the_series_of_the_long_one(tmp_path):
    wide = "time,a,b\n2020-01-30,1,\n2020-01-31,2,7\n2020-02-01,,8\n2020-02-03,4,\n"
    for one, other in zip(read(tmp_path, wide), read(tmp_path, LONG), strict=True):
        assert one.id == other.id
        np.testing.assert_array_equal(one.values, other.values)
        assert one.format_times(0, 3) == other.format_times(0, 3)


def test_columns_are_chosen_by_name(tmp_path):
    settings = {"time_column": "when", "value_column": "births", "id_column": "state"}
    (series,) = read(tmp_path, "state,when,births\nNY,1,10\nNY,2,11\n", **settings)
    assert (series.id, series.values.tolist()) == ("NY", [10, 11])
    assert series.format_times(2, 4) == ["3", "4"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"value_column": "births", "id_column": "births"}, "one column cannot be two of time"),
        ({"time_column": "births", "value_column": "births"}, "one column cannot be two of time"),
        ({"id_column": "state"}, "the column 'state' names series, but none is called value"),
    ],
)
def test_columns_of_two_roles_and_names_without_values_raise(settings, message, tmp_path):
    with pytest.raises(DataError, match=message) as error:
        read(tmp_path, "state,when,births\n1,1,10\n1,2,11\n", **settings)
    assert "--value-column" in error.value.hint


def test_months_are_equally_spaced(tmp_path):
    (series,) = read(tmp_path, "month,value\n2020-01,1\n2020-02,2\n2020-04,4\n")
    np.testing.assert_array_equal(series.values, [1, 2, math.nan, 4])
    assert series.format_times(4, 6) == ["2020-05", "2020-06"]


def test_rows_with_an_empty_value_at_the_end_are_the_future(tmp_path):
    (series,) = read(tmp_path, "time,value,price\n1,5,1\n2,6,2\n3,,3\n")
    assert series.values.tolist() == [5, 6]
    covariates = CovariatesConfig(age=False, columns=("price",))
    assert covariates.compute(series, -1, 3).tolist() == [[0], [1], [2], [3]]
    with pytest.raises(DataError, match=r"has no 'price' at 4, and the model needs it there"):
        covariates.compute(series, 0, 4)


def test_calendar_covariates_are_sine_and_cosine_of_the_part_that_has_passed(tmp_path):
    (series,) = read(tmp_path, "time,value\n2020-03-01T06:00,1\n2020-03-01T12:00,2\n")
    config = CovariatesConfig(calendar=("hour-of-day", "day-of-week"), age=False)
    sunday = [0, 1]  # 1 March 2020
    expected = [[1, 0, *sunday], [0, -1, *sunday]]
    np.testing.assert_allclose(config.compute(series, 0, 2), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("time,value\n1,1\n2,inf\n", {}, ":3: 'inf' in column 'value' is not a number"),
        ("time,value\n1,1\n2,1_000\n", {}, ":3: '1_000' in column 'value' is not a number"),
        ("time,value\n20130131,1\n", {}, ":2: '20130131' in column 'time' is neither a date nor"),
        ("time,value\n", {}, ": contains no values"),
        ("time,value\n1,\n2,\n", {}, ": series 'value' has no values"),
        ("time,value\n1,5\n", {}, ": no series has two times"),
        ("value\n1\n", {}, ":1: the first row must name two columns or more"),
        ("time,a,a\n1,1,1\n", {}, ":1: two columns are called 'a'"),
        ("time,vale\n1,1\n", {"value_column": "value"}, "no column is called 'value'; did you"),
        (
            "time,value\n1,1\n2,1\n5,2\n",
            {"gaps": "error"},
            ":4: 2 times are left out before this one",
        ),
        ("time,value\n1,1\n2,2\n9999,2\n", {}, ":4: 3 times would fill a grid of 9999 positions"),
    ],
)
def test_broken_file_raises_with_the_line(text, settings, message, tmp_path):
    with pytest.raises(DataError) as error:
        read(tmp_path, text, **settings)
    assert message in str(error.value)
    assert error.value.hint


def test_text_column_raises_only_where_it_is_needed(tmp_path):
    (series,) = read(tmp_path, "time,value,weather\n1,5,rain\n2,6,sun\n")
    with pytest.raises(DataError, match=r":2: 'rain' in column 'weather' is not a number"):
        CovariatesConfig(columns=("weather",)).compute(series, 0, 2)
    with pytest.raises(DataError, match=r"series 'value' has no column 'snow'"):
        CovariatesConfig(columns=("snow",)).compute(series, 0, 2)
    with pytest.raises(DataError, match=r"whole numbers for times, which have no calendar"):
        CovariatesConfig(calendar=("hour-of-day",)).compute(series, 0, 2)


def count_calls(function):
    """Return the number of Python calls that a function makes."""
    count = 0

    def on_event(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(on_event)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def long_file(num_series):
    rows = [f"s{index},{time},{time}" for index in range(num_series) for time in range(4)]
    return "id,time,value\n" + "\n".join(rows)


def test_long_file_is_parsed_in_linear_time(tmp_path):
    few, many = (
        count_calls(lambda count=count: read(tmp_path, long_file(count))) for count in (50, 400)
    )
    assert many < 9 * few


def test_wide_file_takes_linear_memory(tmp_path):
    peaks = []
    for count in (100, 800):
        text = "\n".join(",".join([str(row), *["1"] * count]) for row in range(3))
        text = ",".join(["time", *(f"s{index}" for index in range(count))]) + "\n" + text
        tracemalloc.start()
        series = read(tmp_path, text)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(series) == len(series[0].columns) == count
    assert peaks[1] < 9 * peaks[0]


def test_value_beyond_float32_raises(tmp_path):
    text = "time,value,price\n1,1,1e39\n2,1e39,2\n"
    with pytest.raises(DataError) as error:
        read(tmp_path, text)
    assert ":3: column 'value' has the value 1e+39, which is beyond 1e+17" in str(error.value)
    (series,) = read(tmp_path, text.replace("2,1e39", "2,1"))
    with pytest.raises(DataError, match=r":2: column 'price' has the value 1e\+39"):
        CovariatesConfig(columns=("price",)).compute(series, 0, 2)


def test_blank_lines_are_no_series(tmp_path):
    with pytest.raises(DataError, match="contains only blank lines"):
        read(tmp_path, "\n\n\n")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"time": [1]}, "needs columns of equal lengths"),
        ({"time": [1], "value": [2, 3]}, "needs columns of equal lengths"),
        ({"time": [], "value": []}, "contains no values"),
    ],
)
def test_columns_that_are_no_table_raise(columns, message):
    with pytest.raises(DataError) as error:
        parse_series("a", columns)
    expected = f"series 'a': {message}\n  give a list of times, and one of values"
    assert str(error.value) == expected
