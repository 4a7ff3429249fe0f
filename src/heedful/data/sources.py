"""Sources of examples: parallel files, TSV, JSON lines, text files and synthetic corpora.

`read` returns a whole source after checking all of it, so no model trains on the valid half of a
broken file. `stream` yields examples as they are read, for data that does not fit in memory:
whoever uses it reads it to the end before training on it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import chain, islice, zip_longest
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.pair_dataset import Pair
from heedful.data.text_files import STANDARD_INPUT, display_name, read_lines
from heedful.errors import ConfigError, DataError, check, did_you_mean
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
    def is_single_pass(self) -> bool:
        """Whether it can be read only once."""
        return False


class ParallelFilesConfig(SourceConfig):
    """Two files: line n of one belongs to line n of the other. Also .gz, .xz and "-" for stdin."""

    type: Literal["parallel-files"] = "parallel-files"
    source: str
    """File of the source texts, one per line."""
    target: str
    """File of the target texts, one per line."""

    @model_validator(mode="after")
    def _check_stdin(self) -> Self:
        if self.source == self.target == STANDARD_INPUT:
            raise ConfigError(
                "source, target",
                "both are '-', but standard input can only be one of them",
                "name a file for one side, or send both as columns: {type: tsv, path: '-'}",
            )
        return self

    @override
    def stream(self) -> Iterator[Pair]:
        sources, targets = _nonempty_lines(self.source), _nonempty_lines(self.target)
        for index, (source, target) in enumerate(zip_longest(sources, targets)):
            if source is None or target is None:
                longer = 1 + index + sum(1 for _ in chain(sources, targets))
                counts = (longer, index) if target is None else (index, longer)
                raise DataError(
                    display_name(self.source),
                    f"{counts[0]} lines, but {display_name(self.target)} has {counts[1]}",
                    "line n of one must belong to line n of the other: "
                    "look for lost or added lines",
                )
            yield Pair(source, target)

    @property
    @override
    def is_single_pass(self) -> bool:
        return STANDARD_INPUT in {self.source, self.target}

    @override
    def describe(self) -> str:
        return f"{display_name(self.source)} and {display_name(self.target)}"


class TSVConfig(SourceConfig):
    """A file of tab-separated columns without quoting; all lines have as many columns."""

    type: Literal["tsv"] = "tsv"
    path: str
    """The file; also .gz, .xz and "-" for stdin."""
    source_column: PositiveInt = 1
    """Column of the source texts, counted from 1."""
    target_column: PositiveInt = 2
    """Column of the target texts, counted from 1."""
    header: bool = False
    """Whether the first line names the columns."""

    @override
    def stream(self) -> Iterator[Pair]:
        num_columns = line_number = 0
        for line_number, line in enumerate(_nonempty_lines(self.path), start=1):
            row = line.split("\t")
            num_columns = num_columns or len(row)
            self._check_columns(row, line_number, num_columns)
            if line_number > 1 or not self.header:
                yield Pair(row[self.source_column - 1], row[self.target_column - 1])
        if self.header and line_number == 1:
            message, hint = "contains only a header", "set `header: false`, or add lines"
            raise DataError(display_name(self.path), message, hint)

    def _check_columns(self, row: list[str], line_number: int, num_columns: int) -> None:
        columns = f"{len(row)} tab-separated column{'s' if len(row) > 1 else ''}"
        needed = max(self.source_column, self.target_column)
        location = f"{display_name(self.path)}:{line_number}"
        if len(row) != num_columns:
            raise DataError(
                location,
                f"{columns}, but line 1 has {num_columns}",
                "look for lost or added tabs; a text must not contain any",
            )
        if num_columns < needed:
            raise DataError(
                location,
                f"{columns}, but column {needed} is needed",
                "set source_column and target_column, or look for lost tabs",
            )

    @property
    @override
    def is_single_pass(self) -> bool:
        return self.path == STANDARD_INPUT

    @override
    def describe(self) -> str:
        return f"{display_name(self.path)}, columns {self.source_column} and {self.target_column}"


class JSONLConfig(SourceConfig):
    """A file with a JSON object on every line."""

    type: Literal["jsonl"] = "jsonl"
    path: str
    """The file; also .gz, .xz and "-" for stdin."""
    source_key: str = "source"
    """Key of the source texts."""
    target_key: str = "target"
    """Key of the target texts."""

    @override
    def stream(self) -> Iterator[Pair]:
        for line_number, line in enumerate(_nonempty_lines(self.path), start=1):
            location = f"{display_name(self.path)}:{line_number}"
            record = self._parse_object(line, location)
            yield Pair(
                _get_text(record, self.source_key, location),
                _get_text(record, self.target_key, location),
            )

    def _parse_object(self, line: str, location: str) -> Mapping[str, Any]:
        example = json.dumps({self.source_key: "...", self.target_key: "..."}, ensure_ascii=False)
        hint = f"each line must be an object such as {example}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            message = f"not JSON at column {error.colno}: {error.msg}"
            raise DataError(location, message, hint) from None
        except (ValueError, RecursionError):
            message = "JSON with a number too long, or nested too deep"
            raise DataError(location, message, hint) from None
        message = f"not an object but {_json_type_name(record)}"
        check(isinstance(record, dict), location, message, hint, DataError)
        return record

    @property
    @override
    def is_single_pass(self) -> bool:
        return self.path == STANDARD_INPUT

    @override
    def describe(self) -> str:
        return f"{display_name(self.path)}, keys {self.source_key!r} and {self.target_key!r}"


class SyntheticPairsConfig(SourceConfig):
    """Pairs of a corpus that heedful generates."""

    type: Literal["synthetic"] = "synthetic"
    name: str
    """Name of the corpus."""
    split: str = "train"
    """Split of the corpus; no pair is in two splits."""
    num_examples: PositiveInt
    """Number of pairs."""
    seed: int = 0
    """The same seed gives the same pairs."""

    @override
    def stream(self) -> Iterator[Pair]:
        return _synthetic_pairs(self.name, self.split, self.num_examples, self.seed)

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
    def _paths(self) -> list[str]:
        return [self.path] if isinstance(self.path, str) else self.path

    @override
    def stream(self) -> Iterator[str]:
        is_empty = True
        for path in self._paths:
            for line in read_lines(path):
                is_empty = is_empty and not line.strip()
                yield line
        if is_empty:
            raise DataError(self.describe(), "contains no text", "give a file with text in it")

    @property
    @override
    def is_single_pass(self) -> bool:
        return STANDARD_INPUT in self._paths

    @override
    def describe(self) -> str:
        return ", ".join(map(display_name, self._paths)) or "no file"


class SyntheticTextConfig(SourceConfig):
    """One side of a corpus that heedful generates, as running text."""

    type: Literal["synthetic-text"] = "synthetic-text"
    name: str
    """Name of the corpus."""
    side: Literal["source", "target"] = "target"
    """Which text of every pair."""
    split: str = "train"
    """Split of the corpus; no pair is in two splits."""
    num_examples: PositiveInt
    """Number of lines."""
    seed: int = 0
    """The same seed gives the same lines."""

    @override
    def stream(self) -> Iterator[str]:
        pairs = _synthetic_pairs(self.name, self.split, self.num_examples, self.seed)
        return (pair.source if self.side == "source" else pair.target for pair in pairs)

    @override
    def describe(self) -> str:
        size = f"{self.num_examples} lines, seed {self.seed}"
        return f"built-in {self.name}, {self.side}, {self.split}, {size}"


TextSourceConfig = Annotated[TextFilesConfig | SyntheticTextConfig, Field(discriminator="type")]


def _synthetic_pairs(name: str, split: str, num_examples: int, seed: int) -> Iterator[Pair]:
    from heedful.data.synthetic import get_corpus

    return islice(get_corpus(name).pairs(split, seed=seed), num_examples)


def _nonempty_lines(path: str) -> Iterator[str]:
    is_empty = True
    for line in read_lines(path):
        is_empty = False
        yield line
    if is_empty:
        raise DataError(display_name(path), "contains no lines", "give a file with text in it")


def _get_text(record: Mapping[str, Any], key: str, location: str) -> str:
    if key not in record:
        message = f"no key is called {key!r}{did_you_mean(key, record)}"
        keys = ", ".join(sorted(record)) or "none"
        raise DataError(location, message, f"set source_key and target_key; keys found: {keys}")
    text = record[key]
    if not isinstance(text, str):
        message = f"the value of {key!r} is {_json_type_name(text)}, not a string"
        raise DataError(location, message, "put the text in quotation marks")
    check_no_surrogates(text, location=f"{location}, {key}")
    return text


def _json_type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {dict: "an object", list: "an array", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")
