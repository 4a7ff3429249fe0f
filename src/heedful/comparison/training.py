"""Training the runs of a comparison, one after the other, each in its own process.

Finished runs are not trained again, an interrupted run is resumed, and if a run fails, the others
are trained and compared.
"""

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


class RunResult(NamedTuple):
    """How a training ended."""

    is_finished: bool
    error_message: str = ""  # empty if it is finished or was interrupted


class PlanResult(NamedTuple):
    """How the training of a plan ended."""

    is_finished: bool  # False if it was interrupted
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
    """Train every run of a plan that is not finished."""
    failures: list[Failure] = []
    unfinished = [planned for planned in plans if not _is_finished(planned, budget)]
    count = len(unfinished)
    if count < len(plans):
        log_message(f"{len(plans) - count} of {len(plans)} runs are already trained")
    start = time.monotonic()
    for index, planned in enumerate(unfinished):
        log_message(_progress_message(planned, index, count, time.monotonic() - start, budget))
        result = train_run(planned, budget, device)
        if result.error_message:
            log_message(f"{planned.folder}: failed: {result.error_message}")
            failures.append(Failure(planned.name, str(planned.folder), result.error_message))
        elif not result.is_finished:
            return PlanResult(False, failures)
    return PlanResult(True, failures)


def _progress_message(
    planned: PlannedRun, index: int, count: int, seconds: float, budget: Budget
) -> str:
    """Return which run comes next, and the estimated time of all that remain."""
    run_seconds = seconds / index if index else budget.seconds
    remaining = ""
    if run_seconds is not None:
        remaining = f"; about {_format_duration(run_seconds * (count - index))} left"
    seed = planned.recipe.training.seed
    return f"run {index + 1} of {count}: {planned.name}, seed {seed}, for {budget.text}{remaining}"


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
        result = budget.train(
            planned.recipe, planned.folder, lambda recipe, run: train(recipe, run, device=device)
        )
    except HeedfulError as error:
        return RunResult(False, f"{error.location}: {error.message}")
    return RunResult(bool(result.stop_reason))


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
    """A comparison without a trained run."""

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
    """Train every run under the budget and compare them; return None if it was interrupted.

    Failed runs are listed in the comparison. If the baseline has failed, the first remaining system
    is the baseline.
    """
    if baseline:
        find_baseline(group_plans(plans), baseline)
    for planned in plans:
        check_unchanged(planned, budget)
    is_finished, failures = train_all(
        plans, budget, device=device, log_message=log_message, train_run=train_run
    )
    if not is_finished:
        return None
    failed = {failure.run for failure in failures}
    systems = group_plans([planned for planned in plans if str(planned.folder) not in failed])
    if not systems:
        name, run, message = failures[0]
        raise NothingTrainedError(
            run, f"every training failed; {name}: {message}", "fix the error, and try again"
        )
    info = ComparisonInfo(command, budget.text, failures)
    baseline = baseline if baseline in {system.name for system in systems} else None
    return compare_runs(systems, evaluation_set, info=info, baseline=baseline, device=device)


def group_plans(plans: Sequence[PlannedRun]) -> list[SystemRuns]:
    """Return the systems of a plan: the runs of each recipe."""
    systems: dict[str, SystemRuns] = {}
    for name, recipe, folder in plans:
        system = systems.get(name, SystemRuns(name, recipe, []))
        systems[name] = system._replace(folders=[*system.folders, folder])
    return list(systems.values())
