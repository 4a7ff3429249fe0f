"""Shared code of commands: options, messages, progress bars, and errors of standard output."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from typer import Argument, Option

from heedful.errors import ConfigError, HeedfulError, check, printable

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")

RunFolder = Annotated[Path, Argument(help="folder written by `heedful train`")]
Device = Annotated[str, Option(help="cpu, cuda, mps (Mac), or auto: a GPU if there is one")]
DtypeName = Literal["fp32", "bf16", "int8"]
Dtype = Annotated[
    DtypeName, Option(help="precision; bf16 and int8 are faster where the processor has them")
]
Overrides = Annotated[
    list[str] | None, Option("--set", metavar="a.b=c", help="change a setting; repeatable")
]
BeamSize = Annotated[
    int | None, Option(min=1, help="beam size; 1 is greedy", show_default="the recipe's")
]
Backend = Annotated[
    Literal["auto", "torch", "ct2"] | None,
    Option(
        help="what searches where texts alone are needed: ct2 is CTranslate2; auto uses it if it "
        "is installed and the outputs are equal",
        show_default="the recipe's",
    ),
]
Quiet = Annotated[
    bool, Option("--quiet", "-q", help="print only errors and, at the end, the result")
]
FIGURE_ENDINGS = (".svg", ".png")


def check_figure_files(paths: list[Path] | None) -> list[Path] | None:
    """Raise ConfigError unless each path ends as a figure that can be written."""
    endings = " or ".join(FIGURE_ENDINGS)
    for path in paths or ():
        message = f"figures end in {endings}, but this name in {path.suffix or 'neither'}"
        hint = "name a file such as figure.svg or figure.png"
        check(path.suffix.lower() in FIGURE_ENDINGS, str(path), message, hint)
        is_possible = path.suffix.lower() != ".png" or find_spec("resvg_py") is not None
        hint = "install it with: pip install 'heedful[png]', or name a file that ends in .svg"
        check(is_possible, str(path), "writing PNG needs resvg-py", hint)
    return paths


def check_page_file(path: Path | None) -> Path | None:
    """Raise ConfigError if the path ends as a file of another kind."""
    if path is not None:
        message = f"pages end in .html, but this name in {path.suffix}"
        is_page = path.suffix.lower() in {"", ".html", ".htm"}
        check(is_page, str(path), message, "name a file such as page.html")
    return path


def figure_option(description: str) -> Any:
    """Return the option of figures; --svg and --png are the same, since the ending decides."""
    text = f"{description}; .svg or .png, repeatable"
    return Option("--svg", "--png", "--figure", help=text, callback=check_figure_files)


def page_option(description: str) -> Any:
    """Return the option of a page."""
    return Option("--html", help=description, callback=check_page_file)


AsJSON = Annotated[bool, Option("--json", help="print JSON")]


def backend_overrides(backend: str | None) -> list[str]:
    """Return the `--set` that --backend is short for."""
    return [f"decoding.backend={backend}"] if backend else []


class OutputClosedError(Exception):
    """The reader of standard output closed the pipe; commands end quietly."""

    exit_code = 141  # as a shell reports a process that SIGPIPE killed


def open_standard_streams() -> None:
    """Replace closed standard streams, as cron and daemons start programs, by the null device.

    Otherwise the next file that is opened would get the number of a closed one.
    """
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def echo(message: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a message; on a terminal, without escape sequences that are part of it."""
    is_terminal = (sys.stderr if err else sys.stdout).isatty()
    typer.echo(printable(str(message)) if is_terminal else message, err=err, nl=nl)


@contextmanager
def handle_stdout_errors() -> Iterator[None]:
    """Turn a closed pipe or a full disk behind standard output into a HeedfulError."""
    from heedful.storage.atomic import explain_os_errors

    try:
        with explain_os_errors(Path("standard output")):
            try:
                yield
                sys.stdout.flush()
            except BrokenPipeError:
                raise OutputClosedError from None
    except (HeedfulError, OutputClosedError):
        # Python flushes once more as it exits, which would fail and print a traceback.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise


def stderr_console(*, quiet: bool = False) -> Console:
    """Return a console for messages; results go to standard output."""
    from rich.console import Console

    return Console(stderr=True, quiet=quiet)


def print_message(console: Console, line: str) -> None:
    """Print a line as it is, but for escape sequences."""
    console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def with_progress(
    results: Iterable[Item],
    *,
    total: int | None = None,
    count_of: Callable[[Item], int] = lambda result: 1,
    activity: str = "decoding",
) -> Iterator[Item]:
    """Yield results and show a progress bar if standard error is a terminal.

    `count_of` returns the number of examples of a result.
    """
    if not sys.stderr.isatty():
        yield from results
        return
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    columns = SpinnerColumn(), activity, MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=stderr_console(), transient=True) as bar:
        task = bar.add_task("", total=total)
        for result in results:
            yield result
            bar.advance(task, count_of(result))


def is_typed(file: str) -> bool:
    """Return True for standard input if somebody types it."""
    return file == "-" and sys.stdin.isatty()


def prompt(lines: Iterable[Item]) -> Iterator[Item]:
    """Yield typed lines and ask for each on standard error."""
    end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
    sys.stderr.write(f"type a text and press Enter; {end} ends\n")
    iterator, is_open = iter(lines), True
    while is_open:
        sys.stderr.write("> ")
        sys.stderr.flush()
        is_open = False
        for line in islice(iterator, 1):
            yield line
            is_open = True
    sys.stderr.write("\n")


def program_name() -> str:
    """Return how this command was called, so that hints can be copied."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m heedful"
    is_on_path = shutil.which(called.name) == str(called)
    return called.name if is_on_path else quote(str(called))


def parse_languages(text: str) -> tuple[str, str]:
    """Return the codes of source and target language that text such as "de-en" names."""
    source, _, target = text.partition("-")
    check(source and target, "--languages", f"{text!r} is no pair", "write such as de-en")
    return source, target


def parse_bytes(text: str, base: int = 1024) -> int:
    """Parse an amount of memory such as 512MiB, 4GiB or 4g; of files, 3MB are 3,000,000 bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise ConfigError(text, "not an amount of memory", "write it as 512MiB or 4GiB")
    amount, unit = match.groups()
    return int(float(amount) * base ** " kmgt".index(unit or " "))


def save_text(path: Path, text: str) -> None:
    """Write a file, and say so."""
    from heedful.storage.atomic import write_text

    write_text(path, text)
    echo(f"wrote {path}", err=True)
