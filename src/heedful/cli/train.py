"""`heedful train`: from a recipe or two files to a run folder."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import Device, Settings, command, stderr_console
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.experiment import Outcome

DEFAULT_RECIPE = "default"


def train(
    recipe: Annotated[
        str, typer.Argument(help="a recipe's name (see `heedful recipes`) or a .yaml file")
    ] = DEFAULT_RECIPE,
    *,
    source: Annotated[
        str | None, typer.Option(help="texts to read, one on a line; .gz and .xz too")
    ] = None,
    target: Annotated[str | None, typer.Option(help="texts to write, line by line")] = None,
    dev_source: Annotated[
        str | None, typer.Option(help="texts to validate on; else some are held out")
    ] = None,
    dev_target: Annotated[str | None, typer.Option(help="what should become of them")] = None,
    run: Annotated[
        Path | None, typer.Option(help="folder to write", show_default="runs/RECIPE")
    ] = None,
    settings: Settings = None,
    device: Device = "auto",
) -> None:
    """Train a model. The same command goes on where it was interrupted.

    Example: heedful train --source train.de --target train.en --run runs/de-en

    Example: heedful train reverse-tiny --set model.decoder.attention.score.kind=dot
    """
    from heedful.experiment import train as train_into
    from heedful.recipes import load_recipe

    files = _files("train", source, target) + _files("dev", dev_source, dev_target)
    chosen = load_recipe(recipe, [*files, *(settings or [])])
    folder = run or Path("runs") / Path(recipe).stem
    outcome = train_into(chosen, folder, device=device, console=stderr_console())
    _say(outcome, folder)


def _files(split: str, source: str | None, target: str | None) -> list[str]:
    """Two files as overrides of a recipe."""
    import json

    if source is None and target is None:
        return []
    if source is None or target is None:
        prefix = "--" if split == "train" else f"--{split}-"
        given, missing = ("source", "target") if target is None else ("target", "source")
        raise ConfigError(
            f"{prefix}{given}",
            f"given without {prefix}{missing}",
            f"add {prefix}{missing} FILE, whose lines belong to these",
        )
    names = {"kind": "files", "source": source, "target": target}
    return [f"data.{split}={json.dumps(names)}"]


def _say(outcome: Outcome, folder: Path) -> None:
    if outcome.ended:
        hint = f"{command()} translate {quote(str(folder))} FILE"
        typer.echo(f"{folder}: {outcome.ended}; try: {hint}")
    else:
        typer.echo(f"{folder}: saved at step {outcome.step}; the same command goes on")
