"""`heedful demo`: train, evaluate, translate and draw in a few minutes."""

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
    """Train a small Latin-English model, evaluate it, and draw its attention weights.

    Example: heedful demo
    """
    from heedful.cli.evaluate import evaluate
    from heedful.cli.show import print_attention, write_figures
    from heedful.experiment import train
    from heedful.recipes import load_recipe
    from heedful.runs import load_translator

    console = stderr_console()
    console.print("Training a small Latin-English model from scratch.")
    result = train(load_recipe(RECIPE), run, device=device, console=console)
    if not result.stop_reason:
        typer.echo(f"{run}: saved at step {result.step}; the same command resumes")
        return
    minutes = f"{int(result.seconds // 60)} min {int(result.seconds % 60)} s"
    typer.echo(f"\nTrained in {minutes}. On unseen Latin sentences:\n")
    evaluate(run, device=device)
    translations = load_translator(run, device=device).translate(DEMO_SENTENCES)
    print_attention(translations)
    typer.echo("")
    write_figures(translations, svg=run / "alignment.svg", html=run / "alignments.html")
    hint = f'{program_name()} show {quote(str(run))} "Puella in horto ambulat."'
    typer.echo(f"\nTry: {hint}")
