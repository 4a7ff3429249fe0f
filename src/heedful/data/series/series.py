"""Time series on a regular grid of times, and the CSV files they are read from.

A long file has one row per value, with columns for id, time and value; a wide file one row per
time, with one column per series. Invariant: each value keeps its time. Times that a file
leaves out become missing values (NaN); times out of order, repeated or off the grid are errors that
name the line.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from heedful.data.sources import Encoding, FileSourceConfig
from heedful.data.text.table_files import read_csv_rows
from heedful.data.text_files import UTF_8
from heedful.errors import DataError, check, did_you_mean, format_count, quote_names

Numbers = NDArray[np.float64]
TimeUnit = Literal["steps", "seconds", "months"]
_TIME_NAMES = ("time", "timestamp", "date", "datetime", "ds")
_ID_NAMES = ("id", "item_id", "unique_id", "series", "series_id")
_VALUE_NAMES = ("value", "target", "y")
_MISSING = {"", "na", "nan", "null", "none"}
_MAX_INTEGER_TIME = 10**7  # beyond it, a whole number is a date without hyphens, as 20130131
MAX_VALUE = 1e17
"""Larger values overflow float32 when a model squares and adds them."""
_MAX_FILL = 100  # positions of the grid per row of the file
_PRECISIONS = {4: "Y", 7: "M", 10: "D", 13: "h", 16: "m"}  # by the length of a time as text


class TimeGrid(NamedTuple):
    """Equally spaced times: whole numbers, multiples of seconds, or of months."""

    unit: TimeUnit
    step: int  # units between two times
    start: int  # units since 1970, or the first whole number
    offset: int = 0  # of months: seconds since the first of the month
    precision: str = "s"  # in which times are written

    def times(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return the times of these positions: dates, or whole numbers."""
        units = self.start + self.step * indices
        if self.unit == "steps":
            return units
        dates = units.astype("datetime64[M]" if self.unit == "months" else "datetime64[s]")
        return dates.astype("datetime64[s]") + np.timedelta64(self.offset, "s")

    def format_times(self, indices: NDArray[np.int64]) -> list[str]:
        """Return the times of these positions as the file writes them."""
        times = self.times(indices)
        if self.unit == "steps":
            return [str(time) for time in times]
        precision: Any = self.precision
        return np.datetime_as_string(times, unit=precision).tolist()

    def shifted(self, count: int) -> "TimeGrid":
        """Return the grid that begins this many positions later."""
        return self._replace(start=self.start + self.step * count)


class Series(NamedTuple):
    """Values of one series, the first and last of them observed."""

    id: str
    values: Numbers  # NaN where missing
    grid: TimeGrid
    columns: Mapping[str, Numbers | DataError] = {}  # of the file; may reach into the future
    location: str = ""

    def format_times(self, start: int, stop: int) -> list[str]:
        """Return the times of some positions, which may lie after the last value."""
        return self.grid.format_times(np.arange(start, stop))

    def to_json(self, columns: Collection[str] = ()) -> dict[str, Any]:
        """Return what `parse_series` reads, with these further columns."""
        numbers = {"value": self.values}
        for name in columns:
            column = self.columns[name]
            if isinstance(column, DataError):
                raise column
            numbers[name] = column
        length = max(map(len, numbers.values()))
        cells = {
            name: [None if np.isnan(value) else value for value in values.tolist()]
            + [None] * (length - len(values))
            for name, values in numbers.items()
        }
        return {"id": self.id, "time": self.format_times(0, length), **cells}


