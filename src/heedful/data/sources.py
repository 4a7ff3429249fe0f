"""Sources of examples: parallel files, TSV, JSON lines, text files and synthetic corpora.

`read` returns a whole source after checking all of it, so no model trains on the valid half of a
broken file. `stream` yields examples as they are read, for data that does not fit in memory:
whoever uses it reads it to the end before training on it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.pair_dataset import Pair
from heedful.data.text_files import MAX_LINE_BYTES, STANDARD_INPUT, display_name, read_lines
from heedful.errors import DataError, check, did_you_mean
from heedful.storage.json_files import MAX_BYTES, parse_json
from heedful.tokenization.tokenizer import check_no_surrogates


class SourceConfig(BaseConfig, ABC):
    """A source of pairs or of lines."""

    @abstractmethod
    def stream(self) -> Iterator[Any]:
        """Yield the examples as they are read."""

    @abstractmethod
    def describe(self) -> str:
        """Name the source in messages."""

    def read(self) -> list[Any]:
        """Return all examples."""
        return list(self.stream())

    @property
    def paths(self) -> Sequence[str]:
        """The files that it reads."""
        return ()

    @property
    def is_single_pass(self) -> bool:
        """Whether it can be read only once."""
        return STANDARD_INPUT in self.paths


class ParallelFilesConfig(SourceConfig):
    """Two files: line n of one belongs to line n of the other. Also .gz, .xz and "-" for stdin."""

    type: Literal["parallel-files"] = "parallel-files"
    source: str
    """File of the source texts, one per line."""
    target: str
    """File of the target texts, one per line."""

    @model_validator(mode="after")
    def _check_stdin(self) -> Self:
        message = "both are '-', but standard input can only be one of them"
        hint = "name a file for one side, or send both as columns: {type: tsv, path: '-'}"
        check(not self.source == self.target == STANDARD_INPUT, "source, target", message, hint)
        return self

    @override
    def stream(self) -> Iterator[Pair]:
        hint = "line n of one must belong to line n of the other: look for lost or added lines"
        sources, targets = _nonempty_lines(self.source), _nonempty_lines(self.target)
        for index, (source, target) in enumerate(zip_longest(sources, targets)):
            if source is None or target is None:
                longer = 1 + index + sum(1 for _ in chain(sources, targets))
                counts = (longer, index) if target is None else (index, longer)
                message = f"{counts[0]} lines, but {display_name(self.target)} has {counts[1]}"
                raise DataError(display_name(self.source), message, hint)
            yield Pair(source, target)

    @property
    @override
    def paths(self) -> Sequence[str]:
        return self.source, self.target

    @override
    def describe(self) -> str:
        return f"{display_name(self.source)} and {display_name(self.target)}"


class FileConfig(SourceConfig):
    """A file of pairs."""

    type: str  # first, so that it is written first
    path: str
    """The file; also .gz, .xz and "-" for stdin."""

    @property
    @override
    def paths(self) -> Sequence[str]:
        return (self.path,)


class TSVConfig(FileConfig):
    """A file of tab-separated columns without quoting; all lines have as many columns."""

    type: Literal["tsv"] = "tsv"
    source_column: PositiveInt = 1
    """Column of the source texts, counted from 1."""
    target_column: PositiveInt = 2
    """Column of the target texts, counted from 1."""
    num_columns: PositiveInt | None = None
    """Number of columns that every line must have; default: as many as line 1."""
    header: bool = False
    """Whether the first line names the columns."""

    @override
    def stream(self) -> Iterator[Pair]:
        num_columns, line_number = self.num_columns, 0
        for line_number, line in enumerate(_nonempty_lines(self.path), start=1):
            row = line.split("\t")
            num_columns = num_columns or len(row)
            if len(row) != num_columns or num_columns < max(self.source_column, self.target_column):
                raise self._column_error(len(row), line_number, num_columns)
            if line_number > 1 or not self.header:
                yield Pair(row[self.source_column - 1], row[self.target_column - 1])
        if self.header and line_number == 1:
            message, hint = "contains only a header", "set `header: false`, or add lines"
            raise DataError(display_name(self.path), message, hint)

    def _column_error(self, count: int, line_number: int, num_columns: int) -> DataError:
        message = f"{count} tab-separated column{'s' if count > 1 else ''}, but "
        if line_number > 1:
            message += f"line 1 has {num_columns}"
            hint = "look for lost or added tabs; a text must not contain any"
        elif count > num_columns:
            message += f"{num_columns} are expected"
            columns = ",".join(map(str, [*range(1, num_columns), count]))
            hint = f"keep {num_columns} columns, for example with `cut -f{columns}`, "
            hint += "or name them in the recipe: source_column and target_column"
        else:
            message += f"column {max(self.source_column, self.target_column)} is needed"
            hint = "set source_column and target_column, or look for lost tabs"
        return DataError(f"{display_name(self.path)}:{line_number}", message, hint)

    @override
    def describe(self) -> str:
        return f"{display_name(self.path)}, columns {self.source_column} and {self.target_column}"


class JSONLConfig(FileConfig):
    """A file with a JSON object on each line."""

    type: Literal["jsonl"] = "jsonl"
    source_key: str = "source"
    """Key of the source texts."""
    target_key: str = "target"
    """Key of the target texts."""

    @override
    def stream(self) -> Iterator[Pair]:
        example = json.dumps({self.source_key: "...", self.target_key: "..."}, ensure_ascii=False)
        hint = f"each line must be an object such as {example}"
        for line_number, line in enumerate(_nonempty_lines(self.path, MAX_BYTES), start=1):
            location = f"{display_name(self.path)}:{line_number}"
            try:
                record = parse_json(line)
            except json.JSONDecodeError as error:
                message = f"not JSON at column {error.colno}: {error.msg}"
                raise DataError(location, message, hint) from None
            except ValueError:
                message = "JSON with a number too long, or nested too deep"
                raise DataError(location, message, hint) from None
            message = f"not an object but {_json_type_name(record)}"
            check(isinstance(record, dict), location, message, hint, DataError)
            source = _get_text(record, self.source_key, location)
            yield Pair(source, _get_text(record, self.target_key, location))

    @override
    def describe(self) -> str:
        return f"{display_name(self.path)}, keys {self.source_key!r} and {self.target_key!r}"


class SyntheticConfig(SourceConfig):
    """Settings of a corpus that heedful generates."""

    type: str
    name: str
    """Name of the corpus."""
    split: str = "train"
    """Split of the corpus; no pair is in two splits."""
    num_examples: PositiveInt
    """Number of pairs or lines."""
    seed: int = 0
    """The same seed gives the same pairs or lines."""

    def pairs(self) -> Iterator[Pair]:
        """Generate the pairs."""
        from heedful.data.synthetic import get_corpus

        return islice(get_corpus(self.name).pairs(self.split, seed=self.seed), self.num_examples)


class SyntheticPairsConfig(SyntheticConfig):
    """Pairs of a corpus that heedful generates."""

    type: Literal["synthetic"] = "synthetic"

    @override
    def stream(self) -> Iterator[Pair]:
        return self.pairs()

    @override
    def describe(self) -> str:
        return f"built-in {self.name}, {self.split}, {self.num_examples} pairs, seed {self.seed}"


PairSourceConfig = Annotated[
    ParallelFilesConfig | TSVConfig | JSONLConfig | SyntheticPairsConfig,
    Field(discriminator="type"),
]


class TextFilesConfig(SourceConfig):
    """One or more files of running text, concatenated. Also .gz, .xz and "-" for stdin."""

    type: Literal["text"] = "text"
    path: str | list[str]
    """The file, or a list of files."""

    @property
    @override
    def paths(self) -> Sequence[str]:
        return [self.path] if isinstance(self.path, str) else self.path

    @override
    def stream(self) -> Iterator[str]:
        is_empty = True
        for path in self.paths:
            for line in read_lines(path):
                is_empty = is_empty and not line.strip()
                yield line
        if is_empty:
            raise DataError(self.describe(), "contains no text", "give a file with text in it")

    @override
    def describe(self) -> str:
        return ", ".join(map(display_name, self.paths)) or "no file"


class SyntheticTextConfig(SyntheticConfig):
    """One side of a corpus that heedful generates, as running text."""

    type: Literal["synthetic-text"] = "synthetic-text"
    side: Literal["source", "target"] = "target"
    """Which text of every pair."""

    @override
    def stream(self) -> Iterator[str]:
        return (pair.source if self.side == "source" else pair.target for pair in self.pairs())

    @override
    def describe(self) -> str:
        size = f"{self.num_examples} lines, seed {self.seed}"
        return f"built-in {self.name}, {self.side}, {self.split}, {size}"


TextSourceConfig = Annotated[TextFilesConfig | SyntheticTextConfig, Field(discriminator="type")]


def _nonempty_lines(path: str, max_bytes: int = MAX_LINE_BYTES) -> Iterator[str]:
    line: str | None = None
    for line in read_lines(path, max_bytes):
        yield line
    if line is None:
        raise DataError(display_name(path), "contains no lines", "give a file with text in it")


def _get_text(record: Mapping[str, Any], key: str, location: str) -> str:
    if key not in record:
        message = f"no key is called {key!r}{did_you_mean(key, record)}"
        keys = ", ".join(sorted(record)) or "none"
        raise DataError(location, message, f"set source_key and target_key; keys found: {keys}")
    text = record[key]
    message = f"the value of {key!r} is {_json_type_name(text)}, not a string"
    check(isinstance(text, str), location, message, "put the text in quotation marks", DataError)
    check_no_surrogates(text, location=f"{location}, {key}")
    return text


def _json_type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {dict: "an object", list: "an array", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")
