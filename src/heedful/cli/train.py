"""`heedful train`: from a recipe, and files if it names none, to a run folder."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.given import (
    DEFAULT_RECIPE,
    DevSourceFile,
    DevTargetFile,
    DevTextFile,
    RecipeName,
    SourceFile,
    TargetFile,
    TextFile,
    given_files,
)
from heedful.cli.options import Device, Settings, command, parse_bytes, stderr_console

if TYPE_CHECKING:
    from heedful.experiment import Outcome
    from heedful.recipes import Recipe


class Tracker(StrEnum):
    """Where else a run can be looked at."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"


def train(
    recipe: RecipeName = DEFAULT_RECIPE,
    *,
    source: SourceFile = None,
    target: TargetFile = None,
    dev_source: DevSourceFile = None,
    dev_target: DevTargetFile = None,
    text: TextFile = None,
    dev_text: DevTextFile = None,
    run: Annotated[
        Path | None, typer.Option(help="folder to write", show_default="runs/RECIPE")
    ] = None,
    settings: Settings = None,
    device: Device = "auto",
    track: Annotated[
        list[Tracker] | None, typer.Option(help="also tell this tracker; repeatable")
    ] = None,
    memory_fit: Annotated[
        bool, typer.Option("--memory-fit", help="find the largest batch that fits in memory")
    ] = False,
    memory_limit: Annotated[
        str | None, typer.Option(help="memory that --memory-fit may fill, such as 4GiB")
    ] = None,
) -> None:
    """Train a model. The same command goes on where it was interrupted.

    Ctrl-C, SIGTERM or SIGUSR1 saves and ends with code 0, or 143 if the work could not be saved.
    A loss that is no number, many steps in a row, ends it with code 3. A run that is over goes on
    with more: --set training.max_steps=N.

    Example: heedful train --source train.de --target train.en --run runs/de-en

    Example: heedful train reverse-tiny --set model.decoder.attention.score.kind=dot

    Example: torchrun --nproc-per-node 2 -m -- heedful train latin-demo --run runs/both
    """
    from heedful.experiment import train as train_into
    from heedful.recipes import load_recipe
    from heedful.training.distributed import is_first_rank

    files = given_files(
        source=source,
        target=target,
        dev_source=dev_source,
        dev_target=dev_target,
        text=text,
        dev_text=dev_text,
    )
    chosen = load_recipe(recipe, [*files, *(settings or [])])
    folder = run or Path("runs") / Path(recipe).stem
    outcome = train_into(
        chosen,
        folder,
        device=device,
        console=stderr_console(),
        track=[each.value for each in track or []],
        memory_fit=memory_fit or memory_limit is not None,
        memory_limit=None if memory_limit is None else parse_bytes(memory_limit),
    )
    if is_first_rank():
        _say(outcome, folder, chosen)


def _say(outcome: Outcome, folder: Path, recipe: Recipe) -> None:
    uses = {"language-model": "generate {}", "masked-language-model": "evaluate {} FILE"}
    if outcome.ended:
        use = uses.get(recipe.model.kind, "translate {} FILE").format(quote(str(folder)))
        typer.echo(f"{folder}: {outcome.ended}; try: {command()} {use}")
    else:
        typer.echo(f"{folder}: saved at step {outcome.step}; the same command goes on")
