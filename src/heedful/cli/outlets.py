"""Outlets: where do lines go that belong together?

The first part of a block goes to standard output, each further one to its file. Files come first:
whoever has read a line of standard output finds what belongs to it in the files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from heedful.cli.options import writing_output
from heedful.errors import ConfigError

Write = Callable[[Sequence[str]], None]


@contextmanager
def outlets(paths: Sequence[Path]) -> Iterator[Write]:
    """Give a function that writes the parts of a block where they belong."""
    with ExitStack() as stack:
        files = [stack.enter_context(_opened(path)) for path in paths]

        def write(parts: Sequence[str]) -> None:
            for path, file, part in zip(paths, files, parts[1:], strict=True):
                _write(path, file, part)
            with writing_output():
                # Text comes out as it went in, in UTF-8, whatever the terminal is set to.
                sys.stdout.buffer.write(parts[0].encode("utf-8"))

        yield write


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    from heedful.storage import explaining_failures

    with explaining_failures(path):
        file = path.open("w", encoding="utf-8", newline="\n")
    try:
        yield file
    finally:
        with explaining_failures(path):
            file.close()


def _write(path: Path, file: TextIO, text: str) -> None:
    from heedful.storage import explaining_failures

    with explaining_failures(path):
        file.write(text)
        file.flush()


def refuse_shared_files(written: Mapping[str, Path], read: Sequence[str]) -> None:
    """Refuse to write two things into one file, or over what is read."""
    taken = {Path(file).resolve(): f"is read ({file})" for file in read if Path(file).is_file()}
    for option, path in written.items():
        place = path.resolve()
        if place in taken:
            raise ConfigError(option, f"{path} {taken[place]}", "name another file")
        if place.is_file() or not place.exists():  # any number of things may go into /dev/null
            taken[place] = f"is written by {option} already"
