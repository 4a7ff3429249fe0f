"""The command `demo`: train a recipe that needs no files, evaluate it, and draw its attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from typer import Argument, Option

from heedful.errors import format_count
from heedful.terminal import Device, echo, program_name, save_text, stderr_console

if TYPE_CHECKING:
    from heedful.tasks.captioning.predictor import Caption
    from heedful.training.config import TrainingConfig
    from heedful.training.state import TrainingResult

DemoName = Literal["latin", "icons", "formulas"]
LATIN_SENTENCES = (
    "Caecilius est in horto.",
    "Ubi est Marcus?",
    "Puella servum in via videt.",
    "Servum bonum dominus non laudat.",
)
NUM_CAPTIONS_ON_PAGE = 40
NUM_CAPTIONS_SHOWN = 3


class Demo(NamedTuple):
    """A recipe, and the results to show after training."""

    recipe: str
    run: Path
    introduction: str
    items: str
    """What is exactly right or not, of the dev and test data."""
    duration: str
    """Of training on two CPU cores."""
    results: str
    """What the scores are of."""
    show_results: Callable[[Path, str], str]
    """Print scores and attention of a run on a device; return a command to try."""


def demo(
    name: Annotated[
        DemoName, Argument(help="translate Latin, name icons, or read images of formulas")
    ] = "latin",
    run: Annotated[
        Path | None,
        Option(
            "--run", "-o", help="folder to write", show_default="runs/demo, runs/demo-icons ..."
        ),
    ] = None,
    minutes: Annotated[
        float | None, Option(help="train for at most this long", show_default="the recipe's")
    ] = None,
    device: Device = "auto",
) -> None:
    """Train a small model from scratch, evaluate it, and draw its attention weights.

    `latin` translates sentences into English. `icons` names small images whose combination of
    words is new. `formulas` reads images of formulas back as LaTeX; it needs matplotlib
    (pip install 'heedful[plot]'). Each trains until most of its dev data is exactly right: a minute
    or some on two CPU cores, longer on a slow or busy machine. The same command resumes.

    Example: heedful demo
    Example: heedful demo icons
    Example: heedful demo --minutes 30
    """
    from heedful.experiment import train
    from heedful.recipes import load_recipe

    chosen, console = DEMOS[name], stderr_console()
    folder = run or chosen.run
    settings = {} if minutes is None else {"training.max_minutes": minutes}
    recipe = load_recipe(chosen.recipe, settings)
    console.print(chosen.introduction)
    console.print(describe_goal(chosen, recipe.training))
    result = train(recipe, folder, device=device, console=console)
    if not result.stop_reason:
        echo(f"{folder}: saved at step {result.step}; the same command resumes")
        return
    options = {"--run": run, "--device": device if device != "auto" else None}
    chosen_options = [f" {name} {quote(str(value))}" for name, value in options.items() if value]
    echo("\n" + describe_result(chosen, recipe.training, result, "".join(chosen_options)))
    echo(f"\n{chosen.results}:\n")
    hint = chosen.show_results(folder, device)
    echo(f"\nTry: {program_name()} {hint}")


def describe_goal(demo: Demo, training: TrainingConfig) -> str:
    """Return when training will stop."""
    goal = f"It stops when {training.target_score:g} % of unseen {demo.items} are exactly right"
    limit = f"{training.max_minutes:g} minutes at most"
    return f"{goal}: {demo.duration} on two CPU cores, {limit}."


def describe_result(
    demo: Demo, training: TrainingConfig, result: TrainingResult, options: str = ""
) -> str:
    """Return how far training came, and how to continue if time ran out before the target.

    `options` are those of the command that train the same run again.
    """
    score, target, limit = -result.best_score, training.target_score, training.max_minutes
    assert target is not None
    assert limit is not None
    minutes = f"{int(result.seconds // 60)} min {int(result.seconds % 60)} s"
    trained = f"Trained for {minutes}, {format_count(result.step, 'step')}: "
    trained += f"{score:.1f} % of unseen {demo.items} are exactly right."
    if score >= target or "max_minutes" not in result.stop_reason:
        return trained
    command = f"{program_name()} demo {next(name for name in DEMOS if DEMOS[name] is demo)}"
    return (
        f"{trained}\nTime ran out before the target of {target:g} %: this machine is slow or busy, "
        f"so what follows may be wrong.\n"
        f"To train it further: {command}{options} --minutes {2 * limit:g}"
    )


def _show_translations(run: Path, device: str) -> str:
    from heedful.cli.evaluate import evaluate
    from heedful.cli.show import print_attention, write_files
    from heedful.runs import load

    evaluate(run, device=device)
    translations = list(load(run, device=device).predict(LATIN_SENTENCES))
    maps = [[translation.attention_map] for translation in translations]
    print_attention(maps)
    echo("")
    write_files(maps, figures=[run / "alignment.svg"], html=run / "alignments.html")
    return f'show {quote(str(run))} "Puella in horto ambulat."'


# ----- captions


def _show_icons(run: Path, device: str) -> str:
    captions, references = _caption_test_set(run, device)
    _print_scores(captions, references, "words of the name")
    for line in format_modifier_attention(captions, references):
        echo(line)
    _draw_captions(run, captions, references)
    return f"data icons --split test -o icons; {program_name()} caption {quote(str(run))} icons"


def _show_formulas(run: Path, device: str) -> str:
    captions, references = _caption_test_set(run, device)
    _print_scores(captions, references, "LaTeX tokens", bin_width=5)
    _draw_captions(run, captions, references)
    images = f"data formulas --split test -o formulas; {program_name()}"
    return f"{images} caption {quote(str(run))} formulas"


def _caption_test_set(run: Path, device: str) -> tuple[list[Caption], list[str]]:
    """Caption the test images of the recipe."""
    from heedful.runs import Run, load

    config = Run(run).read_recipe()
    examples = config.task.data.read_examples(config.data.test)
    captioner: Any = load(run, device=device, task="captioning")
    captions = list(captioner.predict(example.source for example in examples))
    return captions, [example.target for example in examples]


def _print_scores(
    captions: Sequence[Caption], references: Sequence[str], title: str, *, bin_width: int = 1
) -> None:
    """Print how many captions are exactly right, by their number of words."""
    from heedful.evaluation.breakdowns import LengthBreakdown
    from heedful.evaluation.registry import METRICS
    from heedful.evaluation.score_table import format_entries, format_group_table, score_outputs

    metric, outputs = METRICS["exact-match"], [caption.text for caption in captions]
    entry = score_outputs(metric, outputs, references)
    groups = LengthBreakdown(references, bin_width).score_groups(metric, outputs, references)
    entry = entry._replace(groups=groups)
    for line in [*format_entries([entry]), "", *format_group_table(title, "images", [entry])]:
        echo(line)


def format_modifier_attention(
    captions: Sequence[Caption], references: Sequence[str]
) -> Iterator[str]:
    """Yield lines on how much attention falls on the modifiers of icons named correctly."""
    import numpy as np

    from heedful.data.synthetic.icons import modifier_region, split_style

    shares: list[tuple[float, float, float]] = []
    for caption, reference in zip(captions, references, strict=True):
        region = modifier_region(reference)
        words, _ = split_style(tuple(reference.split()))
        if region is None or caption.text != reference or len(words) < 2:
            continue
        rows, columns = caption.grid
        cells = region.reshape(rows, region.shape[0] // rows, columns, -1).mean(axis=(1, 3))
        attention = (caption.attention.weights * cells).sum(axis=(1, 2))
        modifier = len(words) - 1
        shares.append((region.mean(), attention[:modifier].mean(), attention[modifier]))
    if shares:
        area, others, modifier = np.mean(shares, axis=0)
        icons = format_count(len(shares), "icon")
        yield f"\nAttention on the modifier, in {icons} known without it, too:\n"
        yield f"  word of the modifier  {modifier:4.0%}"
        yield f"  words before it       {others:4.0%}"
        yield f"  its share of pixels   {area:4.0%}"


def _draw_captions(run: Path, captions: Sequence[Caption], references: Sequence[str]) -> None:
    """Print some captions with their attention, and write a page and a figure."""
    from rich.console import Console

    from heedful.inspection.figures import render_captions

    step = max(1, len(captions) // NUM_CAPTIONS_ON_PAGE)
    chosen = list(zip(captions, references, strict=True))[::step][:NUM_CAPTIONS_ON_PAGE]
    attentions = [replace(caption.attention, title=name) for caption, name in chosen]
    for attention in attentions[:NUM_CAPTIONS_SHOWN]:
        echo("")
        attention.to_terminal(Console())
    page = render_captions(attentions, title="Captions of unseen images")
    save_text(run / "caption.svg", attentions[0].to_svg())
    save_text(run / "captions.html", page)


DEMOS: dict[DemoName, Demo] = {
    "latin": Demo(
        "latin-demo",
        Path("runs/demo"),
        "Training a small Latin-English model from scratch.",
        "sentences",
        "one to two minutes",
        "On unseen Latin sentences",
        _show_translations,
    ),
    "icons": Demo(
        "icons-demo",
        Path("runs/demo-icons"),
        "Training a small model from scratch that names icons, such as 'airplane clock'.",
        "icons",
        "some minutes",
        "On icons whose combination of words is new",
        _show_icons,
    ),
    "formulas": Demo(
        "formula-reader-demo",
        Path("runs/demo-formulas"),
        "Drawing formulas, and training a small model from scratch that reads them as LaTeX.",
        "formulas",
        "some minutes",
        "On unseen formulas",
        _show_formulas,
    ),
}
