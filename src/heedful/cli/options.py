"""Given files: what a command line names instead of the recipe, as overrides of it."""

from __future__ import annotations

import json
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


DEFAULT_RECIPE = "default"

RecipeName = Annotated[
    str, typer.Argument(help="a recipe's name (see `heedful recipes`) or a .yaml file")
]
SourceFile = Annotated[
    str | None, typer.Option(help="texts to read, one on a line; .gz and .xz too")
]
TargetFile = Annotated[str | None, typer.Option(help="texts to write, line by line")]
DevSourceFile = Annotated[
    str | None, typer.Option(help="texts to validate on; else some are held out")
]
DevTargetFile = Annotated[str | None, typer.Option(help="what should become of them")]
TextFile = Annotated[
    str | None, typer.Option(help="running text, for a language model; .gz and .xz too")
]
DevTextFile = Annotated[
    str | None, typer.Option(help="text to validate on; else the end is held out")
]


def file_overrides(
    *,
    source: str | None,
    target: str | None,
    dev_source: str | None,
    dev_target: str | None,
    text: str | None,
    dev_text: str | None,
) -> list[str]:
    """Every file that was named, to learn from and to validate on."""
    pairs = _pair_override("train", source, target) + _pair_override("dev", dev_source, dev_target)
    return pairs + _text_override("train", text) + _text_override("dev", dev_text)


def _pair_override(split: str, source: str | None, target: str | None) -> list[str]:
    if source is None and target is None:
        return []
    if source is None or target is None:
        prefix = "--" if split == "train" else f"--{split}-"
        given, missing = ("source", "target") if target is None else ("target", "source")
        raise ConfigError(
            f"{prefix}{given}",
            f"given without {prefix}{missing}",
            f"add {prefix}{missing} FILE, whose lines belong to these",
        )
    names = {"type": "parallel-files", "source": source, "target": target}
    return [f"data.{split}={json.dumps(names)}"]


def _text_override(split: str, path: str | None) -> list[str]:
    return [f"data.{split}={json.dumps({'type': 'text', 'path': path})}"] if path else []


# Options that several commands share, and where their output goes.

Item = TypeVar("Item")
RunFolder = Annotated[Path, typer.Argument(help="folder written by `heedful train`")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="a.b=c", help="change a setting; repeatable")
]
BeamSize = Annotated[
    int | None, typer.Option(min=1, help="beam width; 1 is greedy", show_default="the recipe's")
]


class OutputClosedError(HeedfulError):
    """Whoever read the output went away."""

    exit_code = 1


def program_name() -> str:
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


def with_progress(
    results: Iterable[Item],
    *,
    total: int | None = None,
    count_of: Callable[[Item], int] = lambda result: 1,
) -> Iterator[Item]:
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
            bar.advance(task, count_of(result))


@contextmanager
def handle_stdout_errors() -> Iterator[None]:
    """Write to standard output; say it plainly if that is closed or full."""
    from heedful.storage import explain_os_errors

    try:
        with explain_os_errors(Path("standard output")):
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
