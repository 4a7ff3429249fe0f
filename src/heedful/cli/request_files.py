"""Requests read from files: texts, and optionally targets and constraints, line by line.

Line n of every file belongs to line n of the others. All files are read together, one line at a
time; a file with fewer lines than another is an error that names both numbers of lines.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from heedful.data.text_files import STANDARD_INPUT, display_name, read_lines
from heedful.errors import DataError, check, choices_hint, did_you_mean

if TYPE_CHECKING:
    from heedful.decoding.requests import Request

_COMPRESSED_SUFFIXES = (".gz", ".xz")
_BLOCK_SIZE = 2**20  # bytes
_EXAMPLE_HINT = 'write {} for no constraints, or {"required_phrases": ["a phrase"]}, for example'


class RequestFiles(NamedTuple):
    """The input files of `heedful translate`; `-` is standard input."""

    texts: str
    targets: str | None = None
    constraints: str | None = None

    @property
    def files(self) -> list[str]:
        """The files that are given, texts first."""
        return [file for file in self if file is not None]


def read_requests(request_files: RequestFiles) -> Iterator[Request]:
    """Yield one request per line."""
    from heedful.decoding.requests import Request

    for line_number, lines in enumerate(_zip_lines(request_files.files), start=1):
        others = iter(lines[1:])
        target = None if request_files.targets is None else next(others)
        constraints: dict[str, Any] = {}
        if request_files.constraints is not None:
            location = f"{display_name(request_files.constraints)}:{line_number}"
            constraints = parse_constraints(next(others), location)
        yield Request(lines[0], target=target, **constraints)


def _zip_lines(files: list[str]) -> Iterator[tuple[str, ...]]:
    streams = [read_lines(file) for file in files]
    for index, lines in enumerate(zip_longest(*streams)):
        if None in lines:
            counts = [
                str(index) if line is None else _count_remaining(index + 1, file, stream)
                for line, file, stream in zip(lines, files, streams, strict=True)
            ]
            raise_unequal_lengths(files, counts)
        yield lines


def _count_remaining(num_read: int, file: str, stream: Iterator[str]) -> str:
    """Return the number of lines, or a lower bound for a stream that may never end."""
    return f"at least {num_read}" if is_streamed(file) else str(num_read + sum(1 for _ in stream))


def raise_unequal_lengths(files: list[str], counts: list[str]) -> NoReturn:
    """Raise DataError for the first file with another number of lines than the texts."""
    file, count = next(
        (file, count) for file, count in zip(files, counts, strict=True) if count != counts[0]
    )
    raise DataError(
        display_name(file),
        f"{count} lines, but {display_name(files[0])} has {counts[0]}",
        "line n of one file must belong to line n of the other: check for missing or extra lines",
    )


def count_lines(request_files: RequestFiles) -> int | None:
    """Return the number of lines, or None if a file must be read to know it.

    Raises DataError if the files have different numbers of lines.
    """
    files = request_files.files
    if not all(map(_is_plain_file, files)):
        return None
    counts = [_count_lines_of(Path(file)) for file in files]
    if len(set(counts)) > 1:
        raise_unequal_lengths(files, list(map(str, counts)))
    return counts[0]


def _is_plain_file(file: str) -> bool:
    is_compressed = file.endswith(_COMPRESSED_SUFFIXES)
    return file != STANDARD_INPUT and Path(file).is_file() and not is_compressed


def _count_lines_of(path: Path) -> int:
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK_SIZE):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def is_streamed(file: str) -> bool:
    """Return True for a pipe or a terminal, whose lines arrive one by one."""
    if file != STANDARD_INPUT:
        return Path(file).exists() and not Path(file).is_file()
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):  # standard input has no file descriptor: all of it is in memory
        return False


def check_single_stdin(request_files: RequestFiles) -> None:
    """Raise ConfigError if two files are standard input."""
    check(
        request_files.files.count(STANDARD_INPUT) <= 1,
        "standard input",
        "only one file can be read from it",
        "replace one - by a file",
    )


def parse_constraints(line: str, location: str) -> dict[str, Any]:
    """Read the constraints on one output from a JSON object."""
    try:
        constraints = json.loads(line)
    except ValueError as error:
        raise DataError(location, f"not JSON ({error})", _EXAMPLE_HINT) from None
    if not isinstance(constraints, dict):
        message = f"must be a JSON object, but is {_shorten(constraints)}"
        raise DataError(location, message, _EXAMPLE_HINT)
    for key, value in constraints.items():
        check(
            key in _CONSTRAINT_FORMATS,
            location,
            f"unknown constraint {key!r}{did_you_mean(key, _CONSTRAINT_FORMATS)}",
            choices_hint(_CONSTRAINT_FORMATS),
            DataError,
        )
        is_valid, example = _CONSTRAINT_FORMATS[key]
        message = f"{key!r} cannot be {_shorten(value)}"
        check(is_valid(value), location, message, f"write {example}", DataError)
    return constraints


def _shorten(value: object, max_length: int = 60) -> str:
    text = json.dumps(value)
    return text if len(text) <= max_length else f"{text[:max_length]}..."


def _is_phrase(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_phrases(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_phrase, value))


def _are_phrases_or_alternatives(value: object) -> bool:
    return isinstance(value, list) and all(
        _is_phrase(phrase) or (bool(phrase) and _are_phrases(phrase)) for phrase in value
    )


_CONSTRAINT_FORMATS: dict[str, tuple[Callable[[object], bool], str]] = {
    "required_phrases": (
        _are_phrases_or_alternatives,
        'a list of phrases: "required_phrases": ["one", ["this", "or this"]]',
    ),
    "forbidden_phrases": (
        _are_phrases,
        'a list of phrases: "forbidden_phrases": ["one", "another"]',
    ),
    "prefix": (lambda value: isinstance(value, str), 'a text: "prefix": "how it begins"'),
}
