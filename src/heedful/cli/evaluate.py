"""`heedful evaluate`: how near a run's outputs are to references."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import Beam, Device, RunFolder, watched, writing_output
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.data.sources import PairSourceConfig
    from heedful.recipes import Recipe


def evaluate(
    run: RunFolder,
    *,
    source: Annotated[str | None, typer.Option(help="texts, one on a line")] = None,
    target: Annotated[str | None, typer.Option(help="references, line by line")] = None,
    beam: Beam = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    device: Device = "auto",
) -> None:
    """Translate a test set and measure it: exact match, BLEU, chrF, each with its signature.

    Without files, the recipe's own test set is used.

    Example: heedful evaluate runs/de-en --source test.de --target test.en
    """
    from heedful.evaluation.metrics import measure
    from heedful.runs import Run, load

    translator = load(run, device=device)
    chosen = _test_set(Run(run).read_recipe(), source, target)
    pairs = chosen.read()
    stream = translator.stream([pair.source for pair in pairs], beam=beam)
    outputs = [result.text for result in watched(stream, total=len(pairs))]
    metrics = measure(outputs, [pair.target for pair in pairs])
    with writing_output():
        if as_json:
            typer.echo(json.dumps([metric._asdict() for metric in metrics], indent=2))
            return
        typer.echo(f"{len(pairs)} pairs of {chosen.describe()}")
        for metric in metrics:
            typer.echo(f"{metric.name:<12} {metric.value:6.2f}   {metric.signature}")


def _test_set(recipe: Recipe, source: str | None, target: str | None) -> PairSourceConfig:
    from heedful.data.sources import FilesConfig

    if source and target:
        return FilesConfig(source=source, target=target)
    if source or target:
        raise ConfigError(
            "--source, --target", "only one of them is given", "give both files, or neither"
        )
    if recipe.data.test is None:
        raise ConfigError(
            "data.test",
            "the run's recipe names no test set",
            "give two files: --source FILE --target FILE",
        )
    return recipe.data.test
