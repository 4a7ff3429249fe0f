"""`heedful report`: the report of a training run."""

from __future__ import annotations

from typing import Annotated

import typer

from heedful.cli.options import RunFolder

_CONFIG, _REPORT_FILE = "config.yaml", "report.html"


def report(
    run: RunFolder,
    *,
    open_browser: Annotated[
        bool, typer.Option("--open", help="open the page in a browser")
    ] = False,
) -> None:
    """Write RUN/report.html: curves, samples with attention, configuration, environment.

    The page is one file that makes no network requests. During training, run the command again to
    update it.

    Example: heedful report runs/demo
    """
    from heedful.evaluation.registry import VALIDATION_METRICS
    from heedful.inspection.run_report import render_run_page
    from heedful.inspection.training_curves import read_json_lines
    from heedful.storage import require_folder, write_text

    require_folder(run, "run folder", "name a folder written by `heedful train`", marker=_CONFIG)
    text = render_run_page(
        run.resolve().name,
        (run / _CONFIG).read_text(encoding="utf-8", errors="replace"),
        read_json_lines(run / "metrics.jsonl"),
        read_json_lines(run / "samples.jsonl"),
        metrics=VALIDATION_METRICS,
    )
    page = run / _REPORT_FILE
    write_text(page, text)
    typer.echo(page)
    if open_browser:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            typer.echo("no browser found; open the file yourself", err=True)
