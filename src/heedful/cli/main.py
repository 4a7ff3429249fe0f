"""The command `heedful`: its subcommands, and how it fails.

Exit codes: 0 done, or interrupted and saved; 1 failed; 2 the user can mend it; 3 training met too
many losses in a row that are no numbers; 130 interrupted where there was nothing to save; 143
interrupted and not saved. Errors that heedful raises on purpose are printed without a traceback.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from heedful.cli.average import average
from heedful.cli.compare import compare
from heedful.cli.data import data
from heedful.cli.demo import demo
from heedful.cli.evaluate import evaluate
from heedful.cli.generate import generate
from heedful.cli.prepare import prepare
from heedful.cli.recipes import recipes
from heedful.cli.report import report
from heedful.cli.show import show
from heedful.cli.train import train
from heedful.cli.translate import translate
from heedful.errors import HeedfulError

app = typer.Typer(
    help="Sequence models that show where they look: train, decode and explain them.",
    epilog="A first look, in a few minutes: heedful demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    demo,
    train,
    translate,
    generate,
    evaluate,
    compare,
    show,
    report,
    average,
    prepare,
    recipes,
    data,
):
    app.command()(command)


def _print_version(requested: bool) -> None:
    if requested:
        from heedful.version import VERSION

        typer.echo(f"heedful {VERSION}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: bool = typer.Option(
        False, "--version", help="say the version", callback=_print_version, is_eager=True
    ),
) -> None:
    del version


def main() -> None:
    """Run a command; turn what went wrong into a message and an exit code."""
    # Threads that wait must sleep, not spin, or one other busy process on a machine of two cores
    # slows training several times (docs/decisions/0006). Torch reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except HeedfulError as error:
        typer.echo(f"heedful: {error}", err=True)
        _exit_process(error.exit_code)
    except SystemExit as ending:
        _exit_process(ending.code)


def _exit_process(code: str | int | None) -> NoReturn:
    """End this process; one of several ranks without letting Python take itself apart.

    Threads of gloo may still hold tensors then, and letting go of them too late aborts a process
    that has done all it had to (pytorch pull request 179291).
    """
    if isinstance(code, int) and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
