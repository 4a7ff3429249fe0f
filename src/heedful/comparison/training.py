"""Training of the runs of a comparison: their data, the plan, and one run after the other.

Data are a built-in corpus, the data of a recipe, or a folder of files.

All recipes are trained with one seed before the next seed, so that an interrupted comparison has a
run of each. Finished runs are not trained again, an interrupted run is resumed, and if a run fails,
the others are trained and compared. All checks are made before the first step.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from heedful.comparison.budget import BUDGET_SETTINGS, Budget
from heedful.comparison.results import Comparison, Failure
from heedful.comparison.systems import SystemRuns, check_same_task, compare_runs, find_baseline
from heedful.comparison.test_sets import EvaluationSet
from heedful.config import Settings, fields_with_role, flatten_settings, to_overrides
from heedful.config.base import type_of
from heedful.data.sources import SyntheticConfig
from heedful.errors import (
    ConfigError,
    HeedfulError,
    RunError,
    check,
    choices_hint,
    did_you_mean,
    format_count,
)
from heedful.experiment import train
from heedful.experiment.environment import handle_stop_signals
from heedful.experiment.plan import complete_default
from heedful.parallel import WorkerDiedError, WorkerProcess
from heedful.recipes import Recipe, load_recipe, recipe_names
from heedful.recipes.recipe import DEFAULT_RECIPE, DataConfig
from heedful.runs import Run, resolve_device
from heedful.tasks.command_line import Split
from heedful.tasks.registry import all_tasks
from heedful.tasks.task import Task
from heedful.training.checkpoints import CheckpointManager
from heedful.training.state import finished_progress

SPLITS: tuple[Split, ...] = ("train", "dev", "test")
_BATCHING = fields_with_role(DataConfig, "batching")
_NUM_TRIED = 20  # examples of a built-in corpus, to see whether it fits a task


class Dataset(NamedTuple):
    """Data that replace the data of a recipe."""

    data: Settings
    tokenizers: Settings | None = None  # None keeps those of each recipe

    def overrides(self, recipe: Recipe) -> list[str]:
        """Return overrides for a recipe; it keeps how its examples are batched."""
        batching = recipe.data.model_dump(mode="json", include={*_BATCHING})
        overrides = [f"data={json.dumps({**batching, **self.data})}"]
        if self.tokenizers is not None:
            overrides.append(f"tokenizers={json.dumps(self.tokenizers)}")
        return overrides


def task_of_dataset(name: str) -> Task:
    """Return the task of a recipe with data, else the first task with such examples."""
    for task in all_tasks():
        if name in built_in_corpora(task) or Path(name).is_dir():
            with suppress(ConfigError):
                find_dataset(name, task)
                return task
    return load_recipe(name).task if _is_recipe(name) else all_tasks()[0]


def _is_recipe(name: str) -> bool:
    return name in recipe_names() or name.endswith((".yaml", ".yml"))


def find_dataset(name: str, task: Task) -> Dataset:
    """Find the dataset of a name, as examples of this task."""
    corpora = built_in_corpora(task)
    if name in corpora and _fits(task, name, corpora[name]):
        return _built_in_dataset(name, corpora[name])
    if (folder := Path(name)).is_dir():
        return _dataset_from_folder(folder, task)
    if _is_recipe(name):
        return _dataset_from_recipe(name)
    names = [other for other, config in corpora.items() if _fits(task, other, config)]
    message = f"no dataset is called {name!r}{did_you_mean(name, [*names, *recipe_names()])}"
    if any(name in built_in_corpora(other) for other in all_tasks()):
        message = f"this built-in corpus has no {task.data.example_format.description}"
    choices = f"{choices_hint(names)}; or give" if names else "give"
    hint = f"{choices} a recipe with data, a .yaml file or a folder"
    raise ConfigError(f"--data {name}", message, hint)


def built_in_corpora(task: Task) -> Mapping[str, type[SyntheticConfig]]:
    """Return the source configs of the corpora that heedful generates for a task, by name."""
    configs = [config for config in task.data.source_configs if issubclass(config, SyntheticConfig)]
    return {name: config for config in configs for name in config.corpus_names()}


def _fits(task: Task, name: str, config: type[SyntheticConfig]) -> bool:
    """Return whether a corpus of texts has examples of a task; other corpora are of one task."""
    if not task.data.example_format.has_tokens:
        return True
    source: Any = config.model_validate({"name": name, "num_examples": _NUM_TRIED})
    return task.data.example_format.fits(list(islice(source.stream(), _NUM_TRIED)))


def _built_in_dataset(name: str, config: type[SyntheticConfig]) -> Dataset:
    corpus = {"type": str(type_of(config)), "name": name}
    sizes = config.default_sizes.items()
    return Dataset({split: {**corpus, "split": split, "num_examples": n} for split, n in sizes})


def _dataset_from_folder(folder: Path, task: Task) -> Dataset:
    options = task.data.file_options
    settings = {split: options.folder_setting(folder, split) for split in SPLITS}
    message = f"the folder has no {options.expected_files()}"
    hint = "rename the files, or write a .yaml file with a `data` section"
    check(settings["train"], f"--data {folder}", message, hint)
    return Dataset({split: setting for split, setting in settings.items() if setting})


def _dataset_from_recipe(name: str) -> Dataset:
    recipe = load_recipe(name)
    message = "the recipe has no training data"
    hint = "name a recipe with `data.train`, a built-in corpus or a folder"
    check(recipe.data.train is not None, f"--data {name}", message, hint)
    settings = recipe.model_dump(mode="json")
    data: dict[str, Any] = settings["data"]
    for default in {*_BATCHING} - recipe.data.model_fields_set:
        del data[default]
    has_tokenizers = "tokenizers" in recipe.model_fields_set
    return Dataset(data, settings["tokenizers"] if has_tokenizers else None)


# ----- the plan -----

RUNS = "runs"
"""Subfolder of a comparison for the runs that it trains."""


class PlannedRun(NamedTuple):
    """A run to be trained."""

    name: str  # of the system
    recipe: Recipe  # without the limits of the budget
    folder: Path


def plan_runs(
    recipes: Sequence[str],
    data: str,
    *,
    seeds: int,
    folder: Path,
    overrides: Sequence[str] = (),
    device: str = "auto",
) -> list[PlannedRun]:
    """Plan a run for each recipe and seed; seeds count from the one of the recipe.

    `default` is the default recipe for the data, sized for them and the device.
    """
    names = [Path(recipe).stem for recipe in recipes]
    for name in names:
        message = f"two recipes are called {name!r}"
        check(names.count(name) == 1, "--recipes", message, "rename one of them")
    named = [recipe for recipe in recipes if recipe != DEFAULT_RECIPE]
    task = load_recipe(named[0]).task if named else task_of_dataset(data)
    default = task.default_recipe(torch.device("cpu"), None).name
    originals = [load_recipe(default if name == DEFAULT_RECIPE else name) for name in recipes]
    check_same_task(list(zip(names, originals, strict=True)))
    dataset = find_dataset(data, originals[0].task)
    adapted = []
    for recipe, original in zip(recipes, originals, strict=True):
        try:
            settings = [*dataset.overrides(original), *overrides]
            if recipe == DEFAULT_RECIPE:
                sized = complete_default(to_overrides(settings), resolve_device(device), task.name)
            else:
                sized = load_recipe(recipe, settings)
            adapted.append(sized)
        except ConfigError as error:  # its location is an override that the user did not write
            location = f"--recipes {recipe}: {error.location.removeprefix('--set ')}"
            raise ConfigError(location, error.message, error.hint) from None
    plans = []
    for index in range(seeds):
        for name, config in zip(names, adapted, strict=True):
            training = config.training.model_copy(update={"seed": config.training.seed + index})
            seeded = config.model_copy(update={"training": training})
            plans.append(PlannedRun(name, seeded, folder / RUNS / f"{name}-{index}"))
    return plans


def check_unchanged(planned: PlannedRun, budget: Budget) -> None:
    """Raise RunError if the folder has a run with other settings or another budget."""
    run = Run(planned.folder)
    if not (run.exists and run.is_saved):
        return
    recipe = run.read_recipe()
    old, new = (
        dict(flatten_settings(config.model_dump(mode="json", exclude={"info", "evaluation"})))
        for config in (recipe, planned.recipe)
    )
    overridden = {f"training.{name}" for name in BUDGET_SETTINGS}
    names = [name for name in old | new if name not in overridden]
    changes = [name for name in names if old.get(name) != new.get(name)]
    message = "the folder has a run with another budget"
    if changes:
        values = f"{changes[0]}={old.get(changes[0])}, but now it is {new.get(changes[0])}"
        message = f"the folder has a run with {values}"
    hint = "run the command it was started with, remove the folder, or choose another --output-dir"
    is_unchanged = not changes and recipe == budget.applied_to(recipe)
    check(is_unchanged, str(planned.folder), message, hint, RunError)


def group_plans(plans: Sequence[PlannedRun]) -> list[SystemRuns]:
    """Return the systems of a plan: the runs of each recipe."""
    systems: dict[str, SystemRuns] = {}
    for name, recipe, folder in plans:
        system = systems.get(name, SystemRuns(name, recipe, []))
        systems[name] = system._replace(folders=[*system.folders, folder])
    return list(systems.values())


# ----- training -----


class RunResult(NamedTuple):
    """How a training ended."""

    is_finished: bool
    error_message: str = ""  # empty if it is finished or was interrupted


TrainRun = Callable[[PlannedRun, Budget, str], RunResult]


def train_all(
    plans: Sequence[PlannedRun],
    budget: Budget,
    *,
    device: str = "auto",
    log_message: Callable[[str], None],
    train_run: TrainRun,
) -> list[Failure] | None:
    """Train each run of a plan that is not finished; return None if it was interrupted."""
    failures: list[Failure] = []
    unfinished = [planned for planned in plans if not _is_finished(planned, budget)]
    count = len(unfinished)
    if count < len(plans):
        log_message(f"already trained: {len(plans) - count} of {format_count(len(plans), 'run')}")
    start = time.monotonic()
    for index, planned in enumerate(unfinished):
        name, recipe, folder = planned
        message = f"run {index + 1} of {count}: {name}, seed {recipe.training.seed}"
        run_seconds = (time.monotonic() - start) / index if index else budget.seconds
        left = ""
        if run_seconds is not None:
            seconds = run_seconds * (count - index)
            duration = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
            left = f"; about {duration} left"
        log_message(f"{message}, for {budget.text}{left}")
        result = train_run(planned, budget, device)
        if result.error_message:
            log_message(f"{folder}: failed: {result.error_message}")
            failures.append(Failure(name, str(folder), result.error_message))
        elif not result.is_finished:
            return None
    return failures


def _is_finished(planned: PlannedRun, budget: Budget) -> bool:
    run = Run(planned.folder)
    if not run.exists or not run.checkpoints.exists():
        return False
    recipe = run.read_recipe()
    if recipe != budget.applied_to(recipe):
        return False
    checkpoints = CheckpointManager(run.checkpoints, recipe.training.checkpoints, lambda line: None)
    snapshot = checkpoints.load()
    checkpoints.close()
    return snapshot is not None and finished_progress(recipe.limits, snapshot) is not None


def train_in_process(planned: PlannedRun, budget: Budget, device: str) -> RunResult:
    """Train in this process."""
    try:
        result = train(budget.applied_to(planned.recipe), planned.folder, device=device)
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

        def train_planned(planned: PlannedRun) -> RunResult:
            try:
                return train_in_process(planned, self.budget, self.device)
            except Exception as error:  # the other runs are still to be trained
                traceback.print_exc()
                return RunResult(False, f"{type(error).__name__}: {error}")

        return train_planned


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
    """Train each run under the budget and compare them; return None if it was interrupted.

    It lists failed runs. If the baseline has failed, the first remaining system takes its place.
    """
    if baseline:
        find_baseline(group_plans(plans), baseline)
    for planned in plans:
        check_unchanged(planned, budget)
    failures = train_all(plans, budget, device=device, log_message=log_message, train_run=train_run)
    if failures is None:
        return None
    failed = {failure.run for failure in failures}
    systems = group_plans([planned for planned in plans if str(planned.folder) not in failed])
    if not systems:
        name, run, error = failures[0]
        message = f"every training failed; {name}: {error}"
        raise NothingTrainedError(run, message, "fix the error, and try again")
    return compare_runs(
        systems,
        evaluation_set,
        command=command,
        budget=budget.text,
        failures=failures,
        baseline=baseline if baseline in {system.name for system in systems} else None,
        device=device,
    )
