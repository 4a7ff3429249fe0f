"""Sources: where pairs of texts come from.

`read` reads a source whole and checks it whole before the first pair is given out, so nothing is
learned from the sound half of a broken file. `stream` gives pairs as they are read, for data that
does not fit into memory: whoever uses it goes through it whole before learning from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain, islice, zip_longest
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from heedful.config import BaseConfig
from heedful.data.pair_dataset import Pair
from heedful.data.text_files import STANDARD_INPUT, display_name, read_lines
from heedful.errors import ConfigError, DataError, did_you_mean
from heedful.tokenization.tokenizer import check_no_surrogates


class ParallelFilesConfig(BaseConfig):
    """Two files: line n of one belongs to line n of the other. Also .gz, .xz and "-" for stdin."""

    type: Literal["parallel-files"] = "parallel-files"
    source: str
    """File of the texts to read, one on a line."""
    target: str
    """File of the texts to write, one on a line."""

    @model_validator(mode="after")
    def _check_stdin(self) -> Self:
        if self.source == self.target == STANDARD_INPUT:
            raise ConfigError(
                "source, target",
                "both are '-', but standard input can only be one of them",
                "name a file for one side, or send both as columns: {type: tsv, path: '-'}",
            )
        return self

    def read(self) -> list[Pair]:
        """Read both files and see that they are equally long."""
        return list(self.stream())

    def stream(self) -> Iterator[Pair]:
        """Give the pairs as they are read."""
        sources, targets = _nonempty_lines(self.source), _nonempty_lines(self.target)
        for number, (source, target) in enumerate(zip_longest(sources, targets)):
            if source is None or target is None:
                longer = 1 + number + sum(1 for _ in chain(sources, targets))
                raise self._line_count_error(
                    *((longer, number) if target is None else (number, longer))
                )
            yield Pair(source, target)

    def _line_count_error(self, *counts: int) -> DataError:
        return DataError(
            display_name(self.source),
            f"{counts[0]} lines, but {display_name(self.target)} has {counts[1]}",
            "line n of one must belong to line n of the other: look for lost or added lines",
        )

    @property
    def is_single_pass(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return STANDARD_INPUT in {self.source, self.target}

    def describe(self) -> str:
        """Name the source in a report."""
        return f"{display_name(self.source)} and {display_name(self.target)}"


class TSVConfig(BaseConfig):
    """One file of columns parted by tabs. Quotation marks are text; all lines are equally wide."""

    type: Literal["tsv"] = "tsv"
    path: str
    """The file; also .gz, .xz and "-" for stdin."""
    source_column: PositiveInt = 1
    """Column of the texts to read, counted from 1."""
    target_column: PositiveInt = 2
    """Column of the texts to write, counted from 1."""
    header: bool = False
    """Whether the first line names the columns."""

    def read(self) -> list[Pair]:
        """Read the two columns."""
        return list(self.stream())

    def stream(self) -> Iterator[Pair]:
        """Give the pairs as they are read."""
        width = number = 0
        for number, line in enumerate(_nonempty_lines(self.path), start=1):
            row = line.split("\t")
            width = width or self._num_columns(row)
            if len(row) != width:
                raise self._column_count_error(row, number, width)
            if number > 1 or not self.header:
                yield Pair(row[self.source_column - 1], row[self.target_column - 1])
        if self.header and number == 1:
            problem, remedy = "holds only a header", "set `header: false`, or add lines"
            raise DataError(display_name(self.path), problem, remedy)

    def _num_columns(self, row: list[str]) -> int:
        needed = max(self.source_column, self.target_column)
        if len(row) < needed:
            raise DataError(
                f"{display_name(self.path)}:1",
                f"{_pluralize(len(row), 'column')} parted by tabs, but column {needed} is wanted",
                "set source_column and target_column, or look for lost tabs",
            )
        return len(row)

    def _column_count_error(self, row: list[str], number: int, width: int) -> DataError:
        return DataError(
            f"{display_name(self.path)}:{number}",
            f"{_pluralize(len(row), 'column')} parted by tabs, but line 1 has {width}",
            "look for lost or added tabs; a text must not hold any",
        )

    @property
    def is_single_pass(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return self.path == STANDARD_INPUT

    def describe(self) -> str:
        """Name the source in a report."""
        return f"{display_name(self.path)}, columns {self.source_column} and {self.target_column}"


class JSONLConfig(BaseConfig):
    """One file with a JSON object on every line."""

    type: Literal["jsonl"] = "jsonl"
    path: str
    """The file; also .gz, .xz and "-" for stdin."""
    source_key: str = "source"
    """Key of the texts to read."""
    target_key: str = "target"
    """Key of the texts to write."""

    def read(self) -> list[Pair]:
        """Read the two keys of every object."""
        return list(self.stream())

    def stream(self) -> Iterator[Pair]:
        """Give the pairs as they are read."""
        for number, line in enumerate(_nonempty_lines(self.path), start=1):
            yield self._parse_pair(line, f"{display_name(self.path)}:{number}")

    @property
    def is_single_pass(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return self.path == STANDARD_INPUT

    def _parse_pair(self, line: str, location: str) -> Pair:
        record = self._parse_object(line, location)
        return Pair(
            _get_text(record, self.source_key, location),
            _get_text(record, self.target_key, location),
        )

    def _parse_object(self, line: str, location: str) -> Mapping[str, Any]:
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise self._not_an_object_error(
                location, f"not JSON at column {error.colno}: {error.msg}"
            ) from None
        except (ValueError, RecursionError):
            raise self._not_an_object_error(
                location, "JSON with a number too long, or nested too deep"
            ) from None
        if not isinstance(record, dict):
            raise self._not_an_object_error(
                location, f"not an object but {_json_type_name(record)}"
            )
        return record

    def _not_an_object_error(self, location: str, message: str) -> DataError:
        example = json.dumps({self.source_key: "...", self.target_key: "..."}, ensure_ascii=False)
        return DataError(location, message, f"each line must be an object such as {example}")

    def describe(self) -> str:
        """Name the source in a report."""
        return f"{display_name(self.path)}, keys {self.source_key!r} and {self.target_key!r}"


class SyntheticPairsConfig(BaseConfig):
    """A corpus that heedful makes itself."""

    type: Literal["synthetic"] = "synthetic"
    name: str
    """Which corpus."""
    split: str = "train"
    """Which part of it; no pair is in two parts."""
    num_examples: PositiveInt
    """How many pairs."""
    seed: int = 0
    """The same seed gives the same pairs."""

    def read(self) -> list[Pair]:
        """Make the pairs."""
        return list(self.stream())

    def stream(self) -> Iterator[Pair]:
        """Give the pairs as they are made."""
        from heedful.data.synthetic import get_corpus

        return islice(get_corpus(self.name).pairs(self.split, seed=self.seed), self.num_examples)

    @property
    def is_single_pass(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return False

    def describe(self) -> str:
        """Name the source in a report."""
        return f"built-in {self.name}, {self.split}, {self.num_examples} pairs, seed {self.seed}"


def _nonempty_lines(path: str) -> Iterator[str]:
    is_empty = True
    for line in read_lines(path):
        is_empty = False
        yield line
    if is_empty:
        raise DataError(display_name(path), "holds no lines", "give a file with text in it")


def _get_text(record: Mapping[str, Any], key: str, location: str) -> str:
    if key not in record:
        problem = f"no key is called {key!r}{did_you_mean(key, record)}"
        found = ", ".join(sorted(record)) or "none"
        raise DataError(location, problem, f"set source_key and target_key; keys found: {found}")
    text = record[key]
    if not isinstance(text, str):
        problem = f"the value of {key!r} is {_json_type_name(text)}, not a text"
        raise DataError(location, problem, "put the text in quotation marks")
    check_no_surrogates(text, location=f"{location}, {key}")
    return text


def _json_type_name(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", type(None): "null"}
    if isinstance(value, bool):
        return "true" if value else "false"
    return names.get(type(value), "a number")


def _pluralize(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


PairSourceConfig = Annotated[
    ParallelFilesConfig | TSVConfig | JSONLConfig | SyntheticPairsConfig,
    Field(discriminator="type"),
]


# Text sources: where does running text come from?
#
# Running text is a list of lines. An empty line is text too. As with pairs, `read` checks a source
# whole before its first line is given out, and `stream` gives lines as they are read.


class TextFilesConfig(BaseConfig):
    """A file of running text, or several one after the other. Also .gz, .xz and "-" for stdin."""

    type: Literal["text"] = "text"
    path: str | list[str]
    """The file, or a list of files."""

    @property
    def _paths(self) -> list[str]:
        return [self.path] if isinstance(self.path, str) else self.path

    def read(self) -> list[str]:
        """Read the lines of every file."""
        return list(self.stream())

    def stream(self) -> Iterator[str]:
        """Give the lines as they are read."""
        is_empty = True
        for path in self._paths:
            for line in read_lines(path):
                is_empty = is_empty and not line.strip()
                yield line
        if is_empty:
            raise DataError(self.describe(), "holds no text", "give a file with text in it")

    @property
    def is_single_pass(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return STANDARD_INPUT in self._paths

    def describe(self) -> str:
        """Name the source in a report."""
        return ", ".join(map(display_name, self._paths)) or "no file"


class SyntheticTextConfig(BaseConfig):
    """One side of a corpus that heedful makes itself, as running text."""

    type: Literal["synthetic-text"] = "synthetic-text"
    name: str
    """Which corpus."""
    side: Literal["source", "target"] = "target"
    """Which of the two texts of every pair."""
    split: str = "train"
    """Which part of it; no pair is in two parts."""
    num_examples: PositiveInt
    """How many lines."""
    seed: int = 0
    """The same seed gives the same lines."""

    def read(self) -> list[str]:
        """Make the lines."""
        return list(self.stream())

    def stream(self) -> Iterator[str]:
        """Give the lines as they are made."""
        from heedful.data.synthetic import get_corpus

        pairs = islice(get_corpus(self.name).pairs(self.split, seed=self.seed), self.num_examples)
        return (pair.source if self.side == "source" else pair.target for pair in pairs)

    @property
    def is_single_pass(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return False

    def describe(self) -> str:
        """Name the source in a report."""
        return f"built-in {self.name}, {self.side}, {self.split}, {self.num_examples} lines, seed {self.seed}"


TextSourceConfig = Annotated[TextFilesConfig | SyntheticTextConfig, Field(discriminator="type")]
