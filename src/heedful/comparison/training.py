"""Running a comparison: train what is planned, then compare what came of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.comparison.budget import Budget
from heedful.comparison.evaluation_sets import EvaluationSet
from heedful.comparison.plan import PlannedRun, check_unchanged
from heedful.comparison.results import Comparison, Failure
from heedful.comparison.systems import ComparisonInfo, SystemRuns, compare_runs, find_baseline
from heedful.errors import HeedfulError
from heedful.experiment import train
from heedful.experiment.environment import handle_stop_signals
from heedful.experiment.train import finished_progress
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.training.checkpoints import CheckpointManager

# Trainings: the runs of a plan, one after the other.
#
# Each is trained in a process of its own: there the peak of memory is its own, and what kills it
# kills nothing else. A run that is over is not trained again, one that was interrupted goes on, and
# one that fails is written down while the others go on.

_SERVER_CODE = "from heedful.comparison.training import serve_training; serve_training()"
_POLL_INTERVAL = 0.1  # seconds between looks at whether someone wants to stop


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


def train_in_subprocess(planned: PlannedRun, budget: Budget, device: str) -> RunResult:
    """Train in a process of its own, which is told of a wish to stop and then waited for."""
    name, recipe, folder = planned
    asked = [name, recipe.model_dump(mode="json"), str(folder), budget, device]
    with handle_stop_signals() as is_interrupted:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVER_CODE, *sys.argv],  # the run tells of the command
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        answer = _communicate(process, json.dumps(asked), is_interrupted)
        if is_interrupted():
            return RunResult(False)
    return (
        RunResult(*json.loads(answer))
        if answer
        else RunResult(False, _exit_message(process.returncode))
    )


def _communicate(
    process: subprocess.Popen[str], request: str, is_interrupted: Callable[[], bool]
) -> str:
    """Say what is asked, and wait for the answer; nothing if the process died."""
    reply: str | None = request
    is_told = False
    while True:
        try:
            answer, _ = process.communicate(reply, timeout=_POLL_INTERVAL)
        except subprocess.TimeoutExpired:
            reply = None  # it is on its way
            if is_interrupted() and not is_told:
                process.send_signal(signal.SIGTERM)
                is_told = True
        else:
            return answer


def _exit_message(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed; perhaps memory ran out"
    return f"its process ended with code {code} and no word"


def serve_training() -> None:
    """Answer `train_in_subprocess`: one training."""
    name, settings, folder, budget, device = json.loads(sys.stdin.read())
    planned = PlannedRun(name, Recipe.model_validate(settings), Path(folder))
    sys.stdout.write(json.dumps(_train_catching_errors(planned, Budget(*budget), device)))


def _train_catching_errors(planned: PlannedRun, budget: Budget, device: str) -> tuple[Any, ...]:
    try:
        return train_in_process(planned, budget, device)
    except Exception as error:  # whatever it is, the other runs go on
        traceback.print_exc()
        return RunResult(False, f"{type(error).__name__}: {error}")


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
