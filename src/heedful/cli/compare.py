"""`heedful compare`: which of several systems is better, and at which cost?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.exams import USUAL, Asked, make_exam
from heedful.cli.options import Beam, Device, Settings, command, stderr_console, writing_output
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.comparison.plans import Planned
    from heedful.comparison.results import Comparison


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
    seeds: Annotated[
        int | None, typer.Option(min=1, help="runs of each recipe", show_default="1")
    ] = None,
    settings: Settings = None,
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
            show_default=USUAL,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="system that others are held against", show_default="the first"),
    ] = None,
    beam: Beam = None,
    output: Annotated[Path, typer.Option(help="folder to write, and to train runs in")] = Path(
        "comparison"
    ),
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
    asked = Asked(source, target or [], text, metrics, beam)
    named = {"--recipes": recipes, "--data": data, "--budget": budget}
    _refuse_what_does_not_fit(runs or [], named, {"--seeds": seeds, "--set": settings})
    if runs:
        found: Comparison | None = _compare(runs, asked, baseline, device)
    else:
        from heedful.comparison.plans import plan

        names = [name.strip() for name in str(recipes).split(",")]
        plans = plan(names, str(data), seeds=seeds or 1, folder=output, overrides=settings or ())
        found = _train(plans, str(budget), asked, baseline, device)
    if found is None:
        typer.echo(f"{output}: saved; the same command goes on")
        return
    _tell(found, output, as_json=as_json)
    if found.failures:
        raise typer.Exit(1)


def _compare(runs: Sequence[Path], asked: Asked, baseline: str | None, device: str) -> Comparison:
    from heedful.comparison.comparing import About, compare_runs, find_baseline, refuse_mixed
    from heedful.comparison.grouping import group

    entrants = group(runs)
    systems = [(entrant.name, entrant.recipe) for entrant in entrants]
    refuse_mixed(systems)
    if baseline:
        find_baseline(entrants, baseline)
    exam = make_exam(systems, asked)
    return compare_runs(entrants, exam, about=About(_command()), baseline=baseline, device=device)


def _train(
    plans: Sequence[Planned], budget: str, asked: Asked, baseline: str | None, device: str
) -> Comparison | None:
    from heedful.comparison.budgets import Budget
    from heedful.comparison.running import run_comparison

    chosen, console = Budget.parse(budget), stderr_console()
    exam = make_exam([(planned.name, planned.recipe) for planned in plans], asked)
    return run_comparison(
        plans,
        chosen,
        exam,
        command=_command(),
        baseline=baseline,
        device=device,
        tell=lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True),
    )


def _tell(comparison: Comparison, output: Path, *, as_json: bool) -> None:
    from rich.console import Console

    from heedful.comparison.saving import as_json as to_json
    from heedful.comparison.saving import save
    from heedful.comparison.terminal import WIDTH, print_table

    files = save(comparison, output)
    with writing_output():
        if as_json:
            typer.echo(to_json(comparison), nl=False)
        else:
            console = Console()
            width = console.width if console.is_terminal else WIDTH
            console.width = width
            print_table(comparison, console, width=width)
    typer.echo(f"{output}: {', '.join(path.name for path in files)}", err=True)


def _command() -> str:
    """How this was called, so that it can be typed again."""
    return f"{command()} {shlex.join(sys.argv[1:])}"


def _refuse_what_does_not_fit(
    runs: Sequence[Path], named: Mapping[str, object], beside: Mapping[str, object]
) -> None:
    """Refuse options that would be overlooked, and those that are missing."""
    given = [option for option, value in {**named, **beside}.items() if value]
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
    missing = [option for option, value in named.items() if not value]
    if not runs and missing:
        raise ConfigError(
            given[0],
            f"given without {missing[0]}",
            "to train: --data D --recipes A,B --budget 2m; to compare runs, name them",
        )
