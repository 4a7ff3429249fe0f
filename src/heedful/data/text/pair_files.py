"""Files that hold both texts of a pair: TSV, CSV, JSON lines, Parquet, Arrow; CoNLL has its own.

Each is read row by row. Invariant: the same pairs in any of the formats, compressed or not, are
the same examples; what breaks a format is an error that names file and line.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.sources import (
    COLUMN_OPTIONS,
    Encoding,
    FileSourceConfig,
    PairFileConfig,
    ParallelFilesConfig,
    SourceConfig,
    SyntheticPairsConfig,
    column_options,
)
from heedful.data.text.columnar_files import ColumnarSource
from heedful.data.text.conll_files import ConllConfig
from heedful.data.text.pair_dataset import Pair
from heedful.data.text.table_files import CSVConfig, TSVConfig
from heedful.data.text.translation_memories import POConfig, TMXConfig, XLIFFConfig
from heedful.data.text_files import UTF_8, display_name, nonempty_lines
from heedful.errors import DataError, check, did_you_mean, quote_names
from heedful.storage.json_files import MAX_BYTES, parse_json
from heedful.tokenization.tokenizer import check_text


class JSONLConfig(FileSourceConfig):
    """A file with a JSON object on each line."""

    row_name = "line"

    type: Literal["jsonl"] = "jsonl"
    source_column: str = "source"
    """Key of the source texts; `translation.fr` for the key `fr` of the object `translation`,
    `targets.0` for the first text of the array `targets`. An array is joined by blanks."""
    target_column: str = "target"
    """Key of the target texts."""
    encoding: Encoding = UTF_8
    """Encoding of the file, such as cp1252 for files of Windows."""

    @override
    def stream(self) -> Iterator[Pair]:
        columns = self.source_column, self.target_column
        options = column_options(*columns)
        example = json.dumps(dict.fromkeys(columns, "..."), ensure_ascii=False)
        hint = f"each line must be an object such as {example}"
        for location, record in read_json_objects(self.path, hint, self.encoding):
            yield Pair(*(_get_text(record, name, location, options) for name in columns))

    @override
    def describe(self) -> str:
        return f"{display_name(self.path)}, keys {self.source_column!r} and {self.target_column!r}"


def read_json_objects(
    path: str, hint: str, encoding: str = UTF_8
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield file and line number, and the object of each line of a JSON lines file."""
    for line_number, line in enumerate(nonempty_lines(path, MAX_BYTES, encoding), start=1):
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

    @property
    def columnar_source(self) -> ColumnarSource:
        """How the file is read."""
        return ColumnarSource(self.path, self.type)  # type: ignore[arg-type]

    @override
    def stream(self) -> Iterator[Pair]:
        source, columns = self.columnar_source, (self.source_column, self.target_column)
        names = source.column_names(columns, options=COLUMN_OPTIONS)
        row = -1
        for row, record in enumerate(source.rows(columns, options=COLUMN_OPTIONS)):
            yield Pair(*(_get_text(record, name, self.locate(row)) for name in names))
        location, hint = display_name(self.path), "give a file with text in it"
        check(row >= 0, location, "contains no rows", hint, DataError)


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
    TMXConfig,
    XLIFFConfig,
    POConfig,
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
    | TMXConfig
    | XLIFFConfig
    | POConfig
    | ConllConfig
    | SyntheticPairsConfig,
    Field(discriminator="type"),
]


class CorpusConfig(BaseConfig):
    """A corpus of a mixture."""

    weight: PositiveFloat = 1.0
    """Passes over the corpus per epoch; with 0.5, the next epoch has the other half."""
    source: PairSourceConfig
    """Where its pairs come from."""


class MixtureConfig(SourceConfig):
    """Multiple parallel corpora with weights."""

    type: Literal["mixture"] = "mixture"
    corpora: Annotated[list[CorpusConfig], Field(min_length=1)]
    """The corpora."""

    @property
    @override
    def parts(self) -> list[SourceConfig]:
        return [corpus.source for corpus in self.corpora]

    @property
    @override
    def weights(self) -> list[float]:
        return [corpus.weight for corpus in self.corpora]

    @override
    def stream(self) -> Iterator[Pair]:
        """Yield the pairs of all corpora, each once."""
        return chain.from_iterable(corpus.source.stream() for corpus in self.corpora)

    @property
    @override
    def paths(self) -> list[str]:
        return [path for corpus in self.corpora for path in corpus.source.paths]

    @override
    def describe(self) -> str:
        return "; ".join(f"{part.weight:g} x {part.source.describe()}" for part in self.corpora)


def _get_text(
    record: Mapping[str, Any], key: str, location: str, options: str = COLUMN_OPTIONS
) -> str:
    """Return the text of a key, or of a path of keys such as `translation.fr` or `targets.0`."""
    value = get_json_value(record, key, location, options=options)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    message = f"the value of {key!r} is {type_name(value)}, not a string"
    hint = "every value must be a text; convert or remove the others"
    check(isinstance(value, str), location, message, hint, DataError)
    check_text(value, location=f"{location}, {key}")
    return value


def get_json_value(record: Mapping[str, Any], key: str, location: str, *, options: str) -> Any:
    """Return the value of a key or path of keys; an error names the `options` that choose it."""
    value: Any = record
    for part in [key] if key in record else key.split("."):
        items = enumerate(value) if isinstance(value, list) else ()
        keys = value if isinstance(value, dict) else {str(index): item for index, item in items}
        if part not in keys:
            message = f"no key is called {key!r}{did_you_mean(part, keys)}"
            names = quote_names(sorted(keys))
            raise DataError(location, message, f"give {options}; keys found: {names}")
        value = keys[part]
    return value


def type_name(value: Any) -> str:
    """Return the JSON type of a value, with its article."""
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {dict: "an object", list: "an array", str: "a string", type(None): "null"}
    return names.get(type(value), "bytes" if isinstance(value, bytes) else "a number")
