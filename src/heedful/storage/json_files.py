"""Reading of JSON with limits of size and depth.

Invariant: at most `MAX_BYTES` and one are in memory at a time, whatever a file contains, and what
is larger, nested deeper than `MAX_DEPTH`, or not JSON at all is a ValueError.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

MAX_BYTES, MAX_DEPTH = 64 * 2**20, 50


def parse_json(text: str | bytes) -> Any:
    """Parse JSON."""
    _check_size(text)
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"more than {MAX_DEPTH} levels") from None
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        parents = [item for item in level if isinstance(item, dict | list)]
        if not parents:
            return value
        lists = [list(item.values()) if isinstance(item, dict) else item for item in parents]
        level = list(chain.from_iterable(lists))
    if level:
        raise ValueError(f"more than {MAX_DEPTH} levels")
    return value


def read_limited(path: Path) -> bytes:
    """Read a file; a larger one than `MAX_BYTES` is a ValueError."""
    with path.open("rb") as file:
        contents = file.read(MAX_BYTES + 1)
    _check_size(contents)
    return contents


def read_json(path: Path) -> Any:
    """Parse a JSON file."""
    return parse_json(read_limited(path))


def read_log_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, if it exists; a longer line than `MAX_BYTES` comes in parts."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        yield from iter(lambda: file.readline(MAX_BYTES), b"")


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read the objects of a JSON lines file, if it exists; damaged lines are skipped."""
    entries = []
    for line in read_log_lines(path):
        with suppress(ValueError):
            if isinstance(entry := parse_json(line), dict):
                entries.append(entry)
    return entries


def _check_size(text: str | bytes) -> None:
    if len(text) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")


def read_json_integers(values: Any) -> Any:
    """Return a JSON value in which 3.0 is 3: there, both are integers."""
    if isinstance(values, Mapping):
        return {name: read_json_integers(value) for name, value in values.items()}
    if isinstance(values, list):
        return list(map(read_json_integers, values))
    return int(values) if isinstance(values, float) and values.is_integer() else values
