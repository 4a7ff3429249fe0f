"""`heedful evaluate`: how near outputs are to references, or how a text surprises a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.answers import Answers, Asked, Written, answers_of
from heedful.cli.options import Beam, Device, writing_output
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
    from heedful.evaluation.measures import Measure, References
    from heedful.evaluation.partings import Parting
    from heedful.evaluation.sheet import Entry
    from heedful.recipes import Recipe

_NOTHING: tuple[None, Any] = (None, None)


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
    alignments: Annotated[
        str | None, typer.Option(help="for aer: links of the references that people made")
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

    Beside its outputs a run can be measured by how likely it finds the references (perplexity), by
    which words of theirs it links (aer), and by how widely it looks as it writes
    (attention-entropy).

    Of a language model: perplexity per token, word (parted by white space) and character (line
    ends counted), each token predicted from at least half a context of text before it. Of a masked
    one: how well it finds tokens that are hidden, always the same.

    Example: heedful evaluate runs/de-en --source test.de --target test.en

    Example: heedful evaluate --outputs out.txt --target test.en --metrics bleu,ter --confidence

    Example: heedful evaluate runs/new --baseline runs/old --by length

    Example: heedful evaluate runs/new --metrics perplexity,aer --alignments gold.txt

    Example: heedful evaluate runs/shakespeare test.txt
    """
    from heedful.evaluation.metrics import MEASURES, TOLD_BESIDE, USUAL, choose

    names = [name.strip() for name in metrics.split(",")] if metrics else USUAL
    measures = choose(names, at="--metrics", among={**MEASURES, **TOLD_BESIDE})
    files = Files(file, outputs, source, target or [], baseline, train, kinds)
    refuse_what_does_not_fit(run, files, by, links=alignments, is_linking="aer" in names)
    recipe, loaded = _load(run, device) if run else _NOTHING
    if recipe and recipe.is_of_text:
        given = {"--metrics": metrics, "--by": by, "--confidence": confidence}
        _refuse_for_text({**given, "--baseline": baseline})
        _measure_text(loaded, recipe, files, as_json=as_json)
        return
    test = of_recipe(recipe, files) if recipe else of_files(files)
    links = lines_like(alignments, test) if alignments else None
    parting = _parting(by, files, test)
    said = Written(lines_like(outputs, test)) if outputs else Asked(loaded, test, beam)
    others = answers_of(baseline, test, beam=beam, device=device) if baseline else None
    entries = []
    for measure in measures:
        wanted = _wanted(measure, test, links)
        entries.append(_judge(measure, said, others, wanted, parting, confidence=confidence))
    entries += _recall(said, test, parting)
    _print(_as_json(entries) if as_json else _as_text(entries, test, parting))


def _load(run: Path, device: str) -> tuple[Recipe, Any]:
    """Load a run, which holds its files against the manifest; then its recipe can be trusted."""
    from heedful.runs import Run, load

    loaded = load(run, device=device)
    return Run(run).read_recipe(), loaded


def _wanted(measure: Measure, test: ReferenceSet, links: Sequence[str] | None) -> References:
    """What answers are held against: references, or links of theirs."""
    from heedful.evaluation.metrics import MEASURES

    return links if links is not None and measure is MEASURES["aer"] else test.references


def _judge(
    measure: Measure,
    said: Answers,
    others: Answers | None,
    wanted: References,
    parting: Parting | None,
    *,
    confidence: bool,
) -> Entry:
    from heedful.evaluation.sheet import judge

    lines, baseline = said.lines(measure), others.lines(measure) if others else None
    entry = judge(measure, lines, wanted, baseline=baseline, confidence=confidence)
    return entry._replace(groups=parting.groups(measure, lines, wanted) if parting else [])


def _recall(said: Answers, test: ReferenceSet, parting: Parting | None) -> list[Entry]:
    """Where rare words are asked about, which of them were said."""
    from heedful.evaluation.by_rarity import recall_by_rarity, word_recall
    from heedful.evaluation.partings import ByRarity
    from heedful.evaluation.sheet import Entry

    if not isinstance(parting, ByRarity):
        return []
    words = recall_by_rarity(said.texts, test.references, seen=parting.seen)
    return [Entry(word_recall(said.texts, test.references), groups=words)]


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


def _measure_text(loaded: Any, recipe: Recipe, files: Files, *, as_json: bool) -> None:
    """Measure a language model, which has no outputs."""
    from heedful.evaluation.sheet import Entry

    chosen = chosen_source(recipe, files)
    lines: list[Any] = chosen.read()
    title = f"{len(lines)} lines of {chosen.describe()}"
    entries = [Entry(metric) for metric in loaded.measure(lines)]
    _print(
        _as_json(entries) if as_json else _as_text(entries, ReferenceSet(title, []), None, digits=4)
    )


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
        return partings.ByRarity(count_words(seen), test.references)
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
