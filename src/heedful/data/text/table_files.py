"""Tables of pairs, TSV and CSV: columns by number or by name, with or without a header.

Invariant: a row is a header only if both of its texts that would be a pair are names of columns.
"""

import csv
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, PositiveInt
from typing_extensions import override

from heedful.data.sources import Encoding, PairFileConfig, column_options
from heedful.data.text.pair_dataset import Pair
from heedful.data.text_files import UTF_8, display_name, nonempty_lines
from heedful.errors import DataError, check, did_you_mean, quote_names

_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}  # as they are typed
TEXT_NAMES = ("source", "src", "text", "sentence", "input", "question", "review")
LABEL_NAMES = ("label", "labels", "class", "category", "sentiment", "intent", "tag", "tags")
TARGET_NAMES = ("target", "tgt", "trg", "translation", "output", "summary", *LABEL_NAMES)
_LANGUAGES = """
ar bg bn ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn
ko la lt lv mk ml mn mr ms mt my nb ne nl nn no pa pl ps pt ro ru si sk sl sq sr sv sw ta te th tl
tr uk ur uz vi zh english french german italian latin portuguese russian spanish chinese japanese
korean dutch polish czech turkish arabic hindi greek swedish"""


class NamedColumns(NamedTuple):
    """The columns of source and target in a header, counted from 0."""

    source: int
    target: int


def _normalized(row: Sequence[str]) -> list[str]:
    return [cell.strip().lower() for cell in row]


def _is_name(cell: str) -> bool:
    language = re.split("[-_]", cell)[0]
    return cell in {*TEXT_NAMES, *TARGET_NAMES} or language in _LANGUAGES.split()


def is_header(row: Sequence[str], source: int, target: int) -> bool:
    """Return whether two columns of a row are names of columns, such as "de" and "en"."""
    cells = _normalized(row)
    return cells[source] != cells[target] and _is_name(cells[source]) and _is_name(cells[target])


def find_columns(row: Sequence[str]) -> NamedColumns | None:
    """Return the columns of a header that are called source and target, or text and label."""
    cells = _normalized(row)
    sources = (cells.index(name) for name in TEXT_NAMES if name in cells)
    targets = (cells.index(name) for name in TARGET_NAMES if name in cells)
    source, target = next(sources, None), next(targets, None)
    return None if source is None or target is None else NamedColumns(source, target)


def is_swapped(row: Sequence[str], source: int, target: int) -> bool:
    """Return whether a header calls the column of sources a label and that of targets a text."""
    cells = _normalized(row)
    return cells[source] in LABEL_NAMES and cells[target] in TEXT_NAMES


class TableLayout(NamedTuple):
    """The columns of a table, counted from 0, and whether its first row names them."""

    columns: NamedColumns
    has_header: bool


