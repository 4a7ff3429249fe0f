"""`heedful demo`: the whole of heedful in a few minutes."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from heedful.cli.options import Device, program_name, stderr_console

RECIPE = "latin-demo"
DEMO_SENTENCES = (
    "Caecilius est in horto.",
    "Ubi est Marcus?",
    "Puella servum in via videt.",
    "Servum bonum dominus non laudat.",
)


def demo(
    run: Annotated[Path, typer.Option(help="folder to write")] = Path("runs/demo"),
    device: Device = "auto",
) -> None:
    """Train the built-in Latin-English model, translate with it, draw where it looked.

    Example: heedful demo
    """
    from heedful.cli.evaluate import evaluate
    from heedful.cli.show import print_attention, write_figures
    from heedful.experiment import train
    from heedful.recipes import load_recipe
    from heedful.runs import load_translator

    console = stderr_console()
    console.print("Training a small Latin-English model; it starts knowing nothing.")
    outcome = train(load_recipe(RECIPE), run, device=device, console=console)
    if not outcome.stop_reason:
        typer.echo(f"{run}: saved at step {outcome.step}; the same command goes on")
        return
    minutes = f"{int(outcome.seconds // 60)} min {int(outcome.seconds % 60)} s"
    typer.echo(f"\nTrained in {minutes}. On Latin sentences it has never seen:\n")
    evaluate(run, device=device)
    results = load_translator(run, device=device).translate(DEMO_SENTENCES)
    print_attention(results)
    typer.echo("")
    write_figures(results, svg=run / "alignment.svg", html=run / "alignments.html")
    hint = f'{program_name()} show {quote(str(run))} "Puella in horto ambulat."'
    typer.echo(f"\nYour turn: {hint}")
