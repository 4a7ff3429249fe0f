"""Options that several commands share, and how they write to the terminal."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from heedful.errors import ConfigError, HeedfulError
from heedful.tasks.file_options import FileOption, Files, Split
from heedful.tasks.registry import all_file_options

if TYPE_CHECKING:
    from rich.console import Console


Item = TypeVar("Item")
DEFAULT_RECIPE = "default"

RecipeName = Annotated[
    str, typer.Argument(help="recipe name (see `heedful recipes`) or .yaml file")
]
RunFolder = Annotated[Path, typer.Argument(help="folder written by `heedful train`")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="a.b=c", help="change a setting; repeatable")
]
BeamSize = Annotated[
    int | None, typer.Option(min=1, help="beam size; 1 is greedy", show_default="the recipe's")
]


def with_file_options(*splits: Split) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter `files` of a command by the file options of all tasks.

    The command gets their values by split and option name.
    """
    options = [option for task_options in all_file_options() for option in task_options.options]
    parameters = {
        (split, option.name): Parameter(
            option.flag(split).removeprefix("--").replace("-", "_"),
            Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_option_type(option, split),
        )
        for split in splits
        for option in options
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **kwargs: Any) -> None:
            files: dict[Split, dict[str, Any]] = {split: {} for split in splits}
            for (split, name), parameter in parameters.items():
                files[split][name] = kwargs.pop(parameter.name, None)
            command(*args, files=files, **kwargs)

        before = inspect.signature(command, eval_str=True).parameters.values()
        after = [
            parameter
            for own in before
            for parameter in (parameters.values() if own.name == "files" else [own])
        ]
        return _with_parameters(run, command, after)

    return decorate


def with_predictor(
    task_command: Callable[..., Iterable[str]], task_name: str
) -> Callable[..., None]:
    """Make a command of a task's function: its parameter `predictor` becomes a run to load.

    The function yields the lines that the command prints.
    """

    def run_command(*args: Any, run: Path, device: str, **kwargs: Any) -> None:
        from heedful.runs import load

        predictor = load(run, device=device, task_name=task_name)
        with handle_stdout_errors():
            for line in task_command(predictor, *args, **kwargs):
                typer.echo(line)

    _, *parameters = inspect.signature(task_command, eval_str=True).parameters.values()
    kind = Parameter.POSITIONAL_OR_KEYWORD
    run = Parameter("run", kind, annotation=RunFolder)
    device = Parameter("device", Parameter.KEYWORD_ONLY, default="auto", annotation=Device)
    return _with_parameters(run_command, task_command, [run, *parameters, device])


def _with_parameters(
    function: Callable[..., None],
    documented: Callable[..., Any],
    parameters: Sequence[Parameter],
) -> Callable[..., None]:
    """Give a function the name and help of another, and the parameters that typer reads."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    function.__name__, function.__doc__ = documented.__name__, documented.__doc__
    return function


def _option_type(option: FileOption, split: Split) -> Any:
    is_list = option.is_repeatable and split == "test"
    plain = list[str] | None if is_list else str | None
    return Annotated[plain, typer.Option(help=option.help[split], metavar="FILE")]


def file_overrides(files: Mapping[Split, Files]) -> list[str]:
    """Return the recipe overrides that name these files."""
    return [
        override
        for split in files
        for options in all_file_options()
        for override in options.override(files[split], split)
    ]


class OutputClosedError(HeedfulError):
    """The reader of standard output closed the pipe."""

    exit_code = 1


def program_name() -> str:
    """Return how this command was called, so that hints can be copied."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m heedful"
    is_on_path = shutil.which(called.name) == str(called)
    return called.name if is_on_path else quote(str(called))


def parse_bytes(text: str) -> int:
    """Parse an amount of memory such as 512MiB, 4GiB or 4g."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise ConfigError(text, "not an amount of memory", "write it as 512MiB or 4GiB")
    amount, unit = match.groups()
    return int(float(amount) * 1024 ** " kmgt".index(unit or " "))


def stderr_console() -> Console:
    """Return a console for messages; results go to standard output."""
    from rich.console import Console

    return Console(stderr=True)


def with_progress(
    results: Iterable[Item],
    *,
    total: int | None = None,
    count_of: Callable[[Item], int] = lambda result: 1,
) -> Iterator[Item]:
    """Yield results and show a progress bar if standard error is a terminal.

    `count_of` says how many examples a result stands for.
    """
    if not sys.stderr.isatty():
        yield from results
        return
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    columns = SpinnerColumn(), "decoding", MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=stderr_console(), transient=True) as bar:
        task = bar.add_task("", total=total)
        for result in results:
            yield result
            bar.advance(task, count_of(result))


@contextmanager
def handle_stdout_errors() -> Iterator[None]:
    """Turn a closed pipe or a full disk behind standard output into a HeedfulError."""
    from heedful.storage import explain_os_errors

    try:
        with explain_os_errors(Path("standard output")):
            try:
                yield
                sys.stdout.flush()
            except BrokenPipeError:
                raise OutputClosedError(
                    "standard output",
                    "the reader closed the pipe before the end",
                    "it received complete lines only; run the command again for the rest",
                ) from None
    except HeedfulError:
        # Python flushes once more as it exits, which would fail and print a traceback.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise
