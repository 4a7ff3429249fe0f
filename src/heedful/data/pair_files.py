"""Files that hold both texts of a pair: TSV, CSV, JSON lines, Parquet, Arrow; CoNLL has its own.

Each is read row by row. Invariant: the same pairs in any of the formats, compressed or not, are
the same examples; what breaks a format is an error that names file and line.
"""

import csv
import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt
from typing_extensions import override

from heedful.data.columnar_files import ColumnarSource
from heedful.data.conll_files import ConllConfig
from heedful.data.pair_dataset import Pair
from heedful.data.sources import ParallelFilesConfig, SourceConfig, SyntheticPairsConfig
from heedful.data.text_files import display_name, nonempty_lines
from heedful.errors import DataError, check, did_you_mean
from heedful.storage.json_files import MAX_BYTES, parse_json
from heedful.tokenization.tokenizer import check_no_surrogates

_COLUMN_OPTIONS = "--source-column and --target-column"
_USUAL_HEADERS = ({"source", "target"}, {"text", "label"})


class PairFileConfig(SourceConfig):
    """A file of pairs."""

    type: str  # first, so that it is written first
    path: str
    """The file; also .gz, .xz and "-" for stdin."""

    row_name: ClassVar[str] = "line"

    @property
    @override
    def paths(self) -> Sequence[str]:
        return (self.path,)

    @override
    def locate(self, row: int) -> str:
        return f"{display_name(self.path)}, {self.row_name} {row + 1}"


class TableConfig(PairFileConfig):
    """A file whose rows have as many columns each."""

    source_column: PositiveInt | str = 1
    """Column of the source texts: its number, counted from 1, or its name in the first line."""
    target_column: PositiveInt | str = 2
    """Column of the target texts: its number, counted from 1, or its name in the first line."""
    num_columns: PositiveInt | None = None
    """Number of columns that every line must have; default: as many as line 1."""
    header: bool = False
    """Whether the first line names the columns, as it does if one is given by name."""

    separation: ClassVar[str]
    """How columns are separated, in messages."""
    separation_hint: ClassVar[str]
    """Why a row may have too many or too few of them."""

    @abstractmethod
    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows, each with the number of its first line."""

    @property
    def _columns(self) -> tuple[int | str, int | str]:
        return self.source_column, self.target_column

    @property
    def _has_header(self) -> bool:
        return self.header or any(isinstance(column, str) for column in self._columns)

    @override
    def stream(self) -> Iterator[Pair]:
        num_columns, num_rows = self.num_columns, 0
        indices: list[int] = []
        for num_rows, (line_number, row) in enumerate(self._rows(), start=1):
            num_columns = num_columns or len(row)
            indices = indices or [self._find_column(column, row) for column in self._columns]
            if len(row) != num_columns or len(row) <= max(indices):
                raise self._column_error(len(row), line_number, num_columns, max(indices) + 1)
            pair = Pair(*(row[index] for index in indices))
            if num_rows > 1:
                yield pair
            elif not self._has_header:
                self._check_no_header(pair)
                yield pair
        if self._has_header and num_rows == 1:
            message, hint = "contains only a header", "set `header: false`, or add lines"
            raise DataError(display_name(self.path), message, hint)

    def _find_column(self, column: int | str, names: Sequence[str]) -> int:
        if isinstance(column, int):
            return column - 1
        message = f"no column is called {column!r}{did_you_mean(column, names)}"
        hint = f"give {_COLUMN_OPTIONS}; columns found: {', '.join(names)}"
        check(column in names, f"{display_name(self.path)}:1", message, hint, DataError)
        return names.index(column)

    def _check_no_header(self, pair: Pair) -> None:
        message = f"{pair.source!r} and {pair.target!r} are names of columns, not a pair"
        hint = f"give {_COLUMN_OPTIONS} by name, or set `header: true`"
        is_header = {text.strip().lower() for text in pair} in _USUAL_HEADERS
        check(not is_header, f"{display_name(self.path)}:1", message, hint, DataError)

    def _column_error(
        self, count: int, line_number: int, num_columns: int, needed: int
    ) -> DataError:
        message = f"{count} {self.separation} column{'s' if count != 1 else ''}, but "
        if line_number > 1:
            message += f"line 1 has {num_columns}"
            hint = self.separation_hint
        elif count > num_columns:
            message += f"{num_columns} are expected"
            hint = f"name the two that count with {_COLUMN_OPTIONS}"
        else:
            message += f"column {needed} is needed"
            hint = f"give {_COLUMN_OPTIONS}, or {self.separation_hint}"
        return DataError(f"{display_name(self.path)}:{line_number}", message, hint)

    @override
    def locate(self, row: int) -> str:
        return super().locate(row + self._has_header)

    @override
    def describe(self) -> str:
        return f"{display_name(self.path)}, columns {self.source_column} and {self.target_column}"


class TSVConfig(TableConfig):
    """A file of tab-separated columns without quoting."""

    type: Literal["tsv"] = "tsv"

    separation = "tab-separated"
    separation_hint = "look for lost or added tabs; a text must not contain any"

    @override
    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        for line_number, line in enumerate(nonempty_lines(self.path), start=1):
            yield line_number, line.split("\t")


class CSVConfig(TableConfig):
    """A file of comma-separated columns, in quotation marks where a text contains a comma."""

    type: Literal["csv"] = "csv"
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """What separates the columns."""

    row_name = "row"  # a text may have more than one line
    separation = "comma-separated"
    separation_hint = (
        "put texts that contain commas in quotation marks; another separator: `delimiter: ';'`"
    )

    @override
    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        return read_csv_rows(self.path, self.delimiter)


def read_csv_rows(path: str, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of each row of a CSV file; a blank line amid them has none."""
    lines = (f"{line}\n" for line in nonempty_lines(path))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    line_number, blank_line, is_empty = 1, 0, True
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            message = f"unbalanced quotation marks in the row that starts here ({error})"
            hint = 'write quotation marks inside a text twice, as in """Yes"", she said."'
            location = f"{display_name(path)}:{line_number}"
            raise DataError(location, message, hint) from None
        if row is None:
            break
        is_empty = is_empty and not row
        if row and blank_line:  # only at the end of the file are they nothing
            yield blank_line, []
        elif row:
            yield line_number, row
        else:
            blank_line = blank_line or line_number
        line_number = reader.line_num + 1
    if is_empty:
        raise DataError(display_name(path), "contains only blank lines", "give a file with rows")


