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

from heedful.config import Choice
from heedful.data.lines import STANDARD_INPUT, name_of, read_lines
from heedful.data.records import Pair
from heedful.errors import ConfigError, DataError, did_you_mean
from heedful.text.surrogates import refuse_surrogates


class FilesConfig(Choice):
    """Two files: line n of one belongs to line n of the other. Also .gz, .xz and "-" for stdin."""

    kind: Literal["files"] = "files"
    source: str
    """File of the texts to read, one on a line."""
    target: str
    """File of the texts to write, one on a line."""

    @model_validator(mode="after")
    def _one_standard_input(self) -> Self:
        if self.source == self.target == STANDARD_INPUT:
            raise ConfigError(
                "source, target",
                "both are '-', but standard input can only be one of them",
                "name a file for one side, or send both as columns: {kind: tsv, path: '-'}",
            )
        return self

    def read(self) -> list[Pair]:
        """Read both files and see that they are equally long."""
        return list(self.stream())

    def stream(self) -> Iterator[Pair]:
        """Give the pairs as they are read."""
        sources, targets = _lines_of(self.source), _lines_of(self.target)
        for number, (source, target) in enumerate(zip_longest(sources, targets)):
            if source is None or target is None:
                longer = 1 + number + sum(1 for _ in chain(sources, targets))
                raise self._unlike(*((longer, number) if target is None else (number, longer)))
            yield Pair(source, target)

    def _unlike(self, *counts: int) -> DataError:
        return DataError(
            name_of(self.source),
            f"{counts[0]} lines, but {name_of(self.target)} has {counts[1]}",
            "line n of one must belong to line n of the other: look for lost or added lines",
        )

    @property
    def is_read_once(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return STANDARD_INPUT in {self.source, self.target}

    def describe(self) -> str:
        """Name the source in a report."""
        return f"{name_of(self.source)} and {name_of(self.target)}"


class TsvConfig(Choice):
    """One file of columns parted by tabs. Quotation marks are text; all lines are equally wide."""

    kind: Literal["tsv"] = "tsv"
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
        for number, line in enumerate(_lines_of(self.path), start=1):
            row = line.split("\t")
            width = width or self._width(row)
            if len(row) != width:
                raise self._ragged(row, number, width)
            if number > 1 or not self.header:
                yield Pair(row[self.source_column - 1], row[self.target_column - 1])
        if self.header and number == 1:
            problem, remedy = "holds only a header", "set `header: false`, or add lines"
            raise DataError(name_of(self.path), problem, remedy)

    def _width(self, row: list[str]) -> int:
        needed = max(self.source_column, self.target_column)
        if len(row) < needed:
            raise DataError(
                f"{name_of(self.path)}:1",
                f"{_count(len(row), 'column')} parted by tabs, but column {needed} is wanted",
                "set source_column and target_column, or look for lost tabs",
            )
        return len(row)

    def _ragged(self, row: list[str], number: int, width: int) -> DataError:
        return DataError(
            f"{name_of(self.path)}:{number}",
            f"{_count(len(row), 'column')} parted by tabs, but line 1 has {width}",
            "look for lost or added tabs; a text must not hold any",
        )

    @property
    def is_read_once(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return self.path == STANDARD_INPUT

    def describe(self) -> str:
        """Name the source in a report."""
        return f"{name_of(self.path)}, columns {self.source_column} and {self.target_column}"


class JsonlConfig(Choice):
    """One file with a JSON object on every line."""

    kind: Literal["jsonl"] = "jsonl"
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
        for number, line in enumerate(_lines_of(self.path), start=1):
            yield self._pair(line, f"{name_of(self.path)}:{number}")

    @property
    def is_read_once(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return self.path == STANDARD_INPUT

    def _pair(self, line: str, at: str) -> Pair:
        record = self._object(line, at)
        return Pair(_text(record, self.source_key, at), _text(record, self.target_key, at))

    def _object(self, line: str, at: str) -> Mapping[str, Any]:
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise self._no_object(at, f"not JSON at column {error.colno}: {error.msg}") from None
        except (ValueError, RecursionError):
            raise self._no_object(at, "JSON with a number too long, or nested too deep") from None
        if not isinstance(record, dict):
            raise self._no_object(at, f"not an object but {_name_json(record)}")
        return record

    def _no_object(self, at: str, problem: str) -> DataError:
        example = json.dumps({self.source_key: "...", self.target_key: "..."}, ensure_ascii=False)
        return DataError(at, problem, f"each line must be an object such as {example}")

    def describe(self) -> str:
        """Name the source in a report."""
        return f"{name_of(self.path)}, keys {self.source_key!r} and {self.target_key!r}"


class BuiltInConfig(Choice):
    """A corpus that heedful makes itself."""

    kind: Literal["built-in"] = "built-in"
    name: str
    """Which corpus."""
    split: str = "train"
    """Which part of it; no pair is in two parts."""
    size: PositiveInt
    """How many pairs."""
    seed: int = 0
    """The same seed gives the same pairs."""

    def read(self) -> list[Pair]:
        """Make the pairs."""
        return list(self.stream())

    def stream(self) -> Iterator[Pair]:
        """Give the pairs as they are made."""
        from heedful.data.synthetic import corpus

        return islice(corpus(self.name).pairs(self.split, seed=self.seed), self.size)

    @property
    def is_read_once(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return False

    def describe(self) -> str:
        """Name the source in a report."""
        return f"built-in {self.name}, {self.split}, {self.size} pairs, seed {self.seed}"


PairSourceConfig = Annotated[
    FilesConfig | TsvConfig | JsonlConfig | BuiltInConfig, Field(discriminator="kind")
]


def _lines_of(path: str) -> Iterator[str]:
    is_empty = True
    for line in read_lines(path):
        is_empty = False
        yield line
    if is_empty:
        raise DataError(name_of(path), "holds no lines", "give a file with text in it")


def _text(record: Mapping[str, Any], key: str, at: str) -> str:
    if key not in record:
        problem = f"no key is called {key!r}{did_you_mean(key, record)}"
        found = ", ".join(sorted(record)) or "none"
        raise DataError(at, problem, f"set source_key and target_key; keys found: {found}")
    text = record[key]
    if not isinstance(text, str):
        problem = f"the value of {key!r} is {_name_json(text)}, not a text"
        raise DataError(at, problem, "put the text in quotation marks")
    refuse_surrogates(text, at=f"{at}, {key}")
    return text


def _name_json(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", type(None): "null"}
    if isinstance(value, bool):
        return "true" if value else "false"
    return names.get(type(value), "a number")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
