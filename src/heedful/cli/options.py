"""Options that several commands share, and where their output goes."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from heedful.errors import ConfigError, HeedfulError

if TYPE_CHECKING:
    from rich.console import Console

Result = TypeVar("Result")
RunFolder = Annotated[Path, typer.Argument(help="folder written by `heedful train`")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="a.b=c", help="change a setting; repeatable")
]
Beam = Annotated[
    int | None, typer.Option(min=1, help="beam width; 1 is greedy", show_default="the recipe's")
]


class OutputClosedError(HeedfulError):
    """Whoever read the output went away."""

    exit_code = 1


def command() -> str:
    """How this command was called, so that a hint can be typed as it stands."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m heedful"
    is_on_path = shutil.which(called.name) == str(called)
    return called.name if is_on_path else quote(str(called))


def parse_bytes(text: str) -> int:
    """Read an amount of memory such as 512MiB, 4GiB or 4g."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise ConfigError(text, "not an amount of memory", "write it as 512MiB or 4GiB")
    number, unit = found.groups()
    return int(float(number) * 1024 ** " kmgt".index(unit or " "))


def stderr_console() -> Console:
    """A console for what is said on the way; results go to standard output."""
    from rich.console import Console

    return Console(stderr=True)


def watched(
    results: Iterable[Result],
    *,
    total: int | None = None,
    size: Callable[[Result], int] = lambda result: 1,
) -> Iterator[Result]:
    """Give results on, and show on a terminal how many there have been.

    A result may stand for several, as `size` says.
    """
    if not sys.stderr.isatty():
        yield from results
        return
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    columns = SpinnerColumn(), "translating", MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=stderr_console(), transient=True) as bar:
        task = bar.add_task("", total=total)
        for result in results:
            yield result
            bar.advance(task, size(result))


@contextmanager
def writing_output() -> Iterator[None]:
    """Write to standard output; say it plainly if that is closed or full."""
    from heedful.storage import explaining_failures

    try:
        with explaining_failures(Path("standard output")):
            try:
                yield
                sys.stdout.flush()
            except BrokenPipeError:
                raise OutputClosedError(
                    "standard output",
                    "the reader closed the pipe before all was written",
                    "what it took is complete lines; give the command again for the rest",
                ) from None
    except HeedfulError:
        # Python flushes once more as it exits, which would fail again and say so.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise
