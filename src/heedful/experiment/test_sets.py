"""The test set of `evaluate` and `compare`: sources and references.

Files of another task are rejected, and files are read whole and counted, before they are scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.errors import ConfigError, DataError, check, format_count
from heedful.tasks.command_line import PARALLEL_FILES, Files
from heedful.tasks.registry import all_file_options, check_columns

if TYPE_CHECKING:
    from heedful.recipes import Recipe
    from heedful.tasks.task import Task


ALIGNMENT_METRIC_NAMES = ("aer", "alignment-precision", "alignment-recall")


class ReferenceSet(NamedTuple):
    """A test set with references."""

    title: str
    references: list[tuple[str, ...]]
    sources: list[str] | None = None
    training_targets: Iterable[str] | None = None


def _find_test_source(recipe: Recipe, files: Files) -> Any:
    """Return the data source of the given files, or else the test set of the recipe."""
    check_files(recipe.task, files)
    options = recipe.task.data.file_options
    setting = options.data_setting(files, "test")
    check_columns([setting], {"test": files})
    if setting:  # columns that are not named are those of the training file
        train = recipe.data.train
        is_alike = getattr(train, "type", None) == setting["type"]
        named = [name for name in options.columns if is_alike and hasattr(train, name)]
        trained = {name: getattr(train, name) for name in named}
        return _data_source({**trained, **setting})
    message = "the recipe of the run names no test set"
    check(recipe.data.test is not None, "data.test", message, f"give {options.usage('test')}")
    return recipe.data.test


def _data_source(setting: Any) -> Any:
    from pydantic import TypeAdapter

    from heedful.recipes.recipe import EvalDataConfig

    return TypeAdapter[Any](EvalDataConfig).validate_python(setting)


def read_test_set(recipe: Recipe, files: Files) -> tuple[str, list[Any]]:
    """Return the title and the examples of the given files, or of the recipe's test set."""
    source, data = _find_test_source(recipe, files), recipe.task.data
    examples = data.read_examples(source)
    noun = data.example_format.noun(len(examples))
    return f"{len(examples)} {noun} of {source.describe()}", examples


def metric_names(recipe: Recipe, chosen: Sequence[str], test: ReferenceSet) -> Sequence[str]:
    """Return the chosen metrics, or those of the recipe, or the task's for these references."""
    evaluation = recipe.task.evaluation
    return chosen or recipe.evaluation.metrics or evaluation.choose_metrics(test.references)


def references_from_recipe(recipe: Recipe, files: Files) -> ReferenceSet:
    """Read the pairs of the given files, or of the recipe's test set."""
    title, pairs = read_test_set(recipe, files)
    targets = files.get("target") or []
    further_paths = [] if isinstance(targets, str) else targets[1:]
    title += "".join(f" and {path}" for path in further_paths)
    # The training data, if it can be read again.
    stream = getattr(recipe.data.train, "stream", None)
    test = ReferenceSet(
        title,
        [pair.references for pair in pairs],
        [pair.source for pair in pairs],
        None if stream is None else (text for pair in stream() for text in pair.references),
    )
    return _add_references(test, further_paths)


def references_from_files(files: Files, outputs: str) -> ReferenceSet:
    """Read the references of a file of outputs, and the sources if they are given."""
    from heedful.data.text_files import display_name, read_lines

    if files.get("pairs"):
        source = _data_source(PARALLEL_FILES.data_setting(files, "test"))
        pairs: list[Any] = source.read()
        count = format_count(len(pairs), "output")
        title = f"{count} of {display_name(outputs)} against {source.describe()}"
        sources = [pair.source for pair in pairs]
        return ReferenceSet(title, [pair.references for pair in pairs], sources)
    first, *further_paths = files["target"]
    lines = list(read_lines(first))
    check(lines, display_name(first), "contains no lines", "give a file with text in it", DataError)
    names = " and ".join(map(display_name, files["target"]))
    count = format_count(len(lines), "output")
    title = f"{count} of {display_name(outputs)} against {names}"
    test = _add_references(ReferenceSet(title, [(line,) for line in lines]), further_paths)
    source = files.get("source")
    return test._replace(sources=read_matching_lines(source, test) if source else None)


def _add_references(test: ReferenceSet, paths: Sequence[str]) -> ReferenceSet:
    columns = [read_matching_lines(path, test) for path in paths]
    joined = [(*row[0], *row[1:]) for row in zip(test.references, *columns, strict=True)]
    return test._replace(references=joined)


def read_matching_lines(path: str, test: ReferenceSet) -> list[str]:
    """Read a file that must have one line per reference."""
    from heedful.data.text_files import display_name, read_lines

    lines = list(read_lines(path))
    actual, expected = (format_count(count, "line") for count in (len(lines), len(test.references)))
    message = f"{actual}, but {expected} of references"
    hint = "line n of one must belong to line n of the other: look for lost or added lines"
    check(actual == expected, display_name(path), message, hint, DataError)
    return lines


def check_gold_alignments(metrics: Sequence[str], gold: str | None) -> None:
    """Raise ConfigError for alignment metrics of a run without gold alignments, and vice versa."""
    selected = [name for name in metrics if name in ALIGNMENT_METRIC_NAMES]
    message, hint = "works only with the metric aer", "add aer to --metrics, or leave it out"
    check(not gold or selected, "--gold-alignments", message, hint)
    message = f"{', '.join(selected)} of a run needs gold alignments of the references"
    check(gold or not selected, "--metrics", message, "add --gold-alignments FILE")


def check_files(task: Task, files: Files, *, name: str = "this run") -> None:
    """Raise ConfigError for files of another task."""
    for options in all_file_options():
        if options != task.data.file_options and (selected := options.selected(files)):
            hint = f"give {task.data.file_options.usage('test')}"
            raise ConfigError(selected[0].flag(), f"{name} {task.description}", hint)


def check_supported(
    task: Task, values: Mapping[str, object], *, beam: int | None = None, name: str = "this run"
) -> None:
    """Raise ConfigError for options that need references or a search if the task has none."""
    unused = {
        **({} if task.evaluation.has_references else values),
        "--beam": not task.evaluation.uses_beam and beam,
    }
    for option, value in unused.items():
        check(not value, option, f"has no effect: {name} {task.description}", "leave it out")
