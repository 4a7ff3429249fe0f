"""The input file of commands: texts one per line, or a column of a table or of JSON lines.

The ending of the name chooses, as for training. Invariant: one text per record, in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Option

from heedful.data.text.columnar_files import SUFFIXES
from heedful.data.text_files import (
    UTF_8,
    check_encoding,
    check_file_of_lines,
    display_name,
    file_suffix,
    read_lines,
)
from heedful.errors import check
from heedful.storage.json_files import MAX_BYTES
from heedful.tasks.command_line import add_reading_options, parse_column, write_lines
from heedful.terminal import is_typed, prompt

if TYPE_CHECKING:
    from heedful.data.text.table_files import TableConfig

_TYPES = {".tsv": "tsv", ".csv": "csv", ".json": "jsonl", ".jsonl": "jsonl", ".ndjson": "jsonl"}

SourceColumn = Annotated[
    str | None,
    Option(metavar="COLUMN", help="column of the texts in a table or .jsonl: number or name"),
]


class TextInput(NamedTuple):
    """A file of texts, and where they are in it."""

    file: str
    column: str | None = None  # name, or number from 1; default: the usual names of a text
    delimiter: str | None = None
    encoding: str | None = None
    default_column: int = 1  # of a table that names none; the last one if it has fewer

    @property
    def type(self) -> str | None:
        """The type of its data setting; None for lines."""
        return {**_TYPES, **SUFFIXES}.get(file_suffix(self.file))

    @property
    def location(self) -> str:
        """Its name in messages, to be followed by the number of a text."""
        return f"{'texts of ' * bool(self.type)}{display_name(self.file)}"

    def read(self) -> Iterator[str]:
        """Yield the texts."""
        if self.type is None:
            for flag, value in (("--source-column", self.column), ("--delimiter", self.delimiter)):
                message = f"{display_name(self.file)} is a file of lines, which has no columns"
                check(
                    value is None,
                    flag,
                    message,
                    "leave it out, or give .tsv, .csv, .jsonl or .parquet",
                )
            check_file_of_lines(self.file)
            return read_lines(self.file, MAX_BYTES, check_encoding(self.encoding or UTF_8))
        return (pair.source for pair in self._build_config().stream())

    def _build_config(self) -> Any:
        """Return a source of pairs, of which both texts are the same."""
        from heedful.data.text.pair_files import ArrowConfig, JSONLConfig, ParquetConfig
        from heedful.data.text.table_files import CSVConfig, TSVConfig

        files = {"delimiter": self.delimiter, "encoding": self.encoding}
        setting = add_reading_options({"type": self.type, "path": self.file}, files)
        if self.type in ("jsonl", "parquet", "arrow"):
            configs = {"jsonl": JSONLConfig, "parquet": ParquetConfig, "arrow": ArrowConfig}
            config: Any = configs[self.type]
            column = self._find_key() if self.type == "jsonl" else self._find_column()
            columns = {"source_column": column, "target_column": column}
            return config.model_validate(setting | columns)
        table = (CSVConfig if setting["type"] == "csv" else TSVConfig).model_validate(setting)
        update = self._choose_column(table)
        return type(table).model_validate(setting | update)

    def _find_column(self) -> int | str:
        from heedful.data.text.columnar_files import ColumnarSource
        from heedful.data.text.table_files import TEXT_NAMES

        if self.column:
            column: int | str = parse_column(self.column, "source_column")
            return column
        names = ColumnarSource(self.file, SUFFIXES[file_suffix(self.file)]).names()
        default = min(self.default_column, len(names))
        return next((name for name in TEXT_NAMES if name in names), default)

    def _find_key(self) -> str:
        from heedful.data.text.pair_files import read_json_objects
        from heedful.data.text.table_files import TEXT_NAMES

        if self.column or not Path(self.file).is_file():
            return self.column or TEXT_NAMES[0]
        hint = 'each line must be an object such as {"source": "..."}'
        _, record = next(read_json_objects(self.file, hint, check_encoding(self.encoding or UTF_8)))
        return next((name for name in TEXT_NAMES if name in record), TEXT_NAMES[0])

    def _choose_column(self, table: TableConfig) -> dict[str, Any]:
        """Return the settings of column and header."""
        column: Any = parse_column(self.column, "source_column") if self.column else None
        names = table.peek_first_row()
        named = find_text_column(names)
        if column is None:
            column = named or min(self.default_column, len(names) or self.default_column)
        has_header = isinstance(column, str) or named is not None
        return {"source_column": column, "target_column": column, "header": has_header}


def read_chunks(texts: TextInput) -> Iterable[Iterable[str]]:
    """Return the texts of a file; typed ones one by one, so that each is answered at once."""
    lines = texts.read()
    return ([line] for line in prompt(lines)) if is_typed(texts.file) else [lines]


def write_predictions(
    predictor: Any, texts: TextInput, output: Path | None, *, as_json: bool
) -> None:
    """Write the predictions for the texts of a file, one per line, as texts or as JSON objects."""

    def predict_lines() -> Iterator[str]:
        for chunk in read_chunks(texts):
            if not as_json:
                yield from predictor.predict_texts(chunk, location=texts.location)
                continue
            for result in predictor.predict(chunk, location=texts.location):
                yield json.dumps(result.to_json(), ensure_ascii=False)

    write_lines(predict_lines(), output)


def find_text_column(row: list[str]) -> int | None:
    """Return the number of the column that a header calls source, text or the like, if it is one.

    A row of which all cells are names of columns, such as "de" and "en", is a header, too.
    """
    from heedful.data.text.table_files import TEXT_NAMES, is_header

    cells = [cell.strip().lower() for cell in row]
    usual = next((1 + cells.index(name) for name in TEXT_NAMES if name in cells), None)
    are_languages = len(cells) == 2 and is_header(cells, 0, 1)
    return usual or (1 if are_languages else None)
