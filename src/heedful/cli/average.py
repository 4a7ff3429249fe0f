"""`heedful average`: one model from several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.errors import ConfigError


def average(
    runs: Annotated[list[Path], typer.Argument(help="folders written by `heedful train`")],
    *,
    output_dir: Annotated[Path, typer.Option("--output-dir", help="folder to write")],
    num_last: Annotated[
        int | None, typer.Option(min=1, help="take this many of the newest checkpoints of each")
    ] = None,
    num_best: Annotated[
        int | None, typer.Option(min=1, help="take this many checkpoints with the best scores")
    ] = None,
) -> None:
    """Write a run whose weights are the mean of checkpoints, or of runs that began alike.

    Example: heedful average runs/de-en --num-last 5 --output-dir runs/de-en-averaged

    Example: heedful average runs/tuned-1 runs/tuned-2 --output-dir runs/both
    """
    from heedful.experiment.checkpoint_averaging import average_checkpoints as average_into

    if num_last is not None and num_best is not None:
        raise ConfigError(
            "--num-best", "given together with --num-last", "leave out one of the two"
        )
    members = average_into(runs, output_dir, num_last=num_last, num_best=num_best)
    for member in members:
        score = "" if member.score is None else f", score {member.score:.4f}"
        typer.echo(f"{member.folder} (step {member.step}{score})", err=True)
    typer.echo(f"{output_dir}: the mean of {len(members)} models")
