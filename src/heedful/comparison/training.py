"""Running a comparison: train what is planned, then compare what came of it."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

from heedful.comparison.budget import Budget
from heedful.comparison.evaluation_sets import EvaluationSet
from heedful.comparison.plan import PlannedRun, check_unchanged
from heedful.comparison.results import Comparison, Failure
from heedful.comparison.systems import ComparisonInfo, SystemRuns, compare_runs, find_baseline
from heedful.errors import HeedfulError
from heedful.experiment import train
from heedful.experiment.environment import handle_stop_signals
from heedful.experiment.train import finished_progress
from heedful.parallel import WorkerDiedError, WorkerProcess
from heedful.runs import Run
from heedful.training.checkpoints import CheckpointManager

# Trainings: the runs of a plan, one after the other.
#
# Each is trained in a process of its own: there the peak of memory is its own, and what kills it
# kills nothing else. A run that is over is not trained again, one that was interrupted goes on, and
# one that fails is written down while the others go on.


class RunResult(NamedTuple):
    """How a training came out."""

    is_finished: bool
    error_message: str = ""  # nothing if it is over, or was interrupted


class PlanResult(NamedTuple):
    """How a plan came out."""

    is_finished: bool  # or else it was interrupted
    failures: Sequence[Failure]


TrainRun = Callable[[PlannedRun, Budget, str], RunResult]


def train_all(
    plans: Sequence[PlannedRun],
    budget: Budget,
    *,
    device: str = "auto",
    log_message: Callable[[str], None],
    train_run: TrainRun,
) -> PlanResult:
    """Train every run of a plan that is not over."""
    failures = list[Failure]()
    left = [planned for planned in plans if not _is_finished(planned, budget)]
    if len(left) < len(plans):
        log_message(f"{len(plans) - len(left)} of {len(plans)} runs are trained already")
    began = time.monotonic()
    for number, planned in enumerate(left):
        log_message(_progress_message(planned, number, len(left), time.monotonic() - began, budget))
        ended = train_run(planned, budget, device)
        if ended.error_message:
            log_message(f"{planned.folder}: failed: {ended.error_message}")
            failures.append(Failure(planned.name, str(planned.folder), ended.error_message))
        elif not ended.is_finished:
            return PlanResult(False, failures)
    return PlanResult(True, failures)


def _progress_message(
    planned: PlannedRun, number: int, count: int, seconds: float, budget: Budget
) -> str:
    """Say which run it is the turn of, and about how long all that are left will take."""
    each = budget.seconds if not number else seconds / number
    left = "" if each is None else f"; about {_format_duration(each * (count - number))} left"
    seed = planned.recipe.training.seed
    return f"run {number + 1} of {count}: {planned.name}, seed {seed}, for {budget.text}{left}"


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _is_finished(planned: PlannedRun, budget: Budget) -> bool:
    run = Run(planned.folder)
    if not run.exists or not run.checkpoints.exists():
        return False
    recipe = run.read_recipe()
    if not budget.matches_final_segment(recipe):
        return False
    checkpoints = CheckpointManager(run.checkpoints, recipe.training.checkpoints, lambda line: None)
    snapshot = checkpoints.load()
    checkpoints.close()
    return snapshot is not None and finished_progress(recipe.training, snapshot) is not None


def train_in_process(planned: PlannedRun, budget: Budget, device: str) -> RunResult:
    """Train in this process."""
    try:
        outcome = budget.train(
            planned.recipe, planned.folder, lambda recipe, run: train(recipe, run, device=device)
        )
    except HeedfulError as error:
        return RunResult(False, f"{error.location}: {error.message}")
    return RunResult(bool(outcome.stop_reason))


class TrainingRunJob(NamedTuple):
    """Trains planned runs in another process."""

    budget: Budget
    device: str

    def setup(self, *, is_shared: bool) -> Callable[[PlannedRun], RunResult]:
        """Return the function that trains a run; whatever it raises becomes a message."""
        del is_shared
        return self._train

    def _train(self, planned: PlannedRun) -> RunResult:
        try:
            return train_in_process(planned, self.budget, self.device)
        except Exception as error:  # the other runs are still to be trained
            traceback.print_exc()
            return RunResult(False, f"{type(error).__name__}: {error}")


def train_in_subprocess(planned: PlannedRun, budget: Budget, device: str) -> RunResult:
    """Train in a child process: its peak memory is its own, and if it is killed we go on.

    A signal to stop is passed on to the child, which saves a checkpoint first.
    """
    job = TrainingRunJob(budget, device)
    with (
        # With our arguments: the run records the command that trained it.
        WorkerProcess(job, name=str(planned.folder), argv=sys.argv) as worker,
        handle_stop_signals(on_stop=worker.terminate) as is_interrupted,
    ):
        try:
            result = worker.run(planned)
        except WorkerDiedError as error:
            result = RunResult(False, error.message)
        return RunResult(False) if is_interrupted() else result


class NothingTrainedError(HeedfulError):
    """A comparison of which no training came to its end."""

    exit_code = 1


def run_comparison(
    plans: Sequence[PlannedRun],
    budget: Budget,
    evaluation_set: EvaluationSet,
    *,
    command: str,
    baseline: str | None = None,
    device: str = "auto",
    log_message: Callable[[str], None],
    train_run: TrainRun = train_in_subprocess,
) -> Comparison | None:
    """Train every run under the budget and compare them; nothing if it was interrupted.

    Runs that fail are told of in the comparison. Where the baseline is among them, the first
    system that is left takes its place.
    """
    if baseline:
        find_baseline(group_plans(plans), baseline)
    for planned in plans:
        check_unchanged(planned, budget)
    is_over, failures = train_all(
        plans, budget, device=device, log_message=log_message, train_run=train_run
    )
    if not is_over:
        return None
    failed = {failure.run for failure in failures}
    left = group_plans([planned for planned in plans if str(planned.folder) not in failed])
    if not left:
        name, run, problem = failures[0]
        raise NothingTrainedError(
            run, f"no training came to its end; {name}: {problem}", "mend that, and try again"
        )
    about = ComparisonInfo(command, budget.text, failures)
    named = baseline if baseline in {entrant.name for entrant in left} else None
    return compare_runs(left, evaluation_set, info=about, baseline=named, device=device)


def group_plans(plans: Sequence[PlannedRun]) -> list[SystemRuns]:
    """The systems of a plan: each recipe, with a run for each seed."""
    systems = dict[str, SystemRuns]()
    for name, recipe, folder in plans:
        before = systems.get(name, SystemRuns(name, recipe, []))
        systems[name] = before._replace(folders=[*before.folders, folder])
    return list(systems.values())
