"""`heedful align`: word alignments of parallel text; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from heedful.errors import DataError, check, format_count
from heedful.tasks.command_line import COLUMN_OPTIONS, PARALLEL_FILES, Delimiter, EncodingName
from heedful.terminal import Quiet, echo, handle_stdout_errors, stderr_console

ModelName = Literal["ibm1", "fast-align", "hmm"]
DirectionName = Literal["forward", "reverse"]
MethodName = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
Words = list[list[str]]
"""The words of each text."""

SourceFile = Annotated[str | None, Option(metavar="FILE", help="source texts, one per line")]
TargetFile = Annotated[str | None, Option(metavar="FILE", help="target texts, one per line")]
PairsFile = Annotated[
    str | None, Option(metavar="FILE", help="both in one file: .tsv, .csv, .jsonl or .parquet")
]
Column = Annotated[str | None, Option(metavar="COLUMN", help="its number or name, with --pairs")]
TrainSource = Annotated[
    str | None, Option(metavar="FILE", help="further source texts to learn from")
]
TrainTarget = Annotated[
    str | None, Option(metavar="FILE", help="further target texts to learn from")
]
LinksFile = Annotated[Path | None, Option("--output", "-o", help="write the links to this file")]
Model = Annotated[ModelName, Option(help="model of a direction")]
Iterations = Annotated[int, Option(min=1, help="steps of expectation maximization")]
Alpha = Annotated[
    float | None, Option(min=1e-9, help="Dirichlet prior (variational Bayes), such as 0.01")
]
Direction = Annotated[
    DirectionName | None,
    Option(help="forward: each target word has at most one link; reverse", show_default="both"),
]
Symmetrize = Annotated[
    MethodName | None, Option(help="how to combine them", show_default="grow-diag-final-and")
]
Lowercase = Annotated[bool, Option("--lowercase", help="ignore case")]
GoldFile = Annotated[
    str | None, Option(metavar="FILE", help="gold links: print AER, precision and recall")
]


def align(
    *,
    source: SourceFile = None,
    target: TargetFile = None,
    pairs: PairsFile = None,
    source_column: Column = None,
    target_column: Column = None,
    encoding: EncodingName = None,
    delimiter: Delimiter = None,
    train_source: TrainSource = None,
    train_target: TrainTarget = None,
    output: LinksFile = None,
    model: Model = "hmm",
    iterations: Iterations = 5,
    alpha: Alpha = None,
    direction: Direction = None,
    symmetrize: Symmetrize = None,
    lowercase: Lowercase = False,
    gold: GoldFile = None,
    quiet: Quiet = False,
) -> None:
    """Align the words of parallel text with IBM Model 1, fast_align or a hidden Markov model.

    Learns from the text itself, in seconds. Words are separated by white space; a line of links
    such as 0-0 1-2 has the source and target word of each link, counted from 0 (Pharaoh format).

    Example: heedful align --source train.de --target train.en -o links.txt
    Example: heedful align --pairs train.tsv --model fast-align --symmetrize intersection
    Example: heedful align --source test.de --target test.en --gold gold.txt
    """
    message = "has no effect: --direction chooses one direction"
    check(not (direction and symmetrize), "--symmetrize", message, "leave out one of them")
    files = {"source": source, "target": target, "pairs": pairs}
    columns = dict(zip(COLUMN_OPTIONS, (source_column, target_column), strict=True))
    check(any(files.values()), "--source", "no text is given", f"give {PARALLEL_FILES.usage()}")
    for one, other in (("source", train_target), ("target", train_source)):
        is_complete = not other or {"source": train_source, "target": train_target}[one]
        check(is_complete, f"--train-{one}", "is missing", f"add --train-{one} FILE")
    reading = {"encoding": encoding, "delimiter": delimiter}
    corpora = [_read_words({**files, **columns, **reading}, lowercase=lowercase)]
    if train_source:
        more = {"source": train_source, "target": train_target, **reading}
        corpora.append(_read_words(more, lowercase=lowercase))
    gold_lines = _read_gold(gold, *corpora[0]) if gold else None
    settings = {"type": model, "num_iterations": iterations, "alpha": alpha}
    directions: dict[str, str] = {
        "direction": direction or "both",
        "symmetrization": symmetrize or "grow-diag-final-and",
    }
    lines = _align_words(corpora, settings, directions, quiet=quiet)
    if output is not None:
        from heedful.storage.atomic import write_text

        write_text(output, "".join(f"{line}\n" for line in lines))
    with handle_stdout_errors():
        if gold_lines is not None:
            _print_scores(lines, gold_lines)
        elif output is None:
            for line in lines:
                echo(line)


def _read_words(files: Mapping[str, Any], *, lowercase: bool) -> tuple[Words, Words]:
    """Return the words of both sides."""
    from heedful.config.base import type_of
    from heedful.data.text.pair_files import PAIR_SOURCES

    setting = PARALLEL_FILES.data_setting(files)
    assert setting is not None, files
    config = next(config for config in PAIR_SOURCES if type_of(config) == setting["type"])
    pairs = config.model_validate(setting).read()
    return tuple(  # type: ignore[return-value]
        [(text.lower() if lowercase else text).split() for text in side]
        for side in zip(*pairs, strict=True)
    )


def _align_words(
    corpora: Sequence[tuple[Words, Words]],
    settings: Mapping[str, Any],
    directions: Mapping[str, Any],
    *,
    quiet: bool,
) -> list[str]:
    """Return the links of the first corpus, a line per pair; learn from all of them."""
    from pydantic import TypeAdapter

    from heedful.aligners.links import format_pharaoh, sort_links
    from heedful.aligners.training import (
        AlignerConfig,
        AlignerConfigBase,
        align_corpus,
        number_words,
    )

    config: AlignerConfigBase = TypeAdapter[Any](AlignerConfig).validate_python(settings)
    console = stderr_console(quiet=quiet)
    first, *others = number_words(corpora)
    links = align_corpus(
        config,
        first,
        train_corpora=others,
        on_iteration=lambda progress: console.print(str(progress), highlight=False),
        **directions,
    )
    return [format_pharaoh(sort_links(row)) for row in links]


def _read_gold(path: str, sources: Words, targets: Words) -> list[str]:
    """Read gold links and check them, before anything is trained."""
    from heedful.aligners.links import parse_alignment
    from heedful.data.text_files import read_lines

    lines = list(read_lines(path))
    pairs = format_count(len(sources), "pair")
    message = f"{format_count(len(lines), 'line')} of gold links, but {pairs} of texts"
    hint = "line n of the links must belong to pair n"
    check(len(lines) == len(sources), path, message, hint, DataError)
    hint = "words are separated by white space, in the texts and for the links"
    for number, (line, *texts) in enumerate(zip(lines, sources, targets, strict=True), start=1):
        for link in parse_alignment(line, location=f"{path}:{number}").possible:
            for name, word, words in zip(("source", "target"), link, texts, strict=True):
                message = f"a link to {name} word {word}, but there are {len(words)}, from 0"
                check(word < len(words), f"{path}:{number}", message, hint, DataError)
    return lines


def _print_scores(lines: Sequence[str], gold: Sequence[str]) -> None:
    from heedful.evaluation.registry import ALIGNMENT_METRICS
    from heedful.evaluation.score_table import format_entries, score_outputs

    entries = [score_outputs(metric, lines, gold) for metric in ALIGNMENT_METRICS.values()]
    num_links = sum(len(line.split()) for line in lines)
    echo(f"{format_count(len(lines), 'pair')}, {format_count(num_links, 'link')}")
    for line in format_entries(entries):
        echo(line)
