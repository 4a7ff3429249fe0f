"""`heedful bench`: where the time of training goes."""

import json
from typing import Annotated

import typer
from typer import Option

from heedful.terminal import (
    AsJSON,
    Device,
    Overrides,
    RunFolder,
    handle_stdout_errors,
    stderr_console,
)

NumSteps = Annotated[int, Option(min=1, help="steps to measure, after as many for warm-up")]


def bench(
    run: RunFolder,
    *,
    steps: NumSteps = 20,
    overrides: Overrides = None,
    device: Device = "auto",
    as_json: AsJSON = False,
) -> None:
    """Show where the time of training goes, and what would help; the run stays as it is.

    A step waits for its batch (data), computes (kernels), and spends the rest on launching and
    Python (host). Try other settings with --set.

    Example: heedful bench runs/de-en
    Example: heedful bench runs/de-en --set training.precision=bf16 --steps 100
    """
    from heedful.experiment.bench import format_profile, profile_training, suggest_changes
    from heedful.runs import Run, resolve_device

    folder, local_device = Run(run), resolve_device(device)
    recipe = folder.read_recipe(overrides or ())
    result = profile_training(
        recipe, folder, device=local_device, num_steps=steps, console=stderr_console()
    )
    with handle_stdout_errors():
        if as_json:
            advice = suggest_changes(result, recipe.training, local_device)
            speed = {"targets_per_second": result.targets_per_second, "shares": result.shares}
            typer.echo(json.dumps({**result._asdict(), **speed, "advice": advice}, indent=2))
            return
        for line in format_profile(result, recipe, local_device):
            typer.echo(line)
