"""Commands for what comes with the package: `demo`, `recipes`, and the synthetic `data`."""

import json
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from heedful.terminal import Device, handle_stdout_errors, program_name, stderr_console

Format = Literal["tsv", "jsonl"]
DEMO_RECIPE = "latin-demo"
DEMO_SENTENCES = (
    "Caecilius est in horto.",
    "Ubi est Marcus?",
    "Puella servum in via videt.",
    "Servum bonum dominus non laudat.",
)


def demo(
    run: Annotated[Path, Option("--run", "-o", help="folder to write")] = Path("runs/demo"),
    device: Device = "auto",
) -> None:
    """Train a small Latin-English model, evaluate it, and draw its attention weights.

    Example: heedful demo
    """
    from heedful.cli.evaluate import evaluate
    from heedful.cli.show import print_attention, write_figures
    from heedful.experiment import train
    from heedful.recipes import load_recipe
    from heedful.runs import load

    console = stderr_console()
    console.print("Training a small Latin-English model from scratch.")
    result = train(load_recipe(DEMO_RECIPE), run, device=device, console=console)
    if not result.stop_reason:
        typer.echo(f"{run}: saved at step {result.step}; the same command resumes")
        return
    minutes = f"{int(result.seconds // 60)} min {int(result.seconds % 60)} s"
    typer.echo(f"\nTrained in {minutes}. On unseen Latin sentences:\n")
    evaluate(run, device=device)
    translations = load(run, device=device).translate(DEMO_SENTENCES)
    maps = [[translation.attention_map] for translation in translations]
    print_attention(maps)
    typer.echo("")
    write_figures(maps, svg=run / "alignment.svg", html=run / "alignments.html")
    hint = f'{program_name()} show {quote(str(run))} "Puella in horto ambulat."'
    typer.echo(f"\nTry: {hint}")


def recipes(
    name: Annotated[str | None, Argument(help="recipe or file to print, with all settings")] = None,
    schema: Annotated[
        bool, Option("--schema", help="print the JSON Schema of every setting")
    ] = False,
) -> None:
    """List the recipes, print one, or print the JSON Schema for editors.

    A printed recipe has all settings, with their help as comments. A file that begins with
    `extends: NAME` needs only the settings that it changes.

    Example: heedful recipes
    Example: heedful recipes reverse-tiny > mine.yaml
    """
    from heedful.config import to_commented_yaml
    from heedful.recipes import Recipe, load_recipe
    from heedful.recipes.recipe import recipe_groups

    with handle_stdout_errors():
        if schema:
            typer.echo(json.dumps(Recipe.model_json_schema(), indent=2))
            return
        if name:
            typer.echo(to_commented_yaml(load_recipe(name)), nl=False)
            return
        rows = [(system, ", ".join(variants)) for system, variants in recipe_groups()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for system, variants in rows:
            summary = load_recipe(system).info.summary
            typer.echo(f"{system:<{widths[0]}}  {variants:<{widths[1]}}  {summary}")
        typer.echo(
            "\nThe second column lists variants, as in bahdanau-2015-small. The recipe itself\n"
            "has the sizes of the paper; its small variant learns a synthetic corpus in minutes."
        )


def data(
    name: Annotated[str | None, Argument(help="corpus to print")] = None,
    *,
    split: Annotated[str, Option(help="train, dev or test; latin also has names")] = "train",
    size: Annotated[int, Option(min=1, help="number of pairs")] = 10,
    seed: Annotated[int, Option(help="random seed")] = 0,
    output_format: Annotated[Format, Option("--format", help="output format")] = "tsv",
) -> None:
    """List the synthetic corpora, or print pairs of one.

    Example: heedful data latin --split test --size 5
    Example: heedful data dates --size 100000 --format jsonl > dates.jsonl
    """
    from heedful.data.synthetic import SYNTHETIC_CORPORA, get_corpus

    with handle_stdout_errors():
        if name is None:
            for corpus in SYNTHETIC_CORPORA.values():
                splits = ", ".join(corpus.splits)
                typer.echo(f"{corpus.name:<17}{corpus.description} ({splits})")
            return
        for pair in islice(get_corpus(name).pairs(split, seed=seed), size):
            line = json.dumps(pair._asdict(), ensure_ascii=False)
            typer.echo(line if output_format == "jsonl" else f"{pair.source}\t{pair.target}")