class JSONLConfig(PairFileConfig):
    """A file with a JSON object on each line."""

    type: Literal["jsonl"] = "jsonl"
    source_column: str = "source"
    """Key of the source texts; `translation.fr` for the key `fr` of the object `translation`,
    `targets.0` for the first text of the array `targets`. An array is joined by blanks."""
    target_column: str = "target"
    """Key of the target texts."""

    @override
    def stream(self) -> Iterator[Pair]:
        columns = self.source_column, self.target_column
        example = json.dumps(dict.fromkeys(columns, "..."), ensure_ascii=False)
        hint = f"each line must be an object such as {example}"
        for location, record in read_json_objects(self.path, hint):
            yield Pair(*(_get_text(record, column, location) for column in columns))

    @override
    def describe(self) -> str:
        return f"{display_name(self.path)}, keys {self.source_column!r} and {self.target_column!r}"


def read_json_objects(path: str, hint: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield file and line number, and the object of each line of a JSON lines file."""
    for line_number, line in enumerate(nonempty_lines(path, MAX_BYTES), start=1):
        location = f"{display_name(path)}:{line_number}"
        try:
            record = parse_json(line)
        except json.JSONDecodeError as error:
            message = f"not JSON at column {error.colno}: {error.msg}"
            raise DataError(location, message, hint) from None
        except ValueError:
            message = "JSON with a number too long, or nested too deep"
            raise DataError(location, message, hint) from None
        message = f"not an object but {type_name(record)}"
        check(isinstance(record, dict), location, message, hint, DataError)
        yield location, record


class ColumnarPairsConfig(PairFileConfig):
    """A file of columns; needs the extra `parquet` (pyarrow)."""

    source_column: PositiveInt | str = "source"
    """Column of the source texts: its name, or its number, counted from 1; `translation.fr` for
    the field `fr` of the column `translation`."""
    target_column: PositiveInt | str = "target"
    """Column of the target texts: its name, or its number, counted from 1."""

    row_name = "row"

    @property
    def columnar_source(self) -> ColumnarSource:
        """How the file is read."""
        return ColumnarSource(self.path, self.type)  # type: ignore[arg-type]

    @override
    def stream(self) -> Iterator[Pair]:
        source, columns = self.columnar_source, (self.source_column, self.target_column)
        names = source.column_names(columns, options=_COLUMN_OPTIONS)
        row = -1
        for row, record in enumerate(source.rows(columns, options=_COLUMN_OPTIONS)):
            yield Pair(*(_get_text(record, name, self.locate(row)) for name in names))
        location, hint = display_name(self.path), "give a file with text in it"
        check(row >= 0, location, "contains no rows", hint, DataError)

    @override
    def describe(self) -> str:
        return f"{display_name(self.path)}, columns {self.source_column} and {self.target_column}"


class ParquetConfig(ColumnarPairsConfig):
    """A Parquet file; needs the extra `parquet` (pyarrow)."""

    type: Literal["parquet"] = "parquet"


class ArrowConfig(ColumnarPairsConfig):
    """An Arrow (IPC) file or stream, also Feather; needs the extra `parquet` (pyarrow)."""

    type: Literal["arrow"] = "arrow"


class DatasetFolderConfig(ColumnarPairsConfig):
    """A folder that `save_to_disk` of the package datasets wrote; needs the extra `parquet`."""

    type: Literal["datasets"] = "datasets"
    path: str
    """The folder."""
    split: str | None = None
    """Split, if the folder has several."""

    @property
    @override
    def columnar_source(self) -> ColumnarSource:
        return ColumnarSource(self.path, self.type, self.split)

    @property
    @override
    def paths(self) -> Sequence[str]:
        with suppress(DataError):
            return self.columnar_source.data_files()
        return (self.path,)


PAIR_SOURCES: tuple[type[SourceConfig], ...] = (
    ParallelFilesConfig,
    TSVConfig,
    CSVConfig,
    JSONLConfig,
    ParquetConfig,
    ArrowConfig,
    DatasetFolderConfig,
    SyntheticPairsConfig,
)
PairSourceConfig = Annotated[
    ParallelFilesConfig
    | TSVConfig
    | CSVConfig
    | JSONLConfig
    | ParquetConfig
    | ArrowConfig
    | DatasetFolderConfig
    | ConllConfig
    | SyntheticPairsConfig,
    Field(discriminator="type"),
]


def _get_text(record: Mapping[str, Any], key: str, location: str) -> str:
    """Return the text of a key, or of a path of keys such as `translation.fr` or `targets.0`."""
    value = get_json_value(record, key, location, options=_COLUMN_OPTIONS)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    message = f"the value of {key!r} is {type_name(value)}, not a string"
    hint = "every value must be a text; convert or remove the others"
    check(isinstance(value, str), location, message, hint, DataError)
    check_no_surrogates(value, location=f"{location}, {key}")
    return value


def get_json_value(record: Mapping[str, Any], key: str, location: str, *, options: str) -> Any:
    """Return the value of a key or path of keys; an error names the `options` that choose it."""
    value: Any = record
    for part in [key] if key in record else key.split("."):
        items = enumerate(value) if isinstance(value, list) else ()
        keys = value if isinstance(value, dict) else {str(index): item for index, item in items}
        if part not in keys:
            message = f"no key is called {key!r}{did_you_mean(part, keys)}"
            names = ", ".join(sorted(keys)) or "none"
            raise DataError(location, message, f"give {options}; keys found: {names}")
        value = keys[part]
    return value


def type_name(value: Any) -> str:
    """Return the JSON type of a value, with its article."""
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {dict: "an object", list: "an array", str: "a string", type(None): "null"}
    return names.get(type(value), "bytes" if isinstance(value, bytes) else "a number")