class TableConfig(PairFileConfig):
    """A file whose rows have as many columns each."""

    source_column: PositiveInt | str | None = None
    """Column of the source texts: its number, counted from 1, or its name in the first line; by
    default `source`, `src`, `text` or `sentence` there, else 1."""
    target_column: PositiveInt | str | None = None
    """Column of the target texts: its number, counted from 1, or its name in the first line; by
    default `target`, `tgt`, `translation` or `label` there, else 2."""
    num_columns: PositiveInt | None = None
    """Number of columns that every line must have; default: as many as line 1."""
    header: bool | None = None
    """Whether the first line names the columns; by default it does if a column is given by name,
    or if its texts are usual names such as source and target, text and label, de and en."""
    encoding: Encoding = UTF_8
    """Encoding of the file, such as cp1252 for files of Windows."""

    row_name = "line"
    separation: ClassVar[str]
    """How columns are separated, in messages."""
    separation_hint: ClassVar[str]
    """Why a row may have too many or too few of them."""

    @abstractmethod
    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows, each with the number of its first line."""

    @override
    def stream(self) -> Iterator[Pair]:
        rows = self._rows()
        first_line, first = next(rows)
        layout = self.find_layout(first)
        if not layout.has_header:
            rows = chain([(first_line, first)], rows)
        num_columns, num_needed = self.num_columns or len(first), 1 + max(layout.columns)
        if len(first) != num_columns:
            raise self._column_error(first, first_line, num_columns, num_needed)
        is_empty = True
        for line_number, row in rows:
            if len(row) != num_columns:
                raise self._column_error(row, line_number, num_columns, num_needed)
            is_empty = False
            yield Pair(row[layout.columns.source], row[layout.columns.target])
        message, hint = "contains only a header", "set `header: false`, or add lines"
        check(not is_empty, display_name(self.path), message, hint, DataError)

    def find_layout(self, first: list[str]) -> TableLayout:
        """Return which columns are used, and whether the first row names them."""
        chosen = self.source_column, self.target_column
        has_header = self.header or any(isinstance(column, str) for column in chosen)
        named = None
        if chosen == (None, None) and self.header is not False:
            named = find_columns(first)
        if named:
            return TableLayout(named, has_header=True)
        columns = NamedColumns(
            *(self._find_column(column or 1 + index, first) for index, column in enumerate(chosen))
        )
        if len(first) <= max(columns):
            raise self._column_error(first, 1, self.num_columns or len(first), 1 + max(columns))
        if self.header is None and not has_header and is_header(first, *columns):
            message = f"the first line calls column {columns.source + 1} {first[columns.source]!r} "
            message += f"and column {columns.target + 1} {first[columns.target]!r}"
            hint = f"give {self._options} by name"
            is_valid = not is_swapped(first, *columns)
            check(is_valid, f"{display_name(self.path)}:1", message, hint, DataError)
            has_header = True
        return TableLayout(columns, has_header=bool(has_header))

    def has_usual_names(self) -> bool:
        """Return whether the first line of a file names columns that are used by default."""
        return find_columns(self.peek_first_row()) is not None

    def peek_layout(self) -> TableLayout | None:
        """Return the layout of a file that can be read again."""
        first = self.peek_first_row()
        return self.find_layout(first) if first else None

    def peek_first_row(self) -> list[str]:
        """Return the first row of a file that can be read again, else nothing."""
        is_file = not self.is_single_pass and Path(self.path).is_file()
        return next(self._rows())[1] if is_file else []

    @property
    def _options(self) -> str:
        return column_options(self.source_column, self.target_column)

    def _find_column(self, column: int | str, names: Sequence[str]) -> int:
        if isinstance(column, int):
            return column - 1
        return find_column(column, names, f"{display_name(self.path)}:1", options=self._options)

    def _column_error(
        self, row: Sequence[str], line_number: int, num_columns: int, num_needed: int
    ) -> DataError:
        count = len(row)
        message = f"{count} {self.separation} column{'s' if count != 1 else ''}, but "
        if line_number > 1:
            message += f"line 1 has {num_columns}"
            hint = self.separation_hint
        elif count > num_columns:
            message += f"{num_columns} are expected"
            hint = f"name the two that count with {self._options}"
        else:
            message += f"column {num_needed} is needed"
            hint = f"give {self._options}, or {self.separation_hint}"
            marks = [mark for mark in _DELIMITERS if count == 1 and mark in row[0]]
            if marks:
                hint = f"give --delimiter {_DELIMITERS[marks[0]]} if that separates the columns"
        return DataError(f"{display_name(self.path)}:{line_number}", message, hint)

    @override
    def locate(self, row: int) -> str:
        layout = self.peek_layout()
        return super().locate(row + bool(layout and layout.has_header))

    @property
    @override
    def warnings(self) -> Sequence[str]:
        is_chosen = any(isinstance(name, str) for name in (self.source_column, self.target_column))
        layout = None if is_chosen or self.header is not None else self.peek_layout()
        if not layout or not layout.has_header:
            return ()
        names = next(self._rows())[1]
        columns = " and ".join(repr(names[column]) for column in layout.columns)
        return (f"{self.path}: the first line names the columns {columns}, and is no pair",)


class TSVConfig(TableConfig):
    """A file of tab-separated columns without quoting."""

    type: Literal["tsv"] = "tsv"

    separation = "tab-separated"
    separation_hint = "look for lost or added tabs; a text must not contain any"

    @override
    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        lines = nonempty_lines(self.path, encoding=self.encoding)
        for line_number, line in enumerate(lines, start=1):
            yield line_number, line.split("\t")


class CSVConfig(TableConfig):
    """A file of comma-separated columns, in quotation marks where a text contains a comma."""

    type: Literal["csv"] = "csv"
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """What separates the columns."""

    row_name = "row"  # a text may have more than one line
    separation = "comma-separated"
    separation_hint = (
        "put texts that contain commas in quotation marks; another separator: --delimiter ';'"
    )

    @override
    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        return read_csv_rows(self.path, self.delimiter, self.encoding)


def find_column(name: str, names: Sequence[str], location: str, *, options: str) -> int:
    """Return the index of a column; raise DataError if none or two have this name."""
    message = f"no column is called {name!r}{did_you_mean(name, names)}"
    hint = f"give {options}; columns found: {quote_names(names)}"
    check(name in names, location, message, hint, DataError)
    message = f"two columns are called {name!r}"
    hint = f"rename one, or give {options} by number"
    check(names.count(name) == 1, location, message, hint, DataError)
    return names.index(name)


def read_csv_rows(
    path: str, delimiter: str = ",", encoding: str = UTF_8
) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of each row of a CSV file; a blank line amid them has none."""
    lines = (f"{line}\n" for line in nonempty_lines(path, encoding=encoding))
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
