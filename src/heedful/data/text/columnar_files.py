"""Rows of Parquet files, of Arrow files, and of folders that the package `datasets` has saved.

Needs the extra `parquet` (pyarrow); `datasets` itself is not needed. Record batches are read one
after another, only the columns asked for, so that memory does not grow with the file. A folder has
state.json, which names its Arrow files, or is a collection of such folders, one per split. Class
labels, which are stored as numbers, become their names.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from heedful.data.text_files import display_name, file_suffix, open_file, read_error
from heedful.errors import DataError, check, did_you_mean, quote_names
from heedful.storage.json_files import parse_json

ColumnarFormat = Literal["parquet", "arrow", "datasets"]
SUFFIXES: Mapping[str, ColumnarFormat] = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_NAMES = {"parquet": "Parquet", "arrow": "Arrow", "datasets": "Arrow"}
_ARROW_FILE = b"ARROW1"  # a file with an index at its end; otherwise a stream
_STATE, _SPLITS = "state.json", "dataset_dict.json"
_AGAIN_HINT = "copy or download the file again"


class ColumnarSource(NamedTuple):
    """A file or folder, and how it is read."""

    path: str
    format: ColumnarFormat
    split: str | None = None  # of a folder with several

    def data_files(self) -> list[str]:
        """Return the files that hold the rows, in order."""
        return _dataset_files(self) if self.format == "datasets" else [self.path]

    def rows(self, columns: Sequence[int | str], *, options: str) -> Iterator[dict[str, Any]]:
        """Yield the columns of each row; `options` choose them, in messages.

        A nested column such as `translation.de` yields the whole column `translation`.
        """
        for path in self.data_files():
            yield from _read_file(path, self.format, columns, options)

    def names(self) -> list[str]:
        """Return the names of the columns."""
        with _Reader(self.data_files()[0], self.format) as reader:
            return reader.names

    def column_names(self, columns: Sequence[int | str], *, options: str) -> list[str]:
        """Return columns, of which some are given by number, by name; check all of them."""
        with _Reader(self.data_files()[0], self.format) as reader:
            return [reader.find(column, options) for column in columns]


def columnar_format(path: str) -> ColumnarFormat | None:
    """Return the format of a path by its name; None if it is another one."""
    if Path(path).is_dir():
        return "datasets"
    return SUFFIXES.get(file_suffix(path))


def top_level(column: str, names: Sequence[str]) -> str:
    """Return the column that a nested one such as `translation.de` is part of."""
    return column if column in names else column.partition(".")[0]


# ----- folders


def _dataset_files(source: ColumnarSource) -> list[str]:
    folder, location = Path(source.path), source.path
    if (folder / _SPLITS).is_file():
        splits = [str(name) for name in _read_json(folder / _SPLITS).get("splits", [])]
        split = source.split or (splits[0] if len(splits) == 1 else "")
        message = f"has no split {split!r}" if split else "has several splits"
        hint = f"name one, as a folder or with `split`: {', '.join(splits)}"
        check(split in splits, location, f"{message}{did_you_mean(split, splits)}", hint, DataError)
        folder = folder / split
    message = "not a folder that `save_to_disk` of the package datasets wrote: no state.json"
    hint = "name a folder with state.json and data-*.arrow, or a file"
    check((folder / _STATE).is_file(), location, message, hint, DataError)
    state = _read_json(folder / _STATE)
    entries = state.get("_data_files")
    is_valid = isinstance(entries, list) and entries
    check(is_valid, str(folder / _STATE), "names no data files", _AGAIN_HINT, DataError)
    message = "selects rows by an index file, which is not read"
    hint = "call flatten_indices() and save_to_disk() again"
    check(not state.get("_indices_files"), str(folder), message, hint, DataError)
    assert isinstance(entries, list)
    files = [str(folder / Path(str(entry.get("filename", ""))).name) for entry in entries]
    for file in files:
        message = "a file that state.json names is missing"
        check(Path(file).is_file(), file, message, "copy the whole folder", DataError)
    return files


def _read_json(path: Path) -> dict[str, Any]:
    try:
        contents = parse_json(path.read_bytes())
    except OSError as error:
        raise read_error(str(path), error) from None
    except ValueError:
        raise DataError(str(path), "not JSON", _AGAIN_HINT) from None
    check(isinstance(contents, dict), str(path), "not a JSON object", _AGAIN_HINT, DataError)
    return contents


# ----- files


class _Reader:
    """An open file: its schema, and its record batches."""

    def __init__(self, path: str, file_format: ColumnarFormat) -> None:
        self.path, self.location, self.name = path, display_name(path), _NAMES[file_format]
        try:
            self._arrow = import_module("pyarrow")
            module = "pyarrow.parquet" if file_format == "parquet" else "pyarrow.ipc"
            self._module = import_module(module)
        except ImportError:
            message = f"reading {self.name} needs the package pyarrow"
            hint = "install it with: pip install 'heedful[parquet]'"
            raise DataError(self.location, message, hint) from None
        self.is_parquet = file_format == "parquet"

    def __enter__(self) -> "_Reader":
        try:
            self._context = open_file(self.path)
            self._stream: Any = self._context.__enter__()
            self._file = self._open()
        except (OSError, self._arrow.lib.ArrowException) as error:
            raise self.explain(error) from None
        schema = self._file.schema_arrow if self.is_parquet else self._file.schema
        self.names: list[str] = list(schema.names)
        self.displayed = [name for field in schema for name in _nested_names(field, self._arrow)]
        self.features = _features(schema.metadata or {})
        return self

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(None, None, None)

    def _open(self) -> Any:
        if self.is_parquet:
            return self._module.ParquetFile(self._stream)
        start = self._stream.read(len(_ARROW_FILE))
        self._stream.seek(0)
        self._is_indexed = start == _ARROW_FILE
        if self._is_indexed:
            return self._module.open_file(self._stream)
        return self._module.open_stream(self._stream)

    def batches(self, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of each record batch."""
        try:
            for batch in self._batches(columns):
                batch.validate(full=True)  # offsets beyond a column would be read as its texts
                yield batch.to_pylist()
        except (OSError, UnicodeDecodeError, self._arrow.lib.ArrowException) as error:
            raise self.explain(error) from None

    def _batches(self, columns: Sequence[str]) -> Iterator[Any]:
        if self.is_parquet:
            return self._file.iter_batches(columns=columns)
        if self._is_indexed:
            batches = map(self._file.get_batch, range(self._file.num_record_batches))
        else:
            batches = iter(self._file)
        return (batch.select(columns) for batch in batches)

    def find(self, column: int | str, options: str) -> str:
        """Return the name of a column; an error lists those there are."""
        hint = f"give {options}; columns found: {quote_names(self.displayed)}"
        if isinstance(column, str):
            message = f"no column is called {column!r}{did_you_mean(column, self.displayed)}"
            is_known = column in self.displayed or top_level(column, self.names) in self.names
            check(is_known, self.location, message, hint, DataError)
        else:
            message = f"there is no column {column}"
            check(column <= len(self.names), self.location, message, hint, DataError)
            column = self.names[column - 1]
        name = top_level(column, self.names)
        is_unique = self.names.count(name) == 1
        check(is_unique, self.location, f"two columns are called {name!r}", "rename one", DataError)
        return column

    def explain(self, error: Exception) -> DataError:
        """Return the message for a file that cannot be opened, or ends too early."""
        if isinstance(error, OSError) and error.errno:
            return read_error(self.path, error)
        message = f"cannot be read as {self.name} ({str(error).splitlines()[0]})"
        return DataError(self.location, message, _AGAIN_HINT)


