"""`heedful evaluate`: how near outputs are to references, or how a text surprises a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.options import Beam, Device, watched, writing_output
from heedful.cli.references import (
    By,
    Files,
    ReferenceSet,
    chosen_source,
    lines_like,
    of_files,
    of_recipe,
    refuse_what_does_not_fit,
)
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.evaluation.measures import Measure
    from heedful.evaluation.partings import Parting
    from heedful.evaluation.sheet import Entry
    from heedful.recipes import Recipe

Translate = Callable[[Path, Sequence[str]], list[str]]


def evaluate(
    run: Annotated[
        Path | None, typer.Argument(help="folder written by `heedful train`; not with --outputs")
    ] = None,
    file: Annotated[
        str | None, typer.Argument(help="running text, to measure a language model on")
    ] = None,
    *,
    outputs: Annotated[str | None, typer.Option(help="outputs of any system, line by line")] = None,
    source: Annotated[str | None, typer.Option(help="texts, one on a line")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="references, line by line; repeat it for more of them")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="names such as ter or rouge-l, parted by commas",
            show_default="exact-match,bleu,chrf",
        ),
    ] = None,
    by: Annotated[By | None, typer.Option(help="also measure parts of the test set")] = None,
    train: Annotated[
        str | None, typer.Option(help="for --by rare: target texts that were learned from")
    ] = None,
    kinds: Annotated[str | None, typer.Option(help="for --by kind: a label for each line")] = None,
    confidence: Annotated[bool, typer.Option("--confidence", help="add 95 % intervals")] = False,
    baseline: Annotated[
        str | None, typer.Option(help="outputs, or a run, to be compared with", metavar="FILE|RUN")
    ] = None,
    beam: Beam = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    device: Device = "auto",
) -> None:
    """Measure outputs: exact match, BLEU and chrF, or other metrics, each with its signature.

    Outputs are those in a file, or what a run makes of a test set; without files, of the recipe's
    own. A difference from a baseline is marked if equally good systems would differ as much less
    than once in 20 times.

    Of a language model: perplexity per token, word (parted by white space) and character (line
    ends counted), each token predicted from at least half a context of text before it. Of a masked
    one: how well it finds tokens that are hidden, always the same.

    Example: heedful evaluate runs/de-en --source test.de --target test.en

    Example: heedful evaluate --outputs out.txt --target test.en --metrics bleu,ter --confidence

    Example: heedful evaluate runs/new --baseline runs/old --by length

    Example: heedful evaluate runs/shakespeare test.txt
    """
    from heedful.evaluation.metrics import USUAL, choose

    measures = choose(metrics.split(",") if metrics else USUAL, at="--metrics")
    files = Files(file, outputs, source, target or [], baseline, train, kinds)
    refuse_what_does_not_fit(run, files, by)
    recipe = _read_recipe(run) if run else None
    if run and recipe and recipe.is_of_text:
        given = {"--metrics": metrics, "--by": by, "--confidence": confidence}
        _refuse_for_text({**given, "--baseline": baseline})
        _measure_text(run, recipe, files, device=device, as_json=as_json)
        return
    test = of_recipe(recipe, files) if recipe else of_files(files)
    parting = _parting(by, files, test)
    translate = partial(_translate, beam=beam, device=device)
    written = lines_like(outputs, test) if outputs else []
    others = _read_baseline(baseline, test, translate) if baseline else None
    said = translate(run, test.sources or []) if run else written
    entries = _judge(measures, said, test, others, parting, confidence=confidence)
    _print(_as_json(entries) if as_json else _as_text(entries, test, parting))


def _judge(
    measures: Sequence[Measure],
    said: Sequence[str],
    test: ReferenceSet,
    others: Sequence[str] | None,
    parting: Parting | None,
    *,
    confidence: bool,
) -> list[Entry]:
    from heedful.evaluation.by_rarity import recall_by_rarity, word_recall
    from heedful.evaluation.partings import ByRarity
    from heedful.evaluation.sheet import Entry, judge

    entries = list[Entry]()
    for measure in measures:
        entry = judge(measure, said, test.references, baseline=others, confidence=confidence)
        groups = parting.groups(measure, said, test.references) if parting else []
        entries.append(entry._replace(groups=groups))
    if isinstance(parting, ByRarity):
        words = recall_by_rarity(said, test.references, seen=parting.seen)
        entries.append(Entry(word_recall(said, test.references), groups=words))
    return entries


def _as_json(entries: Sequence[Entry]) -> Iterator[str]:
    from heedful.evaluation.sheet import as_json

    yield json.dumps([as_json(entry) for entry in entries], indent=2)


def _as_text(
    entries: Sequence[Entry], test: ReferenceSet, parting: Parting | None, *, digits: int = 2
) -> Iterator[str]:
    from heedful.evaluation.partings import ByRarity
    from heedful.evaluation.sheet import as_table, as_text

    yield test.title
    yield from as_text(entries, digits=digits)
    if parting is None:
        return
    of_words = entries[-1:] if isinstance(parting, ByRarity) else []
    yield ""
    yield from as_table(parting.title, "outputs", entries[: len(entries) - len(of_words)])
    if of_words:
        yield ""
        yield from as_table("times a word was seen", "words", of_words)


def _print(lines: Iterable[str]) -> None:
    with writing_output():
        for line in lines:
            typer.echo(line)


def _measure_text(run: Path, recipe: Recipe, files: Files, *, device: str, as_json: bool) -> None:
    """Measure a language model, which has no outputs."""
    from heedful.evaluation.sheet import Entry
    from heedful.runs import load
    from heedful.translator import Translator

    loaded = load(run, device=device)
    assert not isinstance(loaded, Translator), run
    chosen = chosen_source(recipe, files)
    lines: list[Any] = chosen.read()
    title = f"{len(lines)} lines of {chosen.describe()}"
    entries = [Entry(metric) for metric in loaded.measure(lines)]
    _print(
        _as_json(entries) if as_json else _as_text(entries, ReferenceSet(title, []), None, digits=4)
    )


def _translate(run: Path, sources: Sequence[str], *, beam: int | None, device: str) -> list[str]:
    from heedful.runs import load_translator

    stream = load_translator(run, device=device).stream(sources, beam=beam)
    return [result.text for result in watched(stream, total=len(sources))]


def _read_recipe(run: Path) -> Recipe:
    from heedful.runs import Run

    found = Run(run)
    found.verify()
    return found.read_recipe()


def _read_baseline(given: str, test: ReferenceSet, translate: Translate) -> list[str]:
    if not Path(given).is_dir():
        return lines_like(given, test)
    if test.sources is None:
        raise ConfigError(
            "--baseline", "a run needs texts to translate", "name them, too: --source FILE"
        )
    return translate(Path(given), test.sources)


def _parting(by: By | None, files: Files, test: ReferenceSet) -> Parting | None:
    from heedful.data.lines import read_lines
    from heedful.evaluation import partings
    from heedful.evaluation.by_rarity import count_words

    if by == "rare":
        seen = read_lines(files.train) if files.train else test.learned_from
        if seen is None:
            raise ConfigError(
                "--by rare",
                "it is not known what was learned from",
                "name the target texts of training: --train FILE",
            )
        return partings.ByRarity(count_words(seen))
    if by == "kind" and files.kinds:
        return partings.ByLabel(lines_like(files.kinds, test))
    if by and test.sources is None:
        other = ", or give labels: --kinds FILE" if by == "kind" else ""
        raise ConfigError(f"--by {by}", "sources are not known", f"name them: --source FILE{other}")
    chosen = {"length": partings.ByLength, "kind": partings.ByKind}
    return chosen[by](test.sources or []) if by else None


def _refuse_for_text(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value:
            raise ConfigError(
                option,
                "this run is a language model, of which no outputs are measured",
                "leave it out",
            )
