"""`heedful report`: how a training went, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.options import RunFolder
from heedful.errors import RunError, did_you_mean

_CONFIG, _REPORT_FILE = "config.yaml", "report.html"


def report(
    run: RunFolder,
    *,
    open_browser: Annotated[bool, typer.Option("--open", help="open it in a browser, too")] = False,
) -> None:
    """Write a page about a training: curves, samples with attention, configuration, environment.

    It is one file, RUN/report.html, that asks nothing of the network. While a model is still being
    trained, give the command again for a newer page.

    Example: heedful report runs/demo
    """
    from heedful.inspection.run_report import read_json_lines, render_run_page
    from heedful.storage import write_text

    _check_is_run(run)
    text = render_run_page(
        run.resolve().name,
        (run / _CONFIG).read_text(encoding="utf-8", errors="replace"),
        read_json_lines(run / "metrics.jsonl"),
        read_json_lines(run / "samples.jsonl"),
    )
    page = run / _REPORT_FILE
    write_text(page, text)
    typer.echo(page)
    if open_browser:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            typer.echo("no browser was found here; open the file yourself", err=True)


def _check_is_run(folder: Path) -> None:
    if (folder / _CONFIG).exists():
        return
    beside = [path.parent.name for path in folder.parent.glob(f"*/{_CONFIG}")]
    problem = "not a run folder" if folder.exists() else "no such folder"
    raise RunError(
        str(folder),
        f"{problem}{did_you_mean(folder.name, beside)}",
        "name a folder written by `heedful train`",
    )
