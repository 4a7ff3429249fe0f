"""References: what a command line names to hold outputs against.

Everything is refused that would be overlooked, and files are read whole and counted, before a model
is asked for anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.recipes import Recipe

GroupBy = Literal["length", "word-frequency", "sentence-type"]
"""What a test set may be parted by."""


class EvaluationFiles(NamedTuple):
    """What the command line names."""

    text: str | None
    outputs: str | None
    source: str | None
    targets: list[str]
    baseline: str | None
    training_targets: str | None
    labels: str | None


class ReferenceSet(NamedTuple):
    """What outputs are held against."""

    title: str
    references: list[tuple[str, ...]]
    sources: list[str] | None = None
    training_targets: Iterable[str] | None = None  # target texts


def references_from_recipe(recipe: Recipe, files: EvaluationFiles) -> ReferenceSet:
    """Pairs of two files, or the recipe's own."""
    chosen = test_data_config(recipe, files)
    pairs: list[Any] = chosen.read()
    more = [f" and {path}" for path in files.targets[1:]]
    test = ReferenceSet(
        title=f"{len(pairs)} pairs of {chosen.describe()}{''.join(more)}",
        references=[(pair.target,) for pair in pairs],
        sources=[pair.source for pair in pairs],
        training_targets=_targets(recipe),
    )
    columns = [(pair.target for pair in pairs), *_extra_references(files, test)]
    return test._replace(references=list(zip(*columns, strict=True)))


def _targets(recipe: Recipe) -> Iterable[str] | None:
    """The target texts that were learned from, where they can be read again."""
    stream = getattr(recipe.data.train, "stream", None)
    return None if stream is None else (pair.target for pair in stream())


def references_from_files(files: EvaluationFiles) -> ReferenceSet:
    """References of files, and sources if they are named."""
    from heedful.data.text_files import display_name, read_lines

    names = " and ".join(map(display_name, files.targets))
    first = list(read_lines(files.targets[0]))
    if not first:
        problem, remedy = "holds no lines", "give a file with text in it"
        raise DataError(display_name(files.targets[0]), problem, remedy)
    title = f"{len(first)} outputs of {display_name(str(files.outputs))} beside {names}"
    test = ReferenceSet(title, [(line,) for line in first])
    columns = [first, *_extra_references(files, test)]
    return test._replace(
        references=list(zip(*columns, strict=True)),
        sources=read_matching_lines(files.source, test) if files.source else None,
    )


def _extra_references(files: EvaluationFiles, test: ReferenceSet) -> list[list[str]]:
    return [read_matching_lines(path, test) for path in files.targets[1:]]


def read_matching_lines(path: str, test: ReferenceSet) -> list[str]:
    """Read a file that must have a line for each reference."""
    from heedful.data.text_files import display_name, read_lines

    lines, wanted = list(read_lines(path)), len(test.references)
    if len(lines) != wanted:
        raise DataError(
            display_name(path),
            f"{_count(len(lines))}, but {_count(wanted)} of references",
            "line n of one must belong to line n of the other: look for lost or added lines",
        )
    return lines


def _count(lines: int) -> str:
    return f"{lines} line{'' if lines == 1 else 's'}"


def check_options(
    run: Path | None,
    files: EvaluationFiles,
    group_by: GroupBy | None,
    *,
    gold_alignments: str | None = None,
    needs_alignments: bool = False,
) -> None:
    """Refuse options that would be overlooked, before anything is read.

    `links` are a file that people made, and `needs_alignments` says whether a metric reads it.
    """
    named = [
        files.outputs,
        files.source,
        *files.targets,
        files.baseline,
        files.training_targets,
        files.labels,
    ]
    named.append(gold_alignments)
    refused = [
        (
            run is None and files.outputs is None,
            "RUN",
            "there is nothing to measure",
            "name a run, or give files: heedful evaluate --outputs FILE --target FILE",
        ),
        (
            run is not None and files.outputs is not None,
            "--outputs",
            "given beside a run, which makes outputs of its own",
            "leave out one of them; to compare them: --baseline FILE",
        ),
        (
            files.outputs is not None and not files.targets,
            "--outputs",
            "given without --target",
            "add --target FILE, whose lines are the references",
        ),
        (
            files.training_targets is not None and group_by != "word-frequency",
            "--training-targets",
            "given without --group-by rare, which counts its words",
            "add --group-by rare, or leave it out",
        ),
        (
            files.labels is not None and group_by != "sentence-type",
            "--labels",
            "given without --group-by kind, which reads its labels",
            "add --group-by kind, or leave it out",
        ),
        (
            gold_alignments is not None and run is None,
            "--gold-alignments",
            "given without a run, whose links would be held against them",
            "give links as outputs: --outputs LINKS --target GOLD --metrics aer",
        ),
        (
            gold_alignments is not None and not needs_alignments,
            "--gold-alignments",
            "given without the metric that reads them",
            "add aer to --metrics, or leave it out",
        ),
        (
            needs_alignments and run is not None and gold_alignments is None,
            "--metrics",
            "aer of a run needs links that people made between sources and references",
            "name them: --gold-alignments FILE",
        ),
        (
            named.count("-") > 1,
            "-",
            "standard input can only be one of the files",
            "name a file for the others",
        ),
    ]
    for is_so, at, problem, remedy in refused:
        if is_so:
            raise ConfigError(at, problem, remedy)


def test_data_config(recipe: Recipe, files: EvaluationFiles) -> Any:
    """The files that are named, or the test set of the recipe."""
    from heedful.data.sources import ParallelFilesConfig, TextFilesConfig

    if recipe.is_monolingual and (files.source or files.targets):
        raise ConfigError(
            "--source, --target",
            "this run is a language model, which is measured on one text",
            "give the file alone: heedful evaluate RUN FILE",
        )
    if files.text and not recipe.is_monolingual:
        raise ConfigError(
            "FILE",
            "this run translates, and one file does not say what should come out",
            "give two files: --source FILE --target FILE",
        )
    if files.text:
        return TextFilesConfig(path=files.text)
    if files.source and files.targets:
        return ParallelFilesConfig(source=files.source, target=files.targets[0])
    if files.source or files.targets:
        raise ConfigError(
            "--source, --target", "only one of them is given", "give both files, or neither"
        )
    return recipe.data.test or _no_test_set_error(recipe)


def _no_test_set_error(recipe: Recipe) -> NoReturn:
    one, two = "a file: heedful evaluate RUN FILE", "two files: --source FILE --target FILE"
    raise ConfigError(
        "data.test",
        "the run's recipe names no test set",
        f"give {one if recipe.is_monolingual else two}",
    )
