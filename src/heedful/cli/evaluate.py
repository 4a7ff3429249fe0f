"""`heedful evaluate`: how near a run's outputs are to references, or how a text surprises it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.options import Beam, Device, RunFolder, watched, writing_output
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heedful.evaluation.metrics import Metric
    from heedful.recipes import Recipe


def evaluate(
    run: RunFolder,
    file: Annotated[
        str | None, typer.Argument(help="running text, to measure a language model on")
    ] = None,
    *,
    source: Annotated[str | None, typer.Option(help="texts, one on a line")] = None,
    target: Annotated[str | None, typer.Option(help="references, line by line")] = None,
    beam: Beam = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    device: Device = "auto",
) -> None:
    """Translate a test set and measure it: exact match, BLEU, chrF, each with its signature.

    Of a language model: perplexity per token, word (parted by white space) and character (line
    ends counted), each token predicted from at least half a context of text before it. Of a masked
    one: how well it finds tokens that are hidden, always the same.

    Without files, the recipe's own test set is used.

    Example: heedful evaluate runs/de-en --source test.de --target test.en

    Example: heedful evaluate runs/shakespeare test.txt
    """
    from heedful.runs import Run, load
    from heedful.translator import Translator

    loaded = load(run, device=device)
    chosen = _test_set(Run(run).read_recipe(), file, source, target)
    examples: list[Any] = chosen.read()
    if isinstance(loaded, Translator):
        from heedful.evaluation.metrics import measure

        stream = loaded.stream([pair.source for pair in examples], beam=beam)
        outputs = [result.text for result in watched(stream, total=len(examples))]
        metrics = measure(outputs, [pair.target for pair in examples])
        _print(metrics, f"{len(examples)} pairs of {chosen.describe()}", as_json)
        return
    metrics = loaded.measure(examples)
    _print(metrics, f"{len(examples)} lines of {chosen.describe()}", as_json, digits=4)


def _print(metrics: Sequence[Metric], title: str, as_json: bool, *, digits: int = 2) -> None:
    width = max(12, *(len(metric.name) for metric in metrics))
    with writing_output():
        if as_json:
            typer.echo(json.dumps([metric._asdict() for metric in metrics], indent=2))
            return
        typer.echo(title)
        for name, value, signature in metrics:
            typer.echo(f"{name:<{width}} {value:{digits + 4}.{digits}f}   {signature}")


def _test_set(recipe: Recipe, file: str | None, source: str | None, target: str | None) -> Any:
    from heedful.data.sources import FilesConfig
    from heedful.data.text_sources import TextFilesConfig

    if recipe.is_of_text and (source or target):
        raise ConfigError(
            "--source, --target",
            "this run is a language model, which is measured on one text",
            "give the file alone: heedful evaluate RUN FILE",
        )
    if file and not recipe.is_of_text:
        raise ConfigError(
            "FILE",
            "this run translates, and one file does not say what should come out",
            "give two files: --source FILE --target FILE",
        )
    if file:
        return TextFilesConfig(path=file)
    if source and target:
        return FilesConfig(source=source, target=target)
    if source or target:
        raise ConfigError(
            "--source, --target", "only one of them is given", "give both files, or neither"
        )
    if recipe.data.test is None:
        files = "a file: heedful evaluate RUN FILE"
        raise ConfigError(
            "data.test",
            "the run's recipe names no test set",
            f"give {files if recipe.is_of_text else 'two files: --source FILE --target FILE'}",
        )
    return recipe.data.test
