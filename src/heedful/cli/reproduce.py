"""`heedful reproduce`: published results, from their data to the row beside the published one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from heedful import terminal
from heedful.errors import DataError, check

if TYPE_CHECKING:
    from heedful.results.runs import Plan

Names = Annotated[list[str] | None, Argument(help="results; without any, all are listed")]
NumSeeds = Annotated[
    int | None, Option("--seeds", min=1, help="seeds of each system", show_default="the result's")
]
Limit = Annotated[
    str | None,
    Option(
        metavar="MINUTES",
        help="limit of each training in minutes, or as in `heedful compare`: 500steps, 1e15flops",
        show_default="the result's",
    ),
]
DataFolder = Annotated[
    Path | None, Option(help="folder of the data folders", show_default="$HEEDFUL_DATA")
]
Miniature = Annotated[bool, Option("--miniature", help="the same in seconds, without a verdict")]
SystemNames = Annotated[
    str | None, Option("--systems", help="only these systems, comma-separated", show_default="all")
]
Summarize = Annotated[
    bool, Option("--summarize", help="train nothing: summarize the records that are there")
]
Jobs = Annotated[int, Option(min=1, help="trainings at a time, each in a process of its own")]
Out = Annotated[Path, Option("--out", "-o", help="folder for runs, records and summaries")]
Collect = Annotated[
    Path | None,
    Option(metavar="FOLDER", help="write results.md and results.html of all results there"),
]


def reproduce(
    names: Names = None,
    *,
    seeds: NumSeeds = None,
    budget: Limit = None,
    data: DataFolder = None,
    systems: SystemNames = None,
    jobs: Jobs = 1,
    miniature: Miniature = False,
    summarize: Summarize = False,
    collect: Collect = None,
    out: Out = Path("reproductions"),
    as_json: terminal.AsJSON = False,
    device: terminal.Device = "auto",
) -> None:
    """Reproduce published results: train, choose by dev, score the test set once, compare.

    Each result names its data with checksums, its systems, metrics and published values. Without
    names, the results are listed with what they need and what was measured before. The same
    command resumes what was interrupted. The exit code is 1 if a training fails, or a claim that
    the result asserts does not hold.

    Example: heedful reproduce
    Example: heedful reproduce deck-flops
    Example: heedful reproduce g2p-cmudict --data ../data --seeds 3
    Example: heedful reproduce multi30k-en-de trec --jobs 6 --budget 4 --out results
    Example: heedful reproduce latin-attention --miniature
    """
    if collect is not None:
        from heedful.results.pages import write_pages

        for path in write_pages(collect, out / "records"):
            terminal.echo(path)
        return
    if not names:
        _print_list(data, as_json=as_json)
        return
    check(len({*names}) == len(names), "NAME", "a result is named twice", "name each once")
    plans = [
        _plan(name, data, out, seeds=seeds, budget=budget, systems=systems, miniature=miniature)
        for name in names
    ]
    has_failed = False
    if not summarize:
        from heedful.results.runs import run_trials

        log = partial(terminal.print_message, terminal.stderr_console())
        failures = run_trials(plans, device=device, jobs=jobs, log_message=log)
        if failures is None:
            terminal.echo("interrupted; the same command resumes", err=True)
            return
        has_failed = bool(failures)
    if not _summarize(plans, is_miniature=miniature, as_json=as_json) or has_failed:
        raise typer.Exit(1)


def _plan(
    name: str,
    data: Path | None,
    out: Path,
    *,
    seeds: int | None,
    budget: str | None,
    systems: str | None,
    miniature: bool,
) -> Plan:
    """Return the plan of a result, after its data are checked."""
    from heedful.comparison.budget import Budget
    from heedful.results.config import load_result
    from heedful.results.preparation import check_data, data_root, find_data
    from heedful.results.runs import Plan

    result = load_result(name)
    root = data_root(data)
    state = find_data(result, root)
    check_data(result, state, root)
    mini = result.miniature
    changes: dict[str, Any] = {}
    if miniature:
        budget_text, lines = mini.budget, mini.lines
        changes = {
            "settings": {**result.settings, **mini.settings},
            "seeds": result.seeds[:1],
            "max_examples": mini.max_examples,
        }
    else:
        budget_text, lines = result.budget, None
    if seeds is not None:
        first = result.seeds[0]
        more = range(first + len(result.seeds), first + seeds)
        changes["seeds"] = [*result.seeds, *more][:seeds]
    chosen = systems.split(",") if systems else mini.systems if miniature else None
    if chosen is not None:
        for system in chosen:
            known = ", ".join(result.systems)
            check(system in result.systems, "--systems", f"no system {system!r}", f"has: {known}")
        changes["systems"] = {n: s for n, s in result.systems.items() if n in chosen}
    if miniature or budget is not None:  # of all systems
        kept = changes.get("systems", result.systems).items()
        changes["systems"] = {n: s.model_copy(update={"budget": None}) for n, s in kept}
    if budget is not None:
        budget_text = f"{budget}m" if budget.replace(".", "", 1).isdecimal() else budget
    Budget.parse(budget_text)  # an error now, not in the first training
    folder = (out / (f"{name}-miniature" if miniature else name)).absolute()
    changed = result.model_copy(update=changes)
    return Plan(folder.name, changed, folder, budget_text, state.folder, lines)


def _summarize(plans: Sequence[Plan], *, is_miniature: bool, as_json: bool) -> bool:
    """Print and write the summaries; return whether all that they assert holds."""
    from heedful.results import pages
    from heedful.results.preparation import prepare
    from heedful.results.runs import read_records
    from heedful.results.summary import failed_claims, summarize

    is_confirmed = True
    for plan, records in zip(plans, map(read_records, plans), strict=True):
        if not (records or plan.result.cells):
            continue
        prepare(plan.result, plan.data, plan.folder / "prepared", plan.lines)
        try:
            summary = summarize(plan, records, is_miniature=is_miniature)
        except DataError as error:  # the records are kept, and the others are still to be printed
            terminal.echo(f"{plan.name}: {error}", err=True)
            is_confirmed = False
            continue
        pages.write_summary(plan.records, summary)
        lines = pages.format_summary(plan.result, summary)
        with terminal.handle_stdout_errors():
            text = pages.to_json(summary) if as_json else "".join(f"{line}\n" for line in lines)
            terminal.echo(text)
        for claim in failed_claims(summary):
            terminal.echo(f"does not hold: {claim}", err=True)
            is_confirmed = False
    return is_confirmed


def _print_list(data: Path | None, *, as_json: bool) -> None:
    from heedful.results import pages

    with terminal.handle_stdout_errors():
        if as_json:
            terminal.echo(pages.to_json(pages.read_summaries()), nl=False)
            return
        header = ("name", "result", "data", "minutes", "measured")
        for line in pages.format_table(pages.Table(header, list(_list_rows(data)))):
            terminal.echo(line)


def _list_rows(data: Path | None) -> Iterator[tuple[str, ...]]:
    from heedful.results.config import load_result, result_names
    from heedful.results.pages import read_summaries
    from heedful.results.preparation import data_root, find_data

    known, root = read_summaries(), data_root(data)
    for name in result_names():
        result = load_result(name)
        state = find_data(result, root, with_hashes=False)
        state_text = " (found)" if state.is_complete else " (missing)"
        minutes = f"{result.minutes:g}" if result.minutes else ""
        needed = "none" if result.data is None else result.data.folder + state_text
        yield name, result.title, needed, minutes, _measured(known.get(name))


def _measured(summary: dict[str, Any] | None) -> str:
    """Return the best value of the first metric that was measured before."""
    from heedful.results.pages import best_system

    if not summary or (system := best_system(summary)) is None:
        return "yes" if summary and summary["cells"] else ""
    column = next(iter(summary["directions"]))
    return f"{system}: {column} {summary['systems'][system]['metrics'][column]['mean']:.2f}"
