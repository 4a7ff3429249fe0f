"""`heedful train`: from a recipe, and files if it names none, to a run folder."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import (
    DEFAULT_RECIPE,
    Device,
    DevSourceFile,
    DevTargetFile,
    DevTextFile,
    Overrides,
    RecipeName,
    SourceFile,
    TargetFile,
    TextFile,
    file_overrides,
    parse_bytes,
    program_name,
    stderr_console,
)

if TYPE_CHECKING:
    from heedful.experiment import TrainingResult
    from heedful.recipes import Recipe


class TrackerName(StrEnum):
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
    overrides: Overrides = None,
    device: Device = "auto",
    report_to: Annotated[
        list[TrackerName] | None,
        typer.Option("--report-to", help="also tell this tracker; repeatable"),
    ] = None,
    auto_find_batch_size: Annotated[
        bool,
        typer.Option("--auto-find-batch-size", help="find the largest batch that fits in memory"),
    ] = False,
    memory_limit: Annotated[
        str | None, typer.Option(help="memory that --auto-find-batch-size may fill, such as 4GiB")
    ] = None,
) -> None:
    """Train a model. The same command goes on where it was interrupted.

    Ctrl-C, SIGTERM or SIGUSR1 saves and ends with code 0, or 143 if the work could not be saved.
    A loss that is no number, many steps in a row, ends it with code 3. A run that is over goes on
    with more: --set training.max_steps=N.

    Example: heedful train --source train.de --target train.en --run runs/de-en

    Example: heedful train reverse-tiny --set model.decoder.attention.score.type=dot

    Example: torchrun --nproc-per-node 2 -m -- heedful train latin-demo --run runs/both
    """
    from heedful.experiment import train as train_into
    from heedful.recipes import load_recipe
    from heedful.training.process_group import is_rank_zero

    files = file_overrides(
        source=source,
        target=target,
        dev_source=dev_source,
        dev_target=dev_target,
        text=text,
        dev_text=dev_text,
    )
    chosen = load_recipe(recipe, [*files, *(overrides or [])])
    folder = run or Path("runs") / Path(recipe).stem
    outcome = train_into(
        chosen,
        folder,
        device=device,
        console=stderr_console(),
        report_to=[each.value for each in report_to or []],
        auto_find_batch_size=auto_find_batch_size or memory_limit is not None,
        memory_limit=None if memory_limit is None else parse_bytes(memory_limit),
    )
    if is_rank_zero():
        _print_outcome(outcome, folder, chosen)


def _print_outcome(outcome: TrainingResult, folder: Path, recipe: Recipe) -> None:
    uses = {"language-model": "generate {}", "masked-language-model": "evaluate {} FILE"}
    if outcome.stop_reason:
        use = uses.get(recipe.model.type, "translate {} FILE").format(quote(str(folder)))
        typer.echo(f"{folder}: {outcome.stop_reason}; try: {program_name()} {use}")
    else:
        typer.echo(f"{folder}: saved at step {outcome.step}; the same command goes on")
