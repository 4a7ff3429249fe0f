"""Commands for what comes with the package: `demo`, `recipes`, and the synthetic `data`."""

import json
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from heedful.errors import check
from heedful.terminal import Device, handle_stdout_errors, program_name, stderr_console

Format = Literal["tsv", "jsonl"]
DEMO_RECIPE = "latin-demo"
_DIGITS = "digits"
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


Images = Annotated[
    Path | None, Option(help="digits: take them from this idx file, as of MNIST, with its labels")
]
Canvas = Annotated[int | None, Option(min=1, help="digits: place each on a canvas of this size")]
Distractors = Annotated[int, Option(min=0, help="digits: patches of others on each canvas")]
OutputPrefix = Annotated[
    Path | None, Option("--output", "-o", help="digits: write PREFIX-images-idx3-ubyte.gz")
]


def data(
    name: Annotated[str | None, Argument(help="corpus to print")] = None,
    *,
    split: Annotated[str, Option(help="train, dev or test; latin also has names")] = "train",
    size: Annotated[
        int | None,
        Option(min=1, help="number of pairs or images", show_default="10, or all of --images"),
    ] = None,
    seed: Annotated[int, Option(help="random seed")] = 0,
    output_format: Annotated[Format, Option("--format", help="output format")] = "tsv",
    images: Images = None,
    canvas: Canvas = None,
    distractors: Distractors = 0,
    output: OutputPrefix = None,
) -> None:
    """List the synthetic corpora, print pairs of one, or write images of digits.

    The digits are drawn by heedful, or come from MNIST; on a larger canvas they become translated
    and, with distractors, cluttered MNIST.

    Example: heedful data latin --split test --size 5
    Example: heedful data dates --size 100000 --format jsonl > dates.jsonl
    Example: heedful data digits --size 100 --canvas 60 --distractors 4 -o cluttered
    """
    from heedful.data.synthetic import SYNTHETIC_CORPORA, get_corpus

    if name == _DIGITS:
        _write_digits(
            output, images, split=split, size=size, seed=seed, scene=(canvas, distractors)
        )
        return
    options = {"--images": images, "--canvas": canvas, "--distractors": distractors, "-o": output}
    for option, value in options.items():
        check(not value, option, f"has no effect on {name or 'the list'}", "leave it out")
    with handle_stdout_errors():
        if name is None:
            for corpus in SYNTHETIC_CORPORA.values():
                splits = ", ".join(corpus.splits)
                typer.echo(f"{corpus.name:<17}{corpus.description} ({splits})")
            typer.echo(f"{_DIGITS:<17}images of digits, written as idx files (train, dev, test)")
            return
        for pair in islice(get_corpus(name).pairs(split, seed=seed), size or 10):
            line = json.dumps(pair._asdict(), ensure_ascii=False)
            typer.echo(line if output_format == "jsonl" else f"{pair.source}\t{pair.target}")


def _write_digits(
    output: Path | None,
    images: Path | None,
    *,
    split: str,
    size: int | None,
    seed: int,
    scene: tuple[int | None, int],
) -> None:
    """Write digits, of a file or drawn, with their labels; on canvases if a size is given."""
    from heedful.data.idx_files import write_idx
    from heedful.data.labeled_images import IdxImagesConfig, render_scenes
    from heedful.data.sources import SourceConfig
    from heedful.data.synthetic.digits import BuiltInDigitsConfig

    canvas, distractors = scene
    check(output, "--output", "digits are written to files", "add -o PREFIX")
    hint = "add --canvas 60"
    check(canvas or not distractors, "--distractors", "works only with --canvas", hint)
    assert output is not None
    if images is None:
        source: SourceConfig = BuiltInDigitsConfig(split=split, num_examples=size or 10, seed=seed)
    else:
        source = IdxImagesConfig(path=str(images))
    examples = list(islice(source.stream(), size))
    pixels, labels = render_scenes(examples, canvas, distractors, seed=seed)
    for values, kind in ((pixels, "images-idx3-ubyte"), (labels, "labels-idx1-ubyte")):
        path = output.with_name(f"{output.name}-{kind}.gz")
        write_idx(path, values)
        typer.echo(f"wrote {path}", err=True)
