"""`heedful bench`: where the time of training goes."""

import json
from typing import Annotated

from typer import Option

from heedful.terminal import (
    AsJSON,
    Device,
    Overrides,
    RunFolder,
    echo,
    handle_stdout_errors,
    stderr_console,
)

Seconds = Annotated[float, Option(min=0.1, help="time to warm up and measure")]


def bench(
    run: RunFolder,
    *,
    seconds: Seconds = 30.0,
    overrides: Overrides = None,
    device: Device = "auto",
    as_json: AsJSON = False,
) -> None:
    """Show where the time of training goes, and what would help; the run stays as it is.

    A step waits for its batch (data), computes (kernels), and spends the rest on launching and
    Python (host). Steps are measured after one of each batch shape has warmed up. Try other
    settings with --set.

    Example: heedful bench runs/de-en
    Example: heedful bench runs/de-en --set training.precision=bf16 --seconds 60
    """
    from heedful.experiment.bench import format_profile, profile_training, suggest_changes
    from heedful.runs import Run, resolve_device

    folder, local_device = Run(run), resolve_device(device)
    recipe = folder.read_recipe(overrides or ())
    result = profile_training(
        recipe, folder, device=local_device, seconds=seconds, console=stderr_console()
    )
    with handle_stdout_errors():
        if as_json:
            steps = {**result.steps._asdict(), "shares": result.steps.shares}
            fields = {
                "targets_per_second": result.steps.targets_per_second,
                **result._asdict(),
                "steps": steps,
                "shapes": result.shapes._asdict(),
                "advice": suggest_changes(result, recipe.training, local_device),
            }
            echo(json.dumps(fields, indent=2))
            return
        for line in format_profile(result, recipe, local_device):
            echo(line)
