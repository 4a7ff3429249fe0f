"""The command `heedful`: its subcommands and exit codes.

Exit codes: 0 done, or interrupted and saved; 1 failed; 2 an error the user can fix; 3 too many
non-finite losses in a row; 130 interrupted with nothing to save; 141 the reader of standard output
closed the pipe; 143 interrupted and not saved. HeedfulError is printed without a traceback.
"""

import atexit
import inspect
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup
from typing_extensions import override

from heedful.cli.align import align
from heedful.cli.compare import compare
from heedful.cli.conversion import compress, distill, export, import_
from heedful.cli.course import course
from heedful.cli.data import data, features
from heedful.cli.demos import demo
from heedful.cli.evaluate import evaluate
from heedful.cli.options import with_run
from heedful.cli.reproduce import reproduce
from heedful.cli.runs import recipes, runs
from heedful.cli.serve import serve
from heedful.cli.show import report, show
from heedful.cli.train import average, bench, prepare, train
from heedful.errors import ConfigError, HeedfulError, StorageError, printable, shorten
from heedful.storage.atomic import DISK_ERRORS, storage_error
from heedful.tasks.registry import data_table, task_commands
from heedful.terminal import OutputClosedError, echo, handle_stdout_errors, open_standard_streams

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_INTERRUPTED = 128 + signal.SIGINT
_OUT_OF_MEMORY = re.compile(
    "allocate|out of memory|failed to map segment|start new thread|size calculation overflow", re.I
)


class _Group(TyperGroup):
    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with handle_stdout_errors():  # of --help and --version
            return super().parse_args(ctx, args)

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise OutputClosedError from None
        except Exception as error:
            if hasattr(error, "format_message") and hasattr(error, "message"):  # a usage error
                error.message = printable(shorten(error.message)) + _files_hint(error)
            raise


def _data_help() -> str:
    r"""Return what `heedful train` makes of each kind of data; \b keeps its lines whole."""
    rows = [("data", "heedful train", "trains", "then use"), *data_table()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(["\b", "Your own data, without a recipe:", *lines])


def _files_hint(error: Any) -> str:
    """Return how files are given, if a command does not take them as arguments."""
    files = [word for word in sys.argv[2:] if Path(word).is_file()]
    options = {name for option in error.ctx.command.params for name in option.opts}
    if "extra argument" not in error.message or len(files) != 2 or "--source" not in options:
        return ""
    return f"; two files of texts: --source {quote(files[0])} --target {quote(files[1])}"


app = typer.Typer(
    cls=_Group,
    help="Train, decode, evaluate and inspect sequence models with attention.",
    epilog=f"{_data_help()}\n\nTo start, in a few minutes: heedful demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: list[Callable[..., None]] = [demo, train]
_COMMANDS += [with_run(command, task) for task, command in task_commands()]
_COMMANDS += [evaluate, compare, reproduce, show, report, runs, bench]
_COMMANDS += [average, prepare, align, features]
_COMMANDS += [serve, import_, export, compress, distill, recipes, data, course]


def _command_help(text: str) -> tuple[str, str]:
    r"""Return the first sentence of a docstring, and all of it for `--help`.

    Its examples move to the end, where the marker \b keeps their lines whole.
    """
    lines = inspect.cleandoc(text).replace(r"\b", "\b").splitlines()
    examples = [line for line in lines if line.startswith("Example: ")]
    others = "\n".join(line for line in lines if line not in examples).strip()
    listed = "\n".join(f"  {line.removeprefix('Example: ')}" for line in examples)
    first, *_ = " ".join(others.split("\n\n")[0].split()).split(". ")
    return first.removesuffix("."), f"{others}\n\n\b\nExamples:\n{listed}"


for command in _COMMANDS:
    short_help, full_help = _command_help(str(command.__doc__))
    name = command.__name__.removesuffix("_")  # of a Python keyword
    app.command(name, short_help=short_help, help=full_help)(command)


def _print_version(requested: bool) -> None:
    if requested:
        from heedful.version import VERSION

        echo(f"heedful {VERSION}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: bool = typer.Option(
        False, "--version", help="print the version", callback=_print_version, is_eager=True
    ),
) -> None:
    del version


def main() -> None:
    """Run a command; turn errors into a message and an exit code."""
    open_standard_streams()
    try:
        try:
            os.getcwd()  # without a working directory, Intel's MKL would end the process
            app()
        except SystemExit as ending:
            with handle_stdout_errors():  # of what is still buffered
                sys.stdout.flush()
            _exit_process(ending.code)
    except KeyboardInterrupt:  # a second one, while the first one ends the command
        _exit_process(_INTERRUPTED)
    except OutputClosedError as closed:
        _exit_process(closed.exit_code)
    except Exception as failure:
        error = _explain(failure)
        echo(f"heedful: {error}", err=True)
        _exit_process(error.exit_code)


def _explain(error: Exception) -> HeedfulError:
    """Return what a user can do about a limit of the machine; raise other errors again."""
    if isinstance(error, HeedfulError):
        return error
    if isinstance(error, UnicodeEncodeError):
        character = error.object[error.start]
        message = f"the encoding {error.encoding} has no {character!a}"
        return ConfigError("output", message, "set the environment variable PYTHONIOENCODING=utf-8")
    if isinstance(error, FileNotFoundError) and error.filename is None:  # of os.getcwd()
        message = "the working directory no longer exists"
        return StorageError(".", message, "change to a folder that exists")
    if isinstance(error, OSError) and (error.filename is not None or error.errno in DISK_ERRORS):
        return storage_error(error)
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)):
        size = re.search(r"allocate ([\d.]+ \w+)", str(error))
        message = f"not enough{f' for {size[1]}' if size else ''}"
        if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", ()):  # Linux
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            message += f"; {free / 1e9:.1f} GB are free"
        limit = resource.getrlimit(resource.RLIMIT_AS)[0] if resource else -1
        if resource and limit != resource.RLIM_INFINITY:
            message += f", and this process may use {limit / 1e9:.1f} GB (ulimit -v)"
        return ConfigError("memory", message, "lower the sizes of model, batches or beam")
    raise error


def _exit_process(code: str | int | None) -> NoReturn:
    """Exit; in a distributed run, without Python's cleanup, which Ctrl-C does not interrupt.

    Threads of gloo may still hold tensors, and releasing them late aborts a process that has
    finished its work (pytorch pull request 179291).
    """
    if isinstance(code, int) and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # the first to run
    sys.exit(code)
