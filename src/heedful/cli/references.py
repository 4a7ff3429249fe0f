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

By = Literal["length", "rare", "kind"]
"""What a test set may be parted by."""


class Files(NamedTuple):
    """What the command line names."""

    text: str | None
    outputs: str | None
    source: str | None
    targets: list[str]
    baseline: str | None
    train: str | None
    kinds: str | None


class ReferenceSet(NamedTuple):
    """What outputs are held against."""

    title: str
    references: list[tuple[str, ...]]
    sources: list[str] | None = None
    learned_from: Iterable[str] | None = None  # target texts


def of_recipe(recipe: Recipe, files: Files) -> ReferenceSet:
    """Pairs of two files, or the recipe's own."""
    chosen = chosen_source(recipe, files)
    pairs: list[Any] = chosen.read()
    more = [f" and {path}" for path in files.targets[1:]]
    test = ReferenceSet(
        title=f"{len(pairs)} pairs of {chosen.describe()}{''.join(more)}",
        references=[(pair.target,) for pair in pairs],
        sources=[pair.source for pair in pairs],
        learned_from=_targets(recipe),
    )
    columns = [(pair.target for pair in pairs), *_more(files, test)]
    return test._replace(references=list(zip(*columns, strict=True)))


def _targets(recipe: Recipe) -> Iterable[str] | None:
    """The target texts that were learned from, where they can be read again."""
    stream = getattr(recipe.data.train, "stream", None)
    return None if stream is None else (pair.target for pair in stream())


def of_files(files: Files) -> ReferenceSet:
    """References of files, and sources if they are named."""
    from heedful.data.lines import name_of, read_lines

    names = " and ".join(map(name_of, files.targets))
    first = list(read_lines(files.targets[0]))
    if not first:
        problem, remedy = "holds no lines", "give a file with text in it"
        raise DataError(name_of(files.targets[0]), problem, remedy)
    title = f"{len(first)} outputs of {name_of(str(files.outputs))} beside {names}"
    test = ReferenceSet(title, [(line,) for line in first])
    columns = [first, *_more(files, test)]
    return test._replace(
        references=list(zip(*columns, strict=True)),
        sources=lines_like(files.source, test) if files.source else None,
    )


def _more(files: Files, test: ReferenceSet) -> list[list[str]]:
    return [lines_like(path, test) for path in files.targets[1:]]


def lines_like(path: str, test: ReferenceSet) -> list[str]:
    """Read a file that must have a line for each reference."""
    from heedful.data.lines import name_of, read_lines

    lines, wanted = list(read_lines(path)), len(test.references)
    if len(lines) != wanted:
        raise DataError(
            name_of(path),
            f"{_count(len(lines))}, but {_count(wanted)} of references",
            "line n of one must belong to line n of the other: look for lost or added lines",
        )
    return lines


def _count(lines: int) -> str:
    return f"{lines} line{'' if lines == 1 else 's'}"


def refuse_what_does_not_fit(
    run: Path | None,
    files: Files,
    by: By | None,
    *,
    links: str | None = None,
    is_linking: bool = False,
) -> None:
    """Refuse options that would be overlooked, before anything is read.

    `links` are a file that people made, and `is_linking` says whether a metric reads it.
    """
    named = [files.outputs, files.source, *files.targets, files.baseline, files.train, files.kinds]
    named.append(links)
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
            files.train is not None and by != "rare",
            "--train",
            "given without --by rare, which counts its words",
            "add --by rare, or leave it out",
        ),
        (
            files.kinds is not None and by != "kind",
            "--kinds",
            "given without --by kind, which reads its labels",
            "add --by kind, or leave it out",
        ),
        (
            links is not None and run is None,
            "--alignments",
            "given without a run, whose links would be held against them",
            "give links as outputs: --outputs LINKS --target GOLD --metrics aer",
        ),
        (
            links is not None and not is_linking,
            "--alignments",
            "given without the metric that reads them",
            "add aer to --metrics, or leave it out",
        ),
        (
            is_linking and run is not None and links is None,
            "--metrics",
            "aer of a run needs links that people made between sources and references",
            "name them: --alignments FILE",
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


def chosen_source(recipe: Recipe, files: Files) -> Any:
    """The files that are named, or the test set of the recipe."""
    from heedful.data.sources import FilesConfig
    from heedful.data.text_sources import TextFilesConfig

    if recipe.is_of_text and (files.source or files.targets):
        raise ConfigError(
            "--source, --target",
            "this run is a language model, which is measured on one text",
            "give the file alone: heedful evaluate RUN FILE",
        )
    if files.text and not recipe.is_of_text:
        raise ConfigError(
            "FILE",
            "this run translates, and one file does not say what should come out",
            "give two files: --source FILE --target FILE",
        )
    if files.text:
        return TextFilesConfig(path=files.text)
    if files.source and files.targets:
        return FilesConfig(source=files.source, target=files.targets[0])
    if files.source or files.targets:
        raise ConfigError(
            "--source, --target", "only one of them is given", "give both files, or neither"
        )
    return recipe.data.test or _missing(recipe)


def _missing(recipe: Recipe) -> NoReturn:
    one, two = "a file: heedful evaluate RUN FILE", "two files: --source FILE --target FILE"
    raise ConfigError(
        "data.test",
        "the run's recipe names no test set",
        f"give {one if recipe.is_of_text else two}",
    )
