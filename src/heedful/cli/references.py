"""The test set of `evaluate` and `compare`: sources and references.

Options that would have no effect are rejected, and files are read whole and counted, before a
model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from heedful.errors import ConfigError, DataError, check
from heedful.tasks.file_options import Files
from heedful.tasks.registry import all_file_options

if TYPE_CHECKING:
    from heedful.recipes import Recipe
    from heedful.tasks.task import Task

GroupBy = Literal["length", "word-frequency", "sentence-type"]


class EvaluationFiles(NamedTuple):
    """The files of `heedful evaluate`."""

    test: Files
    outputs: str | None = None
    baseline: str | None = None
    training_targets: str | None = None
    labels: str | None = None
    gold_alignments: str | None = None

    @property
    def targets(self) -> list[str]:
        """The files of references, one or more."""
        return self.test.get("target") or []

    def paths(self) -> list[str]:
        """Return all files."""
        named = [path for value in self.test.values() for path in _as_list(value)]
        return [*named, *(path for path in self[1:] if path is not None)]


class ReferenceSet(NamedTuple):
    """A test set with references."""

    title: str
    references: list[tuple[str, ...]]
    sources: list[str] | None = None
    training_targets: Iterable[str] | None = None


def _as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


# ----- reading


def find_test_source(recipe: Recipe, files: Files, *, name: str = "this run") -> Any:
    """Return the data source of the given files, or else the test set of the recipe."""
    from pydantic import TypeAdapter

    from heedful.recipes.recipe import EvalDataConfig

    check_files(recipe.task, files, name=name)
    options = recipe.task.file_options
    if setting := options.data_setting(files, "test"):
        return TypeAdapter[Any](EvalDataConfig).validate_python(setting)
    check(
        recipe.data.test is not None,
        "data.test",
        "the recipe of the run names no test set",
        f"give {options.usage('test')}",
    )
    return recipe.data.test


def references_from_recipe(recipe: Recipe, files: Files) -> ReferenceSet:
    """Read the pairs of the given files, or of the recipe's test set."""
    source = find_test_source(recipe, files)
    pairs: list[Any] = source.read()
    more = _as_list(files.get("target"))[1:]
    test = ReferenceSet(
        title=f"{len(pairs)} pairs of {source.describe()}"
        + "".join(f" and {path}" for path in more),
        references=[(pair.target,) for pair in pairs],
        sources=[pair.source for pair in pairs],
        training_targets=_training_targets(recipe),
    )
    return _add_references(test, more)


def _training_targets(recipe: Recipe) -> Iterable[str] | None:
    """Yield the target texts of the training data, if it can be read again."""
    stream = getattr(recipe.data.train, "stream", None)
    return None if stream is None else (pair.target for pair in stream())


def references_from_files(files: EvaluationFiles) -> ReferenceSet:
    """Read the references, and the sources if they are given."""
    from heedful.data.text_files import display_name, read_lines

    first, *more = files.targets
    lines = list(read_lines(first))
    check(lines, display_name(first), "contains no lines", "give a file with text in it", DataError)
    names = " and ".join(map(display_name, files.targets))
    title = f"{len(lines)} outputs of {display_name(str(files.outputs))} against {names}"
    test = _add_references(ReferenceSet(title, [(line,) for line in lines]), more)
    source = files.test.get("source")
    return test._replace(sources=read_matching_lines(source, test) if source else None)


def _add_references(test: ReferenceSet, paths: Iterable[str]) -> ReferenceSet:
    columns = [read_matching_lines(path, test) for path in paths]
    joined = [(*row[0], *row[1:]) for row in zip(test.references, *columns, strict=True)]
    return test._replace(references=joined)


def read_matching_lines(path: str, test: ReferenceSet) -> list[str]:
    """Read a file that must have one line per reference."""
    from heedful.data.text_files import display_name, read_lines

    lines, expected = list(read_lines(path)), len(test.references)
    check(
        len(lines) == expected,
        display_name(path),
        f"{_count_lines(len(lines))}, but {_count_lines(expected)} of references",
        "line n of one must belong to line n of the other: look for lost or added lines",
        DataError,
    )
    return lines


def _count_lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"


# ----- checks


def check_files(task: Task, files: Files, *, name: str = "this run") -> None:
    """Raise ConfigError for files of another task."""
    for options in all_file_options():
        if options != task.file_options and (given := options.given(files)):
            raise ConfigError(
                given[0].flag(),
                f"{name} {task.description}",
                f"give {task.file_options.usage('test')}",
            )


def check_supported(
    task: Task, values: Mapping[str, object], *, beam: int | None = None, name: str = "this run"
) -> None:
    """Raise ConfigError for options that need references or a search if the task has none."""
    unused = {**({} if task.has_references else values), "--beam": not task.has_search and beam}
    for option, value in unused.items():
        check(not value, option, f"has no effect: {name} {task.description}", "leave it out")


def check_options(
    run: Path | None, files: EvaluationFiles, group_by: GroupBy | None, *, computes_aer: bool
) -> None:
    """Raise ConfigError for options that would have no effect, before anything is read."""
    has_run, gold = run is not None, files.gold_alignments is not None
    rules = [
        (
            has_run or files.outputs,
            "RUN",
            "there is nothing to evaluate",
            "name a run, or give files: heedful evaluate --outputs FILE --target FILE",
        ),
        (
            not (has_run and files.outputs),
            "--outputs",
            "given together with a run, which has outputs of its own",
            "leave out one of them; to compare them: --baseline FILE",
        ),
        (
            not files.outputs or files.targets,
            "--outputs",
            "given without --target",
            "add --target FILE with the references",
        ),
        (
            not files.training_targets or group_by == "word-frequency",
            "--training-targets",
            "works only with --group-by word-frequency",
            "add --group-by word-frequency, or leave it out",
        ),
        (
            not files.labels or group_by == "sentence-type",
            "--labels",
            "works only with --group-by sentence-type",
            "add --group-by sentence-type, or leave it out",
        ),
        (
            not gold or has_run,
            "--gold-alignments",
            "works only with a run",
            "give alignments as outputs: --outputs LINKS --target GOLD --metrics aer",
        ),
        (
            not gold or computes_aer,
            "--gold-alignments",
            "works only with the metric aer",
            "add aer to --metrics, or leave it out",
        ),
        (
            gold or not (computes_aer and has_run),
            "--metrics",
            "aer of a run needs gold alignments of sources and references",
            "add --gold-alignments FILE",
        ),
        (
            files.paths().count("-") < 2,
            "-",
            "standard input can only be one of the files",
            "name a file for the others",
        ),
    ]
    for condition, location, message, hint in rules:
        check(condition, location, message, hint)
