"""`heedful average`: average the parameters of checkpoints or runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.errors import check


def average(
    runs: Annotated[list[Path], typer.Argument(help="folders written by `heedful train`")],
    *,
    output_dir: Annotated[Path, typer.Option(help="folder to write")],
    num_last: Annotated[
        int | None, typer.Option(min=1, help="average this many newest checkpoints of each run")
    ] = None,
    num_best: Annotated[
        int | None, typer.Option(min=1, help="average this many best checkpoints of each run")
    ] = None,
) -> None:
    """Write a run with the mean parameters of checkpoints, or of runs with equal initial ones.

    Example: heedful average runs/de-en --num-last 5 --output-dir runs/de-en-averaged

    Example: heedful average runs/tuned-1 runs/tuned-2 --output-dir runs/both
    """
    from heedful.experiment.checkpoint_averaging import average_checkpoints

    check(
        num_last is None or num_best is None,
        "--num-best",
        "given together with --num-last",
        "leave out one of the two",
    )
    members = average_checkpoints(runs, output_dir, num_last=num_last, num_best=num_best)
    for member in members:
        score = "" if member.score is None else f", score {member.score:.4f}"
        typer.echo(f"{member.folder} (step {member.step}{score})", err=True)
    typer.echo(f"{output_dir}: the mean of {len(members)} models")