def _read_file(
    path: str, file_format: ColumnarFormat, columns: Sequence[int | str], options: str
) -> Iterator[dict[str, Any]]:
    with _Reader(path, file_format) as reader:
        names = [reader.find(column, options) for column in columns]
        needed = list(dict.fromkeys(top_level(name, reader.names) for name in names))
        labels = {name: label for name in needed if (label := reader.features.get(name))}
        for rows in reader.batches(needed):
            for row in rows:
                for name, label_names in labels.items():
                    row[name] = _to_names(row[name], label_names, f"{display_name(path)}, {name}")
                yield row


def _nested_names(field: Any, arrow: Any) -> list[str]:
    """Return the name of a column, or those of the fields of a struct."""
    if not arrow.types.is_struct(field.type):
        return [field.name]
    return [f"{field.name}.{inner.name}" for inner in field.type]


# ----- class labels, as `datasets` describes them in the metadata of a file


def _features(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the names of class labels by column."""
    try:
        described = parse_json(metadata[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return {name: names for name, value in described.items() if (names := _label_names(value))}


def _label_names(feature: Any) -> list[str]:
    while isinstance(feature, list | dict) and feature:
        if isinstance(feature, list):
            feature = feature[0]
        elif feature.get("_type") == "ClassLabel":
            return [str(name) for name in feature.get("names") or []]
        else:
            feature = feature.get("feature")
    return []


def _to_names(value: Any, names: Sequence[str], location: str) -> Any:
    """Return the names of a label, or of a list of labels; -1 is no label."""
    if isinstance(value, list):
        return [_to_names(item, names, location) for item in value]
    if not isinstance(value, int):
        return value
    message = f"the label {value} has no name: there are {len(names)}"
    hint = "leave out rows without a label; test sets on the hub often have none"
    check(0 <= value < len(names), location, message, hint, DataError)
    return names[value]
