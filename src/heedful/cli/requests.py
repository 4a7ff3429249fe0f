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

from heedful.data.lines import STANDARD_INPUT, name_of, read_lines
from heedful.errors import ConfigError, DataError, choose_from, did_you_mean

if TYPE_CHECKING:
    from heedful.translator import Request

_PACKED = (".gz", ".xz")
_BLOCK = 2**20  # bytes
_NOTHING = '{} asks for nothing, and {"must": ["a phrase"]} for a phrase'


class Asked(NamedTuple):
    """The files that say what is asked."""

    texts: str
    targets: str | None = None
    constraints: str | None = None

    @property
    def files(self) -> list[str]:
        """Those that were given, the texts first."""
        return [file for file in self if file is not None]


def read_requests(asked: Asked) -> Iterator[Request]:
    """Read what is asked, line by line."""
    from heedful.translator import Request

    for number, lines in enumerate(_side_by_side(asked.files), start=1):
        rest = iter(lines[1:])
        target = None if asked.targets is None else next(rest)
        wishes: dict[str, Any] = {}
        if asked.constraints is not None:
            wishes = parse_constraints(next(rest), f"{name_of(asked.constraints)}:{number}")
        yield Request(lines[0], target=target, **wishes)


def _side_by_side(files: list[str]) -> Iterator[tuple[str, ...]]:
    streams = [read_lines(file) for file in files]
    for number, lines in enumerate(zip_longest(*streams)):
        if None in lines:
            counts = [
                str(number) if line is None else _count_on(number + 1, file, stream)
                for line, file, stream in zip(lines, files, streams, strict=True)
            ]
            refuse_unequal(files, counts)
        yield lines


def _count_on(seen: int, file: str, stream: Iterator[str]) -> str:
    """Count to the end, unless the end may never come."""
    return f"at least {seen}" if arrives(file) else str(seen + sum(1 for _ in stream))


def refuse_unequal(files: list[str], counts: list[str]) -> NoReturn:
    """Say which file has another number of lines than the first."""
    file, count = next(
        (file, count) for file, count in zip(files, counts, strict=True) if count != counts[0]
    )
    raise DataError(
        name_of(file),
        f"{count} lines, but {name_of(files[0])} has {counts[0]}",
        "line n of one must belong to line n of the other: look for lost or added lines",
    )


def count_lines(asked: Asked) -> int | None:
    """How many lines are asked about, where that is quickly found out; refuse unequal files."""
    if any(not _is_quickly_counted(file) for file in asked.files):
        return None
    counts = [_count(Path(file)) for file in asked.files]
    if len(set(counts)) > 1:
        refuse_unequal(asked.files, list(map(str, counts)))
    return counts[0]


def _is_quickly_counted(file: str) -> bool:
    return file != STANDARD_INPUT and Path(file).is_file() and not file.endswith(_PACKED)


def _count(path: Path) -> int:
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def arrives(file: str) -> bool:
    """Whether lines come through a pipe or from a keyboard, when their writer likes."""
    if file != STANDARD_INPUT:
        return Path(file).exists() and not Path(file).is_file()
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):  # standard input is no file of the system: all of it is here
        return False


def refuse_shared_input(asked: Asked) -> None:
    """Standard input can be one of the files, not two."""
    if asked.files.count(STANDARD_INPUT) > 1:
        raise ConfigError(
            "standard input",
            "two files cannot both be read from it",
            "name a file in the place of one -",
        )


def parse_constraints(line: str, at: str) -> dict[str, Any]:
    """Read what the output of a text must, must not and is to begin with, from a JSON object."""
    try:
        wishes = json.loads(line)
    except ValueError as error:
        raise DataError(at, f"not JSON ({error})", _NOTHING) from None
    if not isinstance(wishes, dict):
        raise DataError(at, f"not a JSON object but {_short(wishes)}", _NOTHING)
    for key, value in wishes.items():
        if key not in _FORMS:
            problem = f"no constraint is called {key!r}{did_you_mean(key, _FORMS)}"
            raise DataError(at, problem, choose_from(_FORMS))
        is_right, form = _FORMS[key]
        if not is_right(value):
            raise DataError(at, f"{key!r} cannot be {_short(value)}", f"write {form}")
    return wishes


def _short(value: object, most: int = 60) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= most else f"{shown[:most]}..."


def _is_phrase(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_phrases(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_phrase, value))


def _are_duties(value: object) -> bool:
    return isinstance(value, list) and all(
        _is_phrase(each) or (bool(each) and _are_phrases(each)) for each in value
    )


_FORMS: dict[str, tuple[Callable[[object], bool], str]] = {
    "must": (_are_duties, 'a list of phrases: "must": ["one", ["this", "or this"]]'),
    "never": (_are_phrases, 'a list of phrases: "never": ["one", "another"]'),
    "prefix": (lambda value: isinstance(value, str), 'a text: "prefix": "how it begins"'),
}
