"""Trainings: the runs of a plan, one after the other.

Each is trained in a process of its own: there the peak of memory is its own, and what kills it
kills nothing else. A run that is over is not trained again, one that was interrupted goes on, and
one that fails is written down while the others go on.
"""

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

from heedful.comparison.budgets import Budget
from heedful.comparison.plans import Planned
from heedful.comparison.results import Failure
from heedful.errors import HeedfulError
from heedful.experiment import train
from heedful.experiment.resuming import finished
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.training.checkpoints import Checkpoints
from heedful.training.interrupts import listening_for_interrupts

_SERVE = "from heedful.comparison.trainings import serve; serve()"
_GLANCE = 0.1  # seconds between looks at whether someone wants to stop


class Ended(NamedTuple):
    """How a training came out."""

    is_over: bool
    problem: str = ""  # nothing if it is over, or was interrupted


class Trained(NamedTuple):
    """How a plan came out."""

    is_over: bool  # or else it was interrupted
    failures: Sequence[Failure]


TrainOne = Callable[[Planned, Budget, str], Ended]


def train_all(
    plans: Sequence[Planned],
    budget: Budget,
    *,
    device: str = "auto",
    tell: Callable[[str], None],
    train_one: TrainOne,
) -> Trained:
    """Train every run of a plan that is not over."""
    failures = list[Failure]()
    left = [planned for planned in plans if not _is_over(planned, budget)]
    if len(left) < len(plans):
        tell(f"{len(plans) - len(left)} of {len(plans)} runs are trained already")
    began = time.monotonic()
    for number, planned in enumerate(left):
        tell(_turn(planned, number, len(left), time.monotonic() - began, budget))
        ended = train_one(planned, budget, device)
        if ended.problem:
            tell(f"{planned.folder}: failed: {ended.problem}")
            failures.append(Failure(planned.name, str(planned.folder), ended.problem))
        elif not ended.is_over:
            return Trained(False, failures)
    return Trained(True, failures)


def _turn(planned: Planned, number: int, count: int, seconds: float, budget: Budget) -> str:
    """Say which run it is the turn of, and about how long all that are left will take."""
    each = budget.seconds if not number else seconds / number
    left = "" if each is None else f"; about {_in_words(each * (count - number))} left"
    seed = planned.recipe.training.seed
    return f"run {number + 1} of {count}: {planned.name}, seed {seed}, for {budget.text}{left}"


def _in_words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _is_over(planned: Planned, budget: Budget) -> bool:
    run = Run(planned.folder)
    if not run.exists or not run.checkpoints.exists():
        return False
    recipe = run.read_recipe()
    if not budget.is_whole(recipe):
        return False
    checkpoints = Checkpoints(run.checkpoints, recipe.training.checkpoints, lambda line: None)
    snapshot = checkpoints.load()
    checkpoints.close()
    return snapshot is not None and finished(recipe.training, snapshot) is not None


def train_here(planned: Planned, budget: Budget, device: str) -> Ended:
    """Train in this process."""
    try:
        outcome = budget.train(
            planned.recipe, planned.folder, lambda recipe, run: train(recipe, run, device=device)
        )
    except HeedfulError as error:
        return Ended(False, f"{error.at}: {error.problem}")
    return Ended(bool(outcome.ended))


def train_apart(planned: Planned, budget: Budget, device: str) -> Ended:
    """Train in a process of its own, which is told of a wish to stop and then waited for."""
    name, recipe, folder = planned
    asked = [name, recipe.model_dump(mode="json"), str(folder), budget, device]
    with listening_for_interrupts() as is_interrupted:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE, *sys.argv],  # the run tells of the command
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        answer = _converse(process, json.dumps(asked), is_interrupted)
        if is_interrupted():
            return Ended(False)
    return Ended(*json.loads(answer)) if answer else Ended(False, _fate(process.returncode))


def _converse(
    process: subprocess.Popen[str], asked: str, is_interrupted: Callable[[], bool]
) -> str:
    """Say what is asked, and wait for the answer; nothing if the process died."""
    said: str | None = asked
    is_told = False
    while True:
        try:
            answer, _ = process.communicate(said, timeout=_GLANCE)
        except subprocess.TimeoutExpired:
            said = None  # it is on its way
            if is_interrupted() and not is_told:
                process.send_signal(signal.SIGTERM)
                is_told = True
        else:
            return answer


def _fate(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed; perhaps memory ran out"
    return f"its process ended with code {code} and no word"


def serve() -> None:
    """Answer `train_apart`: one training."""
    name, settings, folder, budget, device = json.loads(sys.stdin.read())
    planned = Planned(name, Recipe.model_validate(settings), Path(folder))
    sys.stdout.write(json.dumps(_guarded(planned, Budget(*budget), device)))


def _guarded(planned: Planned, budget: Budget, device: str) -> tuple[Any, ...]:
    try:
        return train_here(planned, budget, device)
    except Exception as error:  # whatever it is, the other runs go on
        traceback.print_exc()
        return Ended(False, f"{type(error).__name__}: {error}")
