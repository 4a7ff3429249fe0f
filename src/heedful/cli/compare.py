"""`heedful compare`: quality and cost of multiple systems side by side."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typer import Argument, Option

from heedful import terminal
from heedful.cli.options import GoldAlignments, with_file_options, with_shortcuts
from heedful.errors import ConfigError, check
from heedful.tasks.command_line import Files, Split

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.comparison.results import Comparison
    from heedful.comparison.tables import Column
    from heedful.comparison.test_sets import EvaluationSet
    from heedful.comparison.training import PlannedRun
    from heedful.recipes import Recipe

ComparedRuns = Annotated[
    list[Path] | None, Argument(help="folders written by `heedful train`; RUN+RUN is an ensemble")
]
Data = Annotated[str | None, Option(help="training data: a built-in corpus, a recipe, or a folder")]
RecipeNames = Annotated[
    str | None, Option(help="recipes to train, comma-separated: names or .yaml files")
]
Limit = Annotated[str | None, Option(help="limit for each run: 2m, 90s, 1h, 500steps or 1e15flops")]
Minutes = Annotated[float | None, Option(help="--budget in minutes")]
Steps = Annotated[int | None, Option(help="--budget in steps")]
NumSeeds = Annotated[int | None, Option(min=1, help="runs per recipe", show_default="1")]
MetricNames = Annotated[
    str | None,
    Option(
        "--metrics",
        "--metric",
        help="as in `heedful evaluate`; the first is the main one",
        show_default="those of `heedful evaluate`",
    ),
]
Baseline = Annotated[str | None, Option(help="system to compare with", show_default="the first")]
OutputDir = Annotated[
    Path, Option("--output-dir", "-o", help="folder for the report and the trained runs")
]


@with_shortcuts("batch_tokens", "lr")
@with_file_options("test")
def compare(
    runs: ComparedRuns = None,
    *,
    data: Data = None,
    recipes: RecipeNames = None,
    budget: Limit = None,
    minutes: Minutes = None,
    steps: Steps = None,
    num_seeds: NumSeeds = None,
    overrides: terminal.Overrides = None,
    files: Mapping[Split, Files],
    metrics: MetricNames = None,
    gold_alignments: GoldAlignments = None,
    baseline: Baseline = None,
    beam: terminal.BeamSize = None,
    output_dir: OutputDir = Path("comparison"),
    as_json: terminal.AsJSON = False,
    device: terminal.Device = "auto",
) -> None:
    """Compare systems: quality, training FLOPs, time, memory, size and decoding speed.

    Runs of one recipe with multiple seeds form one system; its values are their means. Differences
    from the baseline are marked if p < 0.05. Runs joined by + are an ensemble, which is a system of
    its own. Language models are compared by perplexity.

    With --recipes the runs are trained first, one after the other, all on the same data and under
    the same budget. The same command resumes an interrupted comparison. If a run fails, the others
    are compared and the exit code is 1.

    Example: heedful compare runs/dot runs/additive --baseline runs/dot
    Example: heedful compare runs/dot-* runs/additive-* --source test.de --target test.en
    Example: heedful compare runs/dot-0 runs/dot-0+runs/dot-1 --metrics bleu,perplexity
    Example: heedful compare --data latin --recipes latin-demo,default --minutes 2
    """
    options = ComparisonOptions(files["test"], metrics, gold_alignments, beam, baseline, device)
    budget = _single_budget(budget, minutes, steps)
    needed = {"--recipes": recipes, "--data": data, "--budget": budget}
    _check_options(runs or [], needed, {"--num-seeds": num_seeds, "--set": overrides})
    if runs:
        comparison: Comparison | None = _compare(runs, options)
    else:
        from heedful.comparison.training import plan_runs

        names = [name.strip() for name in str(recipes).split(",")]
        plans = plan_runs(
            names,
            str(data),
            seeds=num_seeds or 1,
            folder=output_dir,
            overrides=overrides or (),
            device=device,
        )
        comparison = _train(plans, str(budget), options)
    if comparison is None:
        terminal.echo(f"{output_dir}: saved; the same command resumes")
        return
    _print_comparison(comparison, output_dir, as_json=as_json)
    if comparison.failures:
        raise typer.Exit(1)


def _single_budget(budget: str | None, minutes: float | None, steps: int | None) -> str | None:
    """Return the one budget that is given; raise ConfigError for more."""
    budgets = {
        "--budget": budget,
        "--minutes": None if minutes is None else f"{minutes:g}m",
        "--steps": None if steps is None else f"{steps}steps",
    }
    selected = [option for option, value in budgets.items() if value]
    if len(selected) > 1:
        hint = "leave out one of the two"
        raise ConfigError(selected[1], f"given together with {selected[0]}", hint)
    return budgets[selected[0]] if selected else None


class ComparisonOptions(NamedTuple):
    """Test files and settings of the evaluation of systems."""

    files: Files
    metrics: str | None
    gold_alignments: str | None
    beam_size: int | None
    baseline: str | None
    device: str


def _check_options(
    runs: Sequence[Path], needed: Mapping[str, object], optional: Mapping[str, object]
) -> None:
    """Raise ConfigError for options that would have no effect, or that are missing."""
    used = [option for option, value in {**needed, **optional}.items() if value]
    missing = [option for option, value in needed.items() if not value]
    if runs and used:
        raise ConfigError(
            used[0], "given together with trained runs", "leave out the option or the runs"
        )
    hint = "name runs, or train them: --data D --recipes A,B --budget 2m"
    check(runs or used, "RUN", "there is nothing to compare", hint)
    if used and missing:
        hint = "to train: --data D --recipes A,B --budget 2m; to compare runs, name them"
        raise ConfigError(used[0], f"given without {missing[0]}", hint)


def _compare(runs: Sequence[Path], options: ComparisonOptions) -> Comparison:
    from heedful.comparison import systems

    system_runs = systems.group_runs(runs)
    recipes = [(system.name, system.recipe) for system in system_runs]
    systems.check_same_task(recipes)
    if options.baseline:
        systems.find_baseline(system_runs, options.baseline)
    return systems.compare_runs(
        system_runs,
        _build_evaluation_set(recipes, options),
        command=_command_line(),
        baseline=options.baseline,
        device=options.device,
    )


def _train(
    plans: Sequence[PlannedRun], budget: str, options: ComparisonOptions
) -> Comparison | None:
    from heedful.comparison.budget import Budget
    from heedful.comparison.training import run_comparison

    limit, console = Budget.parse(budget), terminal.stderr_console()
    recipes = [(planned.name, planned.recipe) for planned in plans]
    return run_comparison(
        plans,
        limit,
        _build_evaluation_set(recipes, options),
        command=_command_line(),
        baseline=options.baseline,
        device=options.device,
        log_message=partial(terminal.print_message, console),
    )


def _command_line() -> str:
    """Return the command, to be run again."""
    return f"{terminal.program_name()} {shlex.join(sys.argv[1:])}"


def _build_evaluation_set(
    systems: Sequence[tuple[str, Recipe]], options: ComparisonOptions
) -> EvaluationSet:
    """Build the evaluation set of systems that have the same task, before a model is loaded."""
    from heedful.comparison.test_sets import (
        AdditionalTestSet,
        ParallelEvaluationSet,
        TextEvaluationSet,
    )
    from heedful.evaluation.registry import get_metrics
    from heedful.experiment import test_sets

    name, recipe = systems[0]
    task, evaluation = recipe.task, recipe.task.evaluation
    test_sets.check_supported(
        task, {"--metrics": options.metrics}, beam=options.beam_size, name=name
    )
    test_sets.check_files(task, options.files, name=name)
    additional = {}
    if not task.data.file_options.selected(options.files):
        _check_same_test_set(systems)
        additional = recipe.data.additional_tests
    message, hint = f"works only with the metric aer: {name} {task.description}", "leave it out"
    is_valid = evaluation.has_references or not options.gold_alignments
    check(is_valid, "--gold-alignments", message, hint)
    if not evaluation.has_references:
        return TextEvaluationSet(*test_sets.read_test_set(recipe, options.files), task)
    selected = tuple(options.metrics.split(",")) if options.metrics else ()
    registry, gold = evaluation.test_metrics, options.gold_alignments
    get_metrics(selected, location="--metrics", registry=registry)  # before reading
    test_sets.check_gold_alignments(selected, gold)
    test = test_sets.references_from_recipe(recipe, options.files)
    names = test_sets.metric_names(recipe, selected, test)
    titles = [f"; {name}: {source.describe()}" for name, source in additional.items()]
    return ParallelEvaluationSet(
        "".join([test.title, *titles]),
        test.sources or [],
        test.references,
        get_metrics(names, location="evaluation.metrics", registry=registry),
        [
            AdditionalTestSet.from_pairs(name, task.data.read_examples(source))
            for name, source in additional.items()
        ],
        beam_size=options.beam_size,
        with_progress=lambda batches: terminal.with_progress(
            batches, total=sum(map(len, batches)), count_of=len
        ),
        system_outputs=evaluation.system_outputs,
        gold_alignments=test_sets.read_matching_lines(gold, test) if gold else None,
    )


def _check_same_test_set(systems: Sequence[tuple[str, Recipe]]) -> None:
    """Raise ConfigError for recipes without a test set, or with different ones."""
    first, recipe = systems[0]
    expected, usage = recipe.data.test, recipe.task.data.file_options.usage("test")
    for name, other in systems:
        actual = other.data.test
        if actual is None:
            raise ConfigError(name, "its recipe names no test set", f"give {usage}")
        if expected is not None and actual != expected:
            message = f"its test set is {actual.describe()}, but that of {first} is "
            message += expected.describe()
            raise ConfigError(name, message, f"give one test set for all: {usage}")
        message = f"its additional tests differ from those of {first}"
        is_same = other.data.additional_tests == recipe.data.additional_tests
        check(is_same, name, message, f"give one test set for all: {usage}")


# ----- printing: columns that do not fit into the terminal go into further tables below

WIDTH = 100
_FIRST_HEADER = "system"
_COLUMN_GAP = 2  # one of padding, one of the box


def _print_comparison(comparison: Comparison, output_dir: Path, *, as_json: bool) -> None:
    from rich.console import Console

    from heedful.comparison.report import comparison_to_json, save_comparison

    files = save_comparison(comparison, output_dir)
    with terminal.handle_stdout_errors():
        if as_json:
            terminal.echo(comparison_to_json(comparison), nl=False)
        else:
            console = Console()
            if not console.is_terminal:
                console.width = WIDTH
            print_table(comparison, console, width=console.width)
    terminal.echo(f"{output_dir}: {', '.join(path.name for path in files)}", err=True)


def print_table(comparison: Comparison, console: Console, *, width: int = WIDTH) -> None:
    """Print the table, split to the width, and the notes."""
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    from heedful.comparison.tables import comparison_notes, make_columns

    names = [system.name for system in comparison.systems]
    max_width = width - max(map(cell_len, [*names, _FIRST_HEADER]))
    for part in _split_columns(make_columns(comparison), max_width):
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        table.add_column(Text(_FIRST_HEADER), no_wrap=True)
        for column in part:
            table.add_column(Text(column.name), justify="right", no_wrap=True)
        texts = (
            [
                Text(text, style="bold" if cell.is_best else "")
                for text, cell in zip(_cell_texts(column), column.cells, strict=True)
            ]
            for column in part
        )
        for name, *cells in zip(names, *texts, strict=True):
            table.add_row(Text(name), *cells)
        console.print(table, no_wrap=True, crop=False, overflow="ignore")
        console.print()
    for note in comparison_notes(comparison):
        console.print(Text(note), soft_wrap=True)


def _split_columns(columns: Sequence[Column], max_width: int) -> Iterator[list[Column]]:
    """Yield groups of columns that fit; a column wider than that is a group."""
    from rich.cells import cell_len

    part: list[Column] = []
    part_width = 0
    for column in columns:
        width = max(map(cell_len, [column.name, *_cell_texts(column)])) + _COLUMN_GAP
        if part and part_width + width > max_width:
            yield part
            part, part_width = [], 0
        part.append(column)
        part_width += width
    yield part


def _cell_texts(column: Column) -> list[str]:
    """Return the cells of a column, padded where another cell has a mark."""
    blank = " " if any(cell.mark for cell in column.cells) else ""
    return [f"{cell.text}{cell.mark or blank}" for cell in column.cells]