class SeriesFileConfig(FileSourceConfig):
    """A CSV file of time series, long or wide. Also compressed, and "-" for stdin."""

    type: Literal["series"] = "series"
    path: str
    """The file; its first row names the columns."""
    time_column: str | None = None
    """Column of the times: ISO dates or whole numbers; by default `time`, `timestamp`, `date`,
    `datetime` or `ds`, else the first column."""
    value_column: str | None = None
    """Column of the values of a long file; by default `value`, `target` or `y`. Without such a
    column the file is wide: each column but that of the times is a series."""
    id_column: str | None = None
    """Column that names the series of a long file; by default `id`, `item_id`, `unique_id`,
    `series` or `series_id`. Without such a column the file is one series."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """What separates the columns."""
    gaps: Literal["missing", "error"] = "missing"
    """Times that are left out are missing values, or an error."""
    encoding: Encoding = UTF_8
    """Encoding of the file, such as cp1252 for files of Windows."""

    @property
    def column_settings(self) -> dict[str, str | None]:
        """The settings that say which column is which."""
        names = ("time_column", "value_column", "id_column", "delimiter")
        return {name: getattr(self, name) for name in names}

    @override
    def stream(self) -> Iterator[Series]:
        return iter(self.read())

    @override
    def read(self) -> list[Series]:
        return self.parse_table(self._read_table())

    def parse_table(self, table: "_Table") -> list[Series]:
        """Return the series of a table."""
        names = list(table.columns)
        time = self._find(self.time_column, _TIME_NAMES, names) or names[0]
        value = self._find(self.value_column, _VALUE_NAMES, names)
        series_id = self._find(self.id_column, _ID_NAMES, names) if value else None
        message = f"the column {self.id_column!r} names series, but none is called value"
        hint = f"name the column of the values with --value-column: {quote_names(names)}"
        check(value or not self.id_column, table.location, message, hint, DataError)
        used = [name for name in (time, value, series_id) if name]
        message = f"one column cannot be two of time, value and series: {quote_names(used)}"
        hint = "name different columns with --time-column, --value-column and --id-column"
        check(len({*used}) == len(used), table.location, message, hint, DataError)
        others = [name for name in names if name not in (time, value, series_id)]
        groups = {value or "": list(range(len(table.lines)))}
        if series_id:
            groups = {}
            for row, key in enumerate(table.columns[series_id]):
                groups.setdefault(key, []).append(row)
        clock = _Clock(table, time, groups.values())
        if value:
            numbers, columns = table.numbers(value), table.columns_or_errors(others)
            return [
                _trimmed(key, numbers, clock.place(rows, self.gaps), columns)
                for key, rows in groups.items()
            ]
        message = f"the only column is {time!r}, the times"
        check(others, table.location, message, "add a column for each series", DataError)
        all_numbers = {name: table.numbers(name) for name in others}
        placement = clock.place(groups[""], self.gaps)
        return [_trimmed(name, all_numbers[name], placement, all_numbers) for name in others]

    def _find(self, name: str | None, defaults: Sequence[str], names: list[str]) -> str | None:
        if name is None:
            lower = {other.lower(): other for other in reversed(names)}
            return next((lower[default] for default in defaults if default in lower), None)
        message = f"no column is called {name!r}{did_you_mean(name, names)}"
        hint = f"columns found: {quote_names(names)}"
        check(name in names, self.describe(), message, hint, DataError)
        return name

    def _read_table(self) -> "_Table":
        location = self.describe()
        rows = read_csv_rows(self.path, self.delimiter, self.encoding)
        _, names = next(rows)
        name, count = Counter(names).most_common(1)[0]
        message = f"two columns are called {name!r}"
        check(count == 1, f"{location}:1", message, "rename one", DataError)
        message = "the first row must name two columns or more: one of times, and values"
        hint = "begin the file with a row such as time,value; another separator: --delimiter ';'"
        check(len(names) > 1, f"{location}:1", message, hint, DataError)
        lines, cells = [], []
        for line, row in rows:
            if len(row) != len(names):
                message = (
                    f"has {format_count(len(row), 'column')}, but the first row names {len(names)}"
                )
                hint = "give every row a cell for each column; an empty cell is a missing value"
                raise DataError(f"{location}:{line}", message, hint)
            lines.append(line)
            cells.append(row)
        check(cells, location, "contains no values", "add a row for each time", DataError)
        return _Table(location, lines, dict(zip(names, zip(*cells, strict=True), strict=True)))


def parse_series(series_id: str, columns: Mapping[str, Sequence[Any]]) -> Series:
    """Return a series from columns as of a long file, in lists of numbers and texts."""
    lengths = {len(column) for column in columns.values()}
    location, hint = f"series {series_id!r}", "give a list of times, and one of values"
    is_table = len(columns) > 1 and len(lengths) == 1
    check(is_table, location, "needs columns of equal lengths", hint, DataError)
    check(lengths != {0}, location, "contains no values", hint, DataError)
    cells = {
        name: tuple("" if cell is None else str(cell) for cell in column)
        for name, column in columns.items()
    }
    table = _Table(location, list(range(1, max(lengths) + 1)), cells)
    return SeriesFileConfig(path=series_id).parse_table(table)[0]._replace(id=series_id)


class _Table(NamedTuple):
    """The cells of a file by column."""

    location: str
    lines: list[int]  # line number of each row
    columns: dict[str, tuple[str, ...]]

    def locate(self, row: int) -> str:
        return f"{self.location}:{self.lines[row]}"

    def numbers(self, name: str) -> Numbers:
        """Return a column as numbers, NaN where missing."""
        cells = enumerate(self.columns[name])
        return np.array([self._number(text.strip(), name, row) for row, text in cells])

    def columns_or_errors(self, names: Sequence[str]) -> dict[str, Numbers | DataError]:
        """Return columns that may not be needed; the error of one that has other cells."""
        columns: dict[str, Numbers | DataError] = {}
        for name in names:
            try:
                columns[name] = self.numbers(name)
            except DataError as error:
                columns[name] = error
        return columns

    def _number(self, text: str, name: str, row: int) -> float:
        try:
            number = math.inf if "_" in text else float(text)  # Python reads 1_000
        except ValueError:
            number = math.inf
        if abs(number) <= MAX_VALUE:
            return number
        if math.isfinite(number):
            raise value_error(number, f"column {name!r}", self.locate(row))
        message = f"{text!r} in column {name!r} is not a number"
        hint = "write numbers as -12.5, and leave the cell of a missing value empty"
        check(text.lower() in _MISSING, self.locate(row), message, hint, DataError)
        return math.nan


def value_error(value: float, name: str, location: str) -> DataError:
    """Return the message for a value that models cannot compute with."""
    message = f"{name} has the value {value:g}, which is beyond {MAX_VALUE:g}"
    return DataError(location, message, "divide the values by a constant, such as 1e6")


class _Clock:
    """The times of a file, and the grid that they lie on."""

    def __init__(self, table: _Table, column: str, groups: Iterable[list[int]]) -> None:
        self.table, self.groups = table, list(groups)
        texts = [text.strip().removesuffix("Z") for text in table.columns[column]]
        self.precision, self.offset = _PRECISIONS.get(len(texts[0]), "s"), 0
        self.unit: TimeUnit
        if all(re.fullmatch(r"-?\d+", text) for text in texts):
            self.unit, self.units = "steps", np.array([int(text) for text in texts])
            message = f"{texts[0]!r} in column {column!r} is neither a date nor a small number"
            hint = "write dates as 2013-01-31 or 2013-01-31T18:00"
            is_small = abs(self.units).max() < _MAX_INTEGER_TIME
            check(is_small, table.locate(0), message, hint, DataError)
        else:
            first_rows = {text: row for row, text in reversed(list(enumerate(texts)))}
            times = {text: self._parse(text, row, column) for text, row in first_rows.items()}
            dates = np.array([times[text] for text in texts])
            months = dates.astype("datetime64[M]")
            offsets = (dates - months.astype("datetime64[s]")).astype(np.int64)
            self.unit, self.units = "seconds", dates.astype(np.int64)
            if (offsets == offsets[0]).all() and (months != months[0]).any():
                self.unit, self.units = "months", months.astype(np.int64)
                self.offset = int(offsets[0])
        differences = np.concatenate([np.diff(self.units[rows]) for rows in self.groups])
        message, hint = "no series has two times", "a series needs two rows or more"
        check(len(differences), table.location, message, hint, DataError)
        self.step = int(max(1, differences.min()))  # negative ones are reported later

    def _parse(self, text: str, row: int, column: str) -> np.datetime64:
        time: Any
        try:
            time = np.datetime64(text, "s")
        except ValueError:
            time = np.datetime64("NaT")
        message = f"{text!r} in column {column!r} is not a time"
        hint = "write times as 2013-01-31, 2013-01-31T18:00 or 2013-01, or as whole numbers"
        check(not np.isnat(time), self.table.locate(row), message, hint, DataError)
        return time

    def place(self, rows: list[int], gaps: str) -> "_Placement":
        """Return where the rows of a series are on its grid."""
        grid = TimeGrid(self.unit, self.step, int(self.units[rows[0]]), self.offset, self.precision)
        return _Placement(self.table.location, grid, np.array(rows), self._positions(rows, gaps))

    def _positions(self, rows: list[int], gaps: str) -> NDArray[np.int64]:
        """Return the position of each row on the grid of its series; check their order."""
        units = self.units[rows]
        differences = np.diff(units)
        for index in np.flatnonzero(differences <= 0)[:1].tolist():
            row, before = rows[index + 1], self.table.lines[rows[index]]
            is_same = differences[index] == 0
            relation = "is the same as in" if is_same else "is earlier than in"
            hint = "keep one of the two rows" if is_same else "sort the rows of a series by time"
            hint += "; a file of several series needs a column of ids (id_column)"
            message = f"the time {relation} line {before}"
            raise DataError(self.table.locate(row), message, hint)
        step = self.step
        for index in np.flatnonzero(differences % step)[:1].tolist():
            unit = "" if self.unit == "steps" else f" {self.unit}"
            message = f"the time is {differences[index]}{unit} after the one before, not a "
            message += f"multiple of {step}, the smallest distance in the file"
            hint = "give times at equal distances; those in between may be left out"
            raise DataError(self.table.locate(rows[index + 1]), message, hint)
        positions: NDArray[np.int64] = (units - units[0]) // step
        for index in np.flatnonzero(np.diff(positions) > 1)[:1].tolist() if gaps == "error" else []:
            count = positions[index + 1] - positions[index] - 1
            message = f"{count} times are left out before this one"
            hint = "add them, or set `gaps: missing`"
            raise DataError(self.table.locate(rows[index + 1]), message, hint)
        message = f"{len(rows)} times would fill a grid of {positions[-1] + 1} positions"
        hint = "look for a time that is far from the others, or two that are too close"
        is_dense = positions[-1] < _MAX_FILL * (len(rows) + 10)
        check(is_dense, self.table.locate(rows[-1]), message, hint, DataError)
        return positions


class _Placement(NamedTuple):
    """The rows of a series, and their positions on its grid."""

    location: str
    grid: TimeGrid
    rows: NDArray[np.int64]
    positions: NDArray[np.int64]

    def scatter(self, column: Numbers) -> Numbers:
        """Return a column on the grid, NaN where it has no row."""
        values = np.full(int(self.positions[-1]) + 1, math.nan)
        values[self.positions] = column[self.rows]
        return values


class ColumnViews(Mapping[str, Numbers | DataError]):
    """The columns of one series, from its position `first` on, computed when they are used.

    All series share the columns of the file, so memory does not grow with series times columns.
    """

    def __init__(
        self, columns: Mapping[str, Numbers | DataError], placement: _Placement, first: int
    ) -> None:
        self._columns, self._placement, self._first = columns, placement, first
        self._used: dict[str, Numbers] = {}

    @override
    def __getitem__(self, name: str) -> Numbers | DataError:
        if name not in self._used:
            column = self._columns[name]
            if isinstance(column, DataError):
                return column
            self._used[name] = self._placement.scatter(column)[self._first :]
        return self._used[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    @override
    def __len__(self) -> int:
        return len(self._columns)


def _trimmed(
    series_id: str,
    column: Numbers,
    placement: _Placement,
    columns: Mapping[str, Numbers | DataError],
) -> Series:
    """Return a series without missing values before the first and after the last observed one."""
    values, location = placement.scatter(column), placement.location
    observed = np.flatnonzero(~np.isnan(values))
    message = f"series {series_id!r} has no values"
    check(len(observed), location, message, "remove it, or add values", DataError)
    first, last = int(observed[0]), int(observed[-1])
    views = ColumnViews(columns, placement, first) if columns else {}
    return Series(
        series_id, values[first : last + 1], placement.grid.shifted(first), views, location
    )
