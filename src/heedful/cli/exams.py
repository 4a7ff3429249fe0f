"""Exams of a command line: what are the systems that it names to be asked?

Files that are named, or the test set that all their recipes have. Everything is read, and refused
if need be, before a model is loaded or trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.cli.options import watched
from heedful.cli.references import Files, chosen_source, of_recipe
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.comparison.exams import Exam
    from heedful.recipes import Recipe

Named = Sequence[tuple[str, "Recipe"]]
"""Systems by name."""

USUAL = "bleu,chrf,exact-match"
"""The metrics of a comparison, unless others are asked for; the first decides."""


class Asked(NamedTuple):
    """What the command line says of an exam."""

    source: str | None
    targets: Sequence[str]
    text: str | None
    metrics: str | None
    beam: int | None


def make_exam(systems: Named, asked: Asked) -> Exam:
    """Make the exam that all systems, which are of one kind, can be asked."""
    recipe = systems[0][1]
    files = Files(asked.text, None, asked.source, list(asked.targets), None, None, None)
    _refuse_what_does_not_fit(asked, is_of_text=recipe.is_of_text)
    if not (asked.source or asked.targets or asked.text):
        _refuse_unlike(systems)
    return _of_text(recipe, files) if recipe.is_of_text else _of_pairs(recipe, files, asked)


def _of_pairs(recipe: Recipe, files: Files, asked: Asked) -> Exam:
    from heedful.comparison.exams import PairExam
    from heedful.evaluation.metrics import choose

    measures = choose((asked.metrics or USUAL).split(","), at="--metrics")
    title, references, sources, _ = of_recipe(recipe, files)
    return PairExam(
        title,
        sources or [],
        references,
        measures,
        beam=asked.beam,
        watch=lambda pieces: watched(pieces, total=sum(map(len, pieces)), size=len),
    )


def _of_text(recipe: Recipe, files: Files) -> Exam:
    from heedful.comparison.text_exams import TextExam

    chosen = chosen_source(recipe, files)
    lines: list[Any] = chosen.read()
    return TextExam(f"{len(lines)} lines of {chosen.describe()}", lines)


def _refuse_what_does_not_fit(asked: Asked, *, is_of_text: bool) -> None:
    of_pairs = {
        "--source": asked.source,
        "--target": asked.targets,
        "--metrics": asked.metrics,
        "--beam": asked.beam,
    }
    unfit = of_pairs if is_of_text else {"--text": asked.text}
    for option, given in unfit.items():
        if given:
            raise ConfigError(
                option,
                "these are language models, which are measured on one text"
                if is_of_text
                else "these translate, and one file does not say what should come out",
                "give --text FILE" if is_of_text else "give two: --source FILE --target FILE",
            )


def _refuse_unlike(systems: Named) -> None:
    """Refuse recipes that have no test set, or not all the same."""
    first, recipe = systems[0]
    files = "--text FILE" if recipe.is_of_text else "--source FILE --target FILE"
    for name, other in systems:
        if other.data.test is None:
            raise ConfigError(name, "its recipe names no test set", f"give {files}")
        if recipe.data.test is not None and other.data.test != recipe.data.test:
            raise ConfigError(
                name,
                f"it is tested on {other.data.test.describe()}, "
                f"but {first} on {recipe.data.test.describe()}",
                f"give a test set for all: {files}",
            )
