"""Running a comparison: train what is planned, then compare what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heedful.comparison.budgets import Budget
from heedful.comparison.comparing import About, compare_runs, find_baseline
from heedful.comparison.exams import Exam
from heedful.comparison.grouping import Entrant
from heedful.comparison.plans import Planned, refuse_changed
from heedful.comparison.results import Comparison
from heedful.comparison.trainings import TrainOne, train_all, train_apart
from heedful.errors import HeedfulError


class NothingTrainedError(HeedfulError):
    """A comparison of which no training came to its end."""

    exit_code = 1


def run_comparison(
    plans: Sequence[Planned],
    budget: Budget,
    exam: Exam,
    *,
    command: str,
    baseline: str | None = None,
    device: str = "auto",
    tell: Callable[[str], None],
    train_one: TrainOne = train_apart,
) -> Comparison | None:
    """Train every run under the budget and compare them; nothing if it was interrupted.

    Runs that fail are told of in the comparison. Where the baseline is among them, the first
    system that is left takes its place.
    """
    if baseline:
        find_baseline(as_entrants(plans), baseline)
    for planned in plans:
        refuse_changed(planned, budget)
    is_over, failures = train_all(plans, budget, device=device, tell=tell, train_one=train_one)
    if not is_over:
        return None
    failed = {failure.run for failure in failures}
    left = as_entrants([planned for planned in plans if str(planned.folder) not in failed])
    if not left:
        name, run, problem = failures[0]
        raise NothingTrainedError(
            run, f"no training came to its end; {name}: {problem}", "mend that, and try again"
        )
    about = About(command, budget.text, failures)
    named = baseline if baseline in {entrant.name for entrant in left} else None
    return compare_runs(left, exam, about=about, baseline=named, device=device)


def as_entrants(plans: Sequence[Planned]) -> list[Entrant]:
    """The systems of a plan: each recipe, with a run for each seed."""
    systems = dict[str, Entrant]()
    for name, recipe, folder in plans:
        before = systems.get(name, Entrant(name, recipe, []))
        systems[name] = before._replace(folders=[*before.folders, folder])
    return list(systems.values())
