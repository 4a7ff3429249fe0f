"""`heedful compare`: which of several systems is better, and at which cost?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heedful.cli.options import (
    BeamSize,
    Device,
    Overrides,
    handle_stdout_errors,
    program_name,
    stderr_console,
    with_progress,
)
from heedful.cli.references import EvaluationFiles, references_from_recipe, test_data_config
from heedful.comparison.results import Comparison
from heedful.comparison.tables import Column, comparison_notes, make_columns
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.comparison.evaluation_sets import EvaluationSet
    from heedful.comparison.plan import PlannedRun
    from heedful.recipes import Recipe


# Exams of a command line: what are the systems that it names to be asked?
#
# Files that are named, or the test set that all their recipes have. Everything is read, and refused
# if need be, before a model is loaded or trained.

NamedRecipes = Sequence[tuple[str, "Recipe"]]
"""Systems by name."""

DEFAULT_METRICS = "bleu,chrf,exact-match"
"""The metrics of a comparison, unless others are asked for; the first decides."""


class EvaluationOptions(NamedTuple):
    """What the command line says of an exam."""

    source: str | None
    targets: Sequence[str]
    text: str | None
    metrics: str | None
    beam_size: int | None


def build_evaluation_set(systems: NamedRecipes, eval_options: EvaluationOptions) -> EvaluationSet:
    """Make the exam that all systems, which are of one kind, can be asked."""
    recipe = systems[0][1]
    files = EvaluationFiles(
        eval_options.text, None, eval_options.source, list(eval_options.targets), None, None, None
    )
    _exams_check_options(eval_options, is_monolingual=recipe.is_monolingual)
    if not (eval_options.source or eval_options.targets or eval_options.text):
        _check_same_test_set(systems)
    return (
        _text_evaluation_set(recipe, files)
        if recipe.is_monolingual
        else _parallel_evaluation_set(recipe, files, eval_options)
    )


def _parallel_evaluation_set(
    recipe: Recipe, files: EvaluationFiles, eval_options: EvaluationOptions
) -> EvaluationSet:
    from heedful.comparison.evaluation_sets import ParallelEvaluationSet
    from heedful.evaluation.registry import get_metrics

    measures = get_metrics(
        (eval_options.metrics or DEFAULT_METRICS).split(","), location="--metrics"
    )
    title, references, sources, _ = references_from_recipe(recipe, files)
    return ParallelEvaluationSet(
        title,
        sources or [],
        references,
        measures,
        beam_size=eval_options.beam_size,
        with_progress=lambda pieces: with_progress(
            pieces, total=sum(map(len, pieces)), count_of=len
        ),
    )


def _text_evaluation_set(recipe: Recipe, files: EvaluationFiles) -> EvaluationSet:
    from heedful.comparison.evaluation_sets import TextEvaluationSet

    chosen = test_data_config(recipe, files)
    lines: list[Any] = chosen.read()
    return TextEvaluationSet(f"{len(lines)} lines of {chosen.describe()}", lines)


def _exams_check_options(eval_options: EvaluationOptions, *, is_monolingual: bool) -> None:
    of_pairs = {
        "--source": eval_options.source,
        "--target": eval_options.targets,
        "--metrics": eval_options.metrics,
        "--beam": eval_options.beam_size,
    }
    unfit = of_pairs if is_monolingual else {"--text": eval_options.text}
    for option, given in unfit.items():
        if given:
            raise ConfigError(
                option,
                "these are language models, which are measured on one text"
                if is_monolingual
                else "these translate, and one file does not say what should come out",
                "give --text FILE" if is_monolingual else "give two: --source FILE --target FILE",
            )


def _check_same_test_set(systems: NamedRecipes) -> None:
    """Refuse recipes that have no test set, or not all the same."""
    first, recipe = systems[0]
    files = "--text FILE" if recipe.is_monolingual else "--source FILE --target FILE"
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


# The terminal's table: a comparison as people see it at once.
#
# Columns that do not fit side by side go into a further table below, each beginning with the names of
# the systems. Law: no line is wider than it may be, unless one column alone is.

WIDTH = 100
_FIRST_HEADER = "system"
_COLUMN_GAP = 2  # blanks between columns: one of padding, one of the box


def print_table(comparison: Comparison, console: Console, *, width: int = WIDTH) -> None:
    """Print the table, in as many parts as it takes, and the remarks."""
    names = [system.name for system in comparison.systems]
    room = width - max(map(cell_len, [*names, _FIRST_HEADER]))
    for part in _split_columns(make_columns(comparison), room):
        console.print(_table(names, part), no_wrap=True, crop=False, overflow="ignore")
        console.print()
    for note in comparison_notes(comparison):
        console.print(Text(note), soft_wrap=True)


def _split_columns(found: Sequence[Column], max_width: int) -> Iterator[list[Column]]:
    """Part columns, in order, so that each part fits into the room."""
    part, taken = list[Column](), 0
    for column in found:
        width = _width(column) + _COLUMN_GAP
        if part and taken + width > max_width:
            yield part
            part, taken = [], 0
        part.append(column)
        taken += width
    yield part


def _width(column: Column) -> int:
    return max(cell_len(column.name), *(cell.cell_len for cell in _texts(column)))


def _table(names: Sequence[str], part: Sequence[Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(Text(_FIRST_HEADER), no_wrap=True)
    for column in part:
        table.add_column(Text(column.name), justify="right", no_wrap=True)
    for name, *cells in zip(names, *map(_texts, part), strict=True):
        table.add_row(Text(name), *cells)
    return table


def _texts(column: Column) -> list[Text]:
    """The cells of a column, with room for marks behind all of them if there is one."""
    blank = " " if any(cell.mark for cell in column.cells) else ""
    return [
        Text(f"{cell.text}{cell.mark or blank}", style="bold" if cell.is_best else "")
        for cell in column.cells
    ]


def compare(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="folders written by `heedful train`")
    ] = None,
    *,
    data: Annotated[
        str | None,
        typer.Option(help="what to learn from: a built-in corpus, a recipe with data, a folder"),
    ] = None,
    recipes: Annotated[
        str | None, typer.Option(help="recipes to train, parted by commas: names or .yaml files")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="what each run may take: 2m, 90s, 1h, 500steps, 1e15flops")
    ] = None,
    num_seeds: Annotated[
        int | None, typer.Option("--num-seeds", min=1, help="runs of each recipe", show_default="1")
    ] = None,
    overrides: Overrides = None,
    source: Annotated[str | None, typer.Option(help="texts to test on, one on a line")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="references, line by line; repeat it for more of them")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="running text, to test language models on")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="as in `heedful evaluate`; the first is the main one",
            show_default=DEFAULT_METRICS,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="system that others are held against", show_default="the first"),
    ] = None,
    beam: BeamSize = None,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", help="folder to write, and to train runs in")
    ] = Path("comparison"),
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    device: Device = "auto",
) -> None:
    """Compare systems: quality beside training FLOPs, time, memory, size and decoding speed.

    Runs of one recipe with several seeds are one system: its numbers are their means. A difference
    from the baseline is marked if equally good systems would differ as much less than once in 20
    times. Language models are compared by perplexity.

    With --recipes the runs are trained first, all on the same data under the same budget, one after
    the other. The same command goes on where it was interrupted. If one fails, the others are
    compared, and the command ends with code 1.

    Example: heedful compare runs/dot runs/additive --baseline runs/dot

    Example: heedful compare runs/dot-* runs/additive-* --source test.de --target test.en

    Example: heedful compare --data latin --recipes luong-2015-dot-small,default --budget 2m
    """
    asked = EvaluationOptions(source, target or [], text, metrics, beam)
    named = {"--recipes": recipes, "--data": data, "--budget": budget}
    _check_options(runs or [], named, {"--num-seeds": num_seeds, "--set": overrides})
    if runs:
        found: Comparison | None = _compare(runs, asked, baseline, device)
    else:
        from heedful.comparison.plan import plan_runs

        names = [name.strip() for name in str(recipes).split(",")]
        plans = plan_runs(
            names, str(data), seeds=num_seeds or 1, folder=output_dir, overrides=overrides or ()
        )
        found = _train(plans, str(budget), asked, baseline, device)
    if found is None:
        typer.echo(f"{output_dir}: saved; the same command goes on")
        return
    _print_comparison(found, output_dir, as_json=as_json)
    if found.failures:
        raise typer.Exit(1)


def _compare(
    runs: Sequence[Path], eval_options: EvaluationOptions, baseline: str | None, device: str
) -> Comparison:
    from heedful.comparison.systems import (
        ComparisonInfo,
        check_same_task,
        compare_runs,
        find_baseline,
        group_runs,
    )

    system_runs = group_runs(runs)
    systems = [(entrant.name, entrant.recipe) for entrant in system_runs]
    check_same_task(systems)
    if baseline:
        find_baseline(system_runs, baseline)
    evaluation_set = build_evaluation_set(systems, eval_options)
    return compare_runs(
        system_runs,
        evaluation_set,
        info=ComparisonInfo(_command_line()),
        baseline=baseline,
        device=device,
    )


def _train(
    plans: Sequence[PlannedRun],
    budget: str,
    eval_options: EvaluationOptions,
    baseline: str | None,
    device: str,
) -> Comparison | None:
    from heedful.comparison.budget import Budget
    from heedful.comparison.training import run_comparison

    chosen, console = Budget.parse(budget), stderr_console()
    evaluation_set = build_evaluation_set(
        [(planned.name, planned.recipe) for planned in plans], eval_options
    )
    return run_comparison(
        plans,
        chosen,
        evaluation_set,
        command=_command_line(),
        baseline=baseline,
        device=device,
        log_message=lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True),
    )


def _print_comparison(comparison: Comparison, output_dir: Path, *, as_json: bool) -> None:
    from rich.console import Console

    from heedful.comparison.report import comparison_to_json as to_json
    from heedful.comparison.report import save_comparison

    files = save_comparison(comparison, output_dir)
    with handle_stdout_errors():
        if as_json:
            typer.echo(to_json(comparison), nl=False)
        else:
            console = Console()
            width = console.width if console.is_terminal else WIDTH
            console.width = width
            print_table(comparison, console, width=width)
    typer.echo(f"{output_dir}: {', '.join(path.name for path in files)}", err=True)


def _command_line() -> str:
    """How this was called, so that it can be typed again."""
    return f"{program_name()} {shlex.join(sys.argv[1:])}"


def _check_options(
    runs: Sequence[Path],
    training_options: Mapping[str, object],
    conflicting_options: Mapping[str, object],
) -> None:
    """Refuse options that would be overlooked, and those that are missing."""
    given = [
        option for option, value in {**training_options, **conflicting_options}.items() if value
    ]
    if runs and given:
        raise ConfigError(
            given[0], "given beside runs, which are trained already", "leave out one of the two"
        )
    if not runs and not given:
        raise ConfigError(
            "RUN",
            "there is nothing to compare",
            "name runs, or what to train: --data D --recipes A,B --budget 2m",
        )
    missing = [option for option, value in training_options.items() if not value]
    if not runs and missing:
        raise ConfigError(
            given[0],
            f"given without {missing[0]}",
            "to train: --data D --recipes A,B --budget 2m; to compare runs, name them",
        )
