"""`heedful report`: how a training went, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.options import RunFolder
from heedful.errors import RunError, did_you_mean

_CONFIG, _PAGE = "config.yaml", "report.html"


def report(
    run: RunFolder,
    *,
    open_it: Annotated[bool, typer.Option("--open", help="open it in a browser, too")] = False,
) -> None:
    """Write a page about a training: curves, samples with attention, configuration, environment.

    It is one file, RUN/report.html, that asks nothing of the network. While a model is still being
    trained, give the command again for a newer page.

    Example: heedful report runs/demo
    """
    from heedful.inspection.run_page import draw_run, read_lines
    from heedful.storage import write_text

    _refuse_other_folders(run)
    text = draw_run(
        run.resolve().name,
        (run / _CONFIG).read_text(encoding="utf-8", errors="replace"),
        read_lines(run / "metrics.jsonl"),
        read_lines(run / "samples.jsonl"),
    )
    page = run / _PAGE
    write_text(page, text)
    typer.echo(page)
    if open_it:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            typer.echo("no browser was found here; open the file yourself", err=True)


def _refuse_other_folders(folder: Path) -> None:
    if (folder / _CONFIG).exists():
        return
    beside = [path.parent.name for path in folder.parent.glob(f"*/{_CONFIG}")]
    problem = "not a run folder" if folder.exists() else "no such folder"
    raise RunError(
        str(folder),
        f"{problem}{did_you_mean(folder.name, beside)}",
        "name a folder written by `heedful train`",
    )
