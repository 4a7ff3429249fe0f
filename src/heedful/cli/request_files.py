"""Requests from files: what is asked for each line, from up to three files side by side.

Line n of every file belongs to line n of the others. Files are read together, a line at a time;
one that ends before the others is an error that says both numbers of lines.
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
from heedful.errors import ConfigError, DataError, choices_hint, did_you_mean

if TYPE_CHECKING:
    from heedful.decoding.requests import Request

_COMPRESSED_SUFFIXES = (".gz", ".xz")
_BLOCK = 2**20  # bytes
_EXAMPLE_HINT = '{} asks for nothing, and {"required_phrases": ["a phrase"]} for a phrase'


class RequestFiles(NamedTuple):
    """The files that say what is asked."""

    texts: str
    targets: str | None = None
    constraints: str | None = None

    @property
    def files(self) -> list[str]:
        """Those that were given, the texts first."""
        return [file for file in self if file is not None]


def read_requests(request_files: RequestFiles) -> Iterator[Request]:
    """Read what is asked, line by line."""
    from heedful.decoding.requests import Request

    for number, lines in enumerate(_zip_lines(request_files.files), start=1):
        rest = iter(lines[1:])
        target = None if request_files.targets is None else next(rest)
        constraint_dict: dict[str, Any] = {}
        if request_files.constraints is not None:
            constraint_dict = parse_constraints(
                next(rest), f"{display_name(request_files.constraints)}:{number}"
            )
        yield Request(lines[0], target=target, **constraint_dict)


def _zip_lines(files: list[str]) -> Iterator[tuple[str, ...]]:
    streams = [read_lines(file) for file in files]
    for number, lines in enumerate(zip_longest(*streams)):
        if None in lines:
            counts = [
                str(number) if line is None else _count_remaining(number + 1, file, stream)
                for line, file, stream in zip(lines, files, streams, strict=True)
            ]
            raise_unequal_lengths(files, counts)
        yield lines


def _count_remaining(seen: int, file: str, stream: Iterator[str]) -> str:
    """Count to the end, unless the end may never come."""
    return f"at least {seen}" if is_streamed(file) else str(seen + sum(1 for _ in stream))


def raise_unequal_lengths(files: list[str], counts: list[str]) -> NoReturn:
    """Say which file has another number of lines than the first."""
    file, count = next(
        (file, count) for file, count in zip(files, counts, strict=True) if count != counts[0]
    )
    raise DataError(
        display_name(file),
        f"{count} lines, but {display_name(files[0])} has {counts[0]}",
        "line n of one must belong to line n of the other: look for lost or added lines",
    )


def count_lines(request_files: RequestFiles) -> int | None:
    """How many lines are asked about, where that is quickly found out; refuse unequal files."""
    if any(not _is_regular_file(file) for file in request_files.files):
        return None
    counts = [_count(Path(file)) for file in request_files.files]
    if len(set(counts)) > 1:
        raise_unequal_lengths(request_files.files, list(map(str, counts)))
    return counts[0]


def _is_regular_file(file: str) -> bool:
    return (
        file != STANDARD_INPUT and Path(file).is_file() and not file.endswith(_COMPRESSED_SUFFIXES)
    )


def _count(path: Path) -> int:
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def is_streamed(file: str) -> bool:
    """Whether lines come through a pipe or from a keyboard, when their writer likes."""
    if file != STANDARD_INPUT:
        return Path(file).exists() and not Path(file).is_file()
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):  # standard input is no file of the system: all of it is here
        return False


def check_single_stdin(request_files: RequestFiles) -> None:
    """Standard input can be one of the files, not two."""
    if request_files.files.count(STANDARD_INPUT) > 1:
        raise ConfigError(
            "standard input",
            "two files cannot both be read from it",
            "name a file in the place of one -",
        )


def parse_constraints(line: str, location: str) -> dict[str, Any]:
    """Read what the output of a text must, must not and is to begin with, from a JSON object."""
    try:
        constraint_dict = json.loads(line)
    except ValueError as error:
        raise DataError(location, f"not JSON ({error})", _EXAMPLE_HINT) from None
    if not isinstance(constraint_dict, dict):
        raise DataError(
            location, f"not a JSON object but {_shorten(constraint_dict)}", _EXAMPLE_HINT
        )
    for key, value in constraint_dict.items():
        if key not in _CONSTRAINT_FORMATS:
            problem = f"no constraint is called {key!r}{did_you_mean(key, _CONSTRAINT_FORMATS)}"
            raise DataError(location, problem, choices_hint(_CONSTRAINT_FORMATS))
        is_right, check = _CONSTRAINT_FORMATS[key]
        if not is_right(value):
            raise DataError(location, f"{key!r} cannot be {_shorten(value)}", f"write {check}")
    return constraint_dict


def _shorten(value: object, max_length: int = 60) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= max_length else f"{shown[:max_length]}..."


def _is_phrase(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_phrases(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_phrase, value))


def _is_phrase_list_or_alternatives(value: object) -> bool:
    return isinstance(value, list) and all(
        _is_phrase(each) or (bool(each) and _are_phrases(each)) for each in value
    )


_CONSTRAINT_FORMATS: dict[str, tuple[Callable[[object], bool], str]] = {
    "required_phrases": (
        _is_phrase_list_or_alternatives,
        'a list of phrases: "required_phrases": ["one", ["this", "or this"]]',
    ),
    "forbidden_phrases": (
        _are_phrases,
        'a list of phrases: "forbidden_phrases": ["one", "another"]',
    ),
    "prefix": (lambda value: isinstance(value, str), 'a text: "prefix": "how it begins"'),
}
