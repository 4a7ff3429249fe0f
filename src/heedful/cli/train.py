"""`heedful train`: train a recipe into a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from heedful.cli.options import (
    DEFAULT_RECIPE,
    Device,
    Overrides,
    RecipeName,
    file_overrides,
    parse_bytes,
    program_name,
    stderr_console,
    with_file_options,
)
from heedful.tasks.file_options import Files, Split


class TrackerName(StrEnum):
    """Experiment trackers."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"


@with_file_options("train", "dev")
def train(
    recipe: RecipeName = DEFAULT_RECIPE,
    *,
    files: Mapping[Split, Files],
    run: Annotated[
        Path | None, typer.Option(help="folder to write", show_default="runs/RECIPE")
    ] = None,
    overrides: Overrides = None,
    device: Device = "auto",
    report_to: Annotated[
        list[TrackerName] | None, typer.Option(help="also log to this tracker; repeatable")
    ] = None,
    auto_find_batch_size: Annotated[
        bool,
        typer.Option("--auto-find-batch-size", help="use the largest batch that fits in memory"),
    ] = False,
    memory_limit: Annotated[
        str | None, typer.Option(help="memory for --auto-find-batch-size, such as 4GiB")
    ] = None,
) -> None:
    """Train a model. The same command resumes an interrupted run.

    Ctrl-C, SIGTERM or SIGUSR1 saves a checkpoint and exits with code 0, or 143 if saving failed.
    Too many non-finite losses in a row exit with code 3. To train a finished run further, raise
    its limit: --set training.max_steps=N.

    Example: heedful train --source train.de --target train.en --run runs/de-en

    Example: heedful train reverse-tiny --set model.decoder.attention.score.type=dot

    Example: torchrun --nproc-per-node 2 -m -- heedful train latin-demo --run runs/both
    """
    from heedful.experiment import train as train_into
    from heedful.recipes import load_recipe
    from heedful.training.distributed import is_rank_zero

    config = load_recipe(recipe, [*file_overrides(files), *(overrides or [])])
    folder = run or Path("runs") / Path(recipe).stem
    result = train_into(
        config,
        folder,
        device=device,
        console=stderr_console(),
        report_to=[tracker.value for tracker in report_to or []],
        auto_find_batch_size=auto_find_batch_size or memory_limit is not None,
        memory_limit=None if memory_limit is None else parse_bytes(memory_limit),
    )
    if not is_rank_zero():
        return
    if result.stop_reason:
        next_command = config.task.next_command.format(run=quote(str(folder)))
        typer.echo(f"{folder}: {result.stop_reason}; try: {program_name()} {next_command}")
    else:
        typer.echo(f"{folder}: saved at step {result.step}; the same command resumes")
