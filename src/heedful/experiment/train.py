"""Train a recipe into a run folder: start, resume, extend or finish; the training loop.

Invariant: a run that was interrupted and resumed takes the same steps, and validates and saves at
the same steps, as one that was not. Only settings that say how long training runs, how it is
monitored and what is kept may change on resume; that is how a finished run is extended.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any, ParamSpec

import torch
from rich.console import Console

from heedful.config import (
    SettingsArgument,
    check_types,
    differences,
    fields_with_role,
    to_overrides,
)
from heedful.data.shuffling import DataCursor
from heedful.errors import ConfigError, RunError, StorageError, check, format_count
from heedful.experiment.batch_size import with_largest_batch_size, with_saved_batch_size
from heedful.experiment.data_modules import load_data
from heedful.experiment.environment import (
    InterruptedUnsavedError,
    StopSignalLogger,
    handle_stop_signals,
    notify_on_signal,
    restore_stop_signals,
)
from heedful.experiment.flops import measure_speed
from heedful.experiment.job import BAD_STEPS_FOLDER, TrainingJob
from heedful.experiment.plan import (
    DataArgument,
    PairsArgument,
    TrainingPlan,
    load_recipe_with_data,
    run_folder,
)
from heedful.experiment.ranks import join_ranks
from heedful.openmp import WAIT_POLICY
from heedful.recipes.recipe import RecipeArgument
from heedful.runs import Run, resolve_device
from heedful.storage.atomic import clean_up_interrupted, lock_folder
from heedful.training.callbacks import Callback
from heedful.training.checkpoints import CheckpointManager, Snapshot
from heedful.training.config import TrainingConfig
from heedful.training.distributed import DistributedContext
from heedful.training.prefetching import prefetch
from heedful.training.progress import log_line, log_to_file
from heedful.training.state import (
    ResumableBatches,
    TrainingProgress,
    TrainingResult,
    check_max_steps,
    finished_progress,
)
from heedful.training.trainer import PendingStep

LOG_FILE = "train.log"
_SHORT_STEP_FLOPS = 1e10  # a second on a slow CPU
Parameters = ParamSpec("Parameters")


@check_types
def train(
    recipe: RecipeArgument = "default",
    run: Path | str | None = None,
    *,
    data: DataArgument = None,
    minutes: float | None = None,
    steps: int | None = None,
    settings: SettingsArgument | None = None,
    device: str | torch.device = "auto",
    callbacks: Sequence[Callback] = (),
    report_to: Sequence[str] = (),
    console: Console | None = None,
    auto_find_batch_size: bool = False,
    memory_limit: int | None = None,
    **files: PairsArgument,
) -> TrainingResult:
    """Train a recipe into a run folder, or resume the run that is there.

    `recipe` is a name, a YAML file, a dict of settings or a `Recipe`; `run` is the folder,
    runs/RECIPE by default. Data that is given replaces all data of the recipe: files by the names
    of the command line, such as `data={"labeled": "train.tsv", "dev_labeled": "dev.tsv"}`, or as
    keywords; one file of the recipe's task; or an iterable of pairs (source, target). These are
    written to RUN/pairs.jsonl, so that the same call resumes. `settings` change the recipe.

    `report_to` names trackers; `auto_find_batch_size` looks for the largest batch that fits into
    memory, or into `memory_limit` bytes. What the recipe cannot do is reported before anything is
    read or written, except for pairs.
    """
    folder = Run(run_folder(recipe, run))
    torch_device = resolve_device(device)
    limits = {"training.max_minutes": minutes, "training.max_steps": steps}
    changes = to_overrides({name: limit for name, limit in limits.items() if limit is not None})
    changes += to_overrides(settings or ())
    config = load_recipe_with_data(
        recipe, folder, data=data, files=files, settings=changes, device=torch_device
    )
    plan = TrainingPlan(
        config,
        folder,
        torch_device,
        console or Console(stderr=True),
        callbacks,
        report_to,
        auto_find_batch_size=auto_find_batch_size,
        memory_limit=memory_limit,
    )
    return run_plan(plan)


def _interrupting(
    function: Callable[Parameters, TrainingResult],
) -> Callable[Parameters, TrainingResult]:
    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> TrainingResult:
        result = function(*args, **kwargs)
        if not result.stop_reason:
            raise KeyboardInterrupt(f"saved at step {result.step}; the same call resumes")
        return result

    return run


train_or_interrupt = _interrupting(train)
"""`heedful.train`: Ctrl-C raises KeyboardInterrupt after a checkpoint is saved."""


def run_plan(plan: TrainingPlan) -> TrainingResult:
    """Start, resume, extend or finish the run of a plan; with a launcher, each rank calls it."""
    plan = plan.checked()
    with restore_stop_signals(), join_ranks(plan, train_rank) as (dist_context, device):
        return train_rank(plan, dist_context, device)


def train_rank(
    plan: TrainingPlan, dist_context: DistributedContext, device: torch.device
) -> TrainingResult:
    """Train a plan that was checked; with multiple ranks, each calls it."""
    with ExitStack() as stack:
        console = stack.enter_context(_open_run(plan, dist_context))
        plan = replace(plan, device=device, console=console)
        _warn_if_threads_spin(device, plan.log)
        if dist_context.shares_parameters:
            threads = format_count(torch.get_num_threads(), "thread")
            plan.log(f"training in {dist_context.world_size} processes of {threads} each")
        if plan.auto_find_batch_size:
            plan = with_saved_batch_size(plan)
        checkpoints = CheckpointManager(plan.run.checkpoints, plan.config.checkpoints, plan.log)
        stack.callback(checkpoints.close)
        notice = StopSignalLogger(plan.log)
        stack.enter_context(notify_on_signal(notice))
        is_changed = dist_context.is_main_process and check_resume_compatible(plan)
        snapshot = dist_context.main_process_first(lambda: find_snapshot(plan, checkpoints))
        if snapshot and (progress := find_finished(plan, snapshot)):
            if is_changed:
                plan.run.replace_recipe(plan.recipe)
            return TrainingResult.from_progress(snapshot.step, progress)
        data_module = dist_context.main_process_first(
            lambda: load_data(plan.recipe, plan.run, console)
        )
        if plan.auto_find_batch_size and snapshot is None:
            plan = with_largest_batch_size(plan, data_module, dist_context)
        job = TrainingJob(plan, data_module, checkpoints, dist_context)
        if snapshot is None:
            job.start()
        else:
            job.resume(snapshot)
        dist_context.barrier()  # ranks may share parameters, which are all there now
        if is_changed:  # not before: it may fail above
            plan.run.replace_recipe(plan.recipe)
        return _run_job(job, notice)


@contextmanager
def _open_run(plan: TrainingPlan, dist_context: DistributedContext) -> Iterator[Console]:
    """Lock the run and log into it; yield the console, which is quiet but on the main process."""
    if not dist_context.is_main_process:
        yield Console(quiet=True)
        return
    run = plan.run
    with lock_folder(run.folder):
        clean_up_interrupted(run.folder, run.folder / BAD_STEPS_FOLDER)
        try:
            with log_to_file(run.folder / LOG_FILE):
                yield plan.console
        finally:
            if not run.exists:  # training failed before there was a run
                (run.folder / LOG_FILE).unlink(missing_ok=True)


def _warn_if_threads_spin(device: torch.device, log: Callable[[str], None]) -> None:
    """Log a warning if OpenMP was loaded before heedful could set how its threads wait."""
    is_parallel = device.type == "cpu" and torch.get_num_threads() > 1
    if is_parallel and WAIT_POLICY not in os.environ:
        log("torch was imported before heedful, so its threads spin while they wait; on a busy")
        log("  machine that is slow: import heedful first, or set OMP_WAIT_POLICY=PASSIVE")


def _run_job(job: TrainingJob, notice: StopSignalLogger) -> TrainingResult:
    batches = prefetch(job.data_module.train_batches(job.progress.cursor), job.trainer)
    with handle_stop_signals() as stop_requested, job.callbacks() as callbacks:

        def check_stop_requested() -> bool:
            notice.raise_second_signal()
            return stop_requested()

        notice.get_step, job.stop_requested = lambda: job.trainer.step, check_stop_requested
        try:
            result = run_training(job, batches, callbacks)
            notice.finish()
            end = result.stop_reason or "saved; training was interrupted"
            log_line(f"step {result.step}: {end}")
        except StorageError as error:
            if stop_requested():
                raise InterruptedUnsavedError(error.location, error.message, error.hint) from error
            raise
        return result


class PendingSteps:
    """Steps whose losses were not yet read: a GPU waits while they are."""

    def __init__(self, job: TrainingJob, callbacks: Sequence[Callback]) -> None:
        self._job, self._callbacks = job, callbacks
        self._steps: list[tuple[PendingStep, DataCursor]] = []

    def append(self, started: PendingStep, cursor: DataCursor) -> None:
        """Add a step; one in `loss_sync_interval` waits for all of them."""
        self._steps.append((started, cursor))
        if started.step % self._job.trainer.loss_sync_interval == 0:
            self.finish()

    def finish(self) -> None:
        """Wait for all steps, and tell their losses to callbacks."""
        for started, cursor in self._steps:
            self._job.finish_step(started, cursor, self._callbacks)
        self._steps.clear()


def announce_long_step(job: TrainingJob, micro_batches: Sequence[Any]) -> None:
    """Log, before the first step, that steps will take more than a minute, or all of the time."""
    num_targets = sum(batch.num_targets for batch in micro_batches)
    flops, minutes = num_targets * job.flops_per_target, job.config.max_minutes
    if flops < _SHORT_STEP_FLOPS:
        return
    seconds = flops / measure_speed(job.plan.device)
    if seconds < 60 * min(1, minutes or 1):
        return
    line = f"a step takes about {seconds:,.0f} seconds on this device ({flops:.2g} FLOPs)"
    if minutes and seconds > 60 * minutes:
        line += f", longer than training.max_minutes={minutes:g}"
    advice = f"lower {job.plan.recipe.task.data.batch_size_setting}, or choose a smaller model"
    job.log(f"{line}; {advice}")


def run_training(
    job: TrainingJob, batches: ResumableBatches, callbacks: Sequence[Callback]
) -> TrainingResult:
    """Train until a limit is reached, training is interrupted or the batches run out.

    Callbacks observe and cannot steer. With multiple ranks, each has a job and calls it in step.
    """
    config, trainer, progress = job.config, job.trainer, job.progress
    stream = iter(batches)
    unfinished = PendingSteps(job, callbacks)
    while micro_batches := list(islice(stream, config.gradient_accumulation_steps)):
        if trainer.step == 0:
            announce_long_step(job, micro_batches)
        trainer.model.train()
        started = trainer.start_step(micro_batches)
        job.record_step(started, batches.cursor)
        unfinished.append(started, batches.cursor)
        limit = job.limits.reached(started.step, progress)
        limit, is_interrupted, is_early = job.sync_stop_flags(limit)
        is_regular = bool(limit) or job.is_validation_due()
        is_validated = is_regular or (is_early and not is_interrupted)
        is_saved = config.save_every is not None and started.step % config.save_every == 0
        if is_validated or is_saved or is_interrupted:
            unfinished.finish()
        if is_validated:
            result = job.validate(is_early=not is_regular)
            for callback in callbacks:
                callback.on_validation_end(result)
            _, is_interrupted, _ = job.sync_stop_flags("")  # a signal may have come meanwhile
        progress.stop_reason = limit or job.limits.early_stopping_reason(progress)
        is_last = bool(progress.stop_reason) or is_interrupted
        if is_last or is_validated or is_saved:
            score = progress.scores[-1] if is_regular else None
            job.save_checkpoint(score=score, is_last=is_last)
        if is_last:
            break
    unfinished.finish()
    return TrainingResult.from_progress(trainer.step, progress)


# ----- what a run folder holds already: its last checkpoint, and settings that may differ now

_RESUMABLE_SETTINGS = (
    "info",
    "decoding",
    "evaluation",
    *(f"training.{name}" for name in fields_with_role(TrainingConfig, "limit", "execution")),
)


def find_snapshot(plan: TrainingPlan, checkpoints: CheckpointManager) -> Snapshot | None:
    """Return the last good checkpoint; None if the run only starts."""
    run, recipe = plan.run, plan.recipe
    if run.exists:
        return checkpoints.load()
    message = "there are checkpoints here, but not the config.yaml they were trained with"
    hint = "restore config.yaml and tokenizers/, or use another folder with --run"
    check(not run.has_checkpoints, str(run.checkpoints), message, hint, RunError)
    init_from = recipe.training.init_from
    if init_from is not None:  # the weights of that run need its tokenizers
        other = Run(init_from)
        other.verify()
        other_recipe = other.read_recipe()
        message = "that run uses a different tokenizer, so its weights do not match"
        hint = "copy the section `tokenizers` from its config.yaml"
        is_same = other_recipe.tokenizers == recipe.tokenizers
        check(is_same, f"training.init_from={init_from}", message, hint)
        run.initialize(recipe, other.read_tokenizers(other_recipe), other.original_files())
    return None


def find_finished(plan: TrainingPlan, snapshot: Snapshot) -> TrainingProgress | None:
    """Return the progress of a run that is finished under its limits; None if it is not."""
    folder = plan.run.folder
    check_max_steps(plan.config.max_steps, snapshot.step, location=str(folder))
    if progress := finished_progress(plan.recipe.limits, snapshot):
        plan.log(f"{folder}: already trained ({progress.stop_reason}) at step {snapshot.step}")
    return progress


def _discard_if_changed(plan: TrainingPlan) -> None:
    """Discard the recipe of a run that was never saved if another one follows."""
    try:
        is_same = plan.run.read_recipe() == plan.recipe
    except ConfigError:
        is_same = False
    if not is_same:
        plan.log(f"{plan.run.folder}: has no checkpoint yet; starting over with these settings")
        plan.run.discard_recipe()


def check_resume_compatible(plan: TrainingPlan) -> bool:
    """Return whether settings differ from those of the run, and log them; raise if one may not.

    A run that was never saved starts over instead, whatever differs.
    """
    run = plan.run
    if not run.exists:
        return False
    if not run.is_saved:
        _discard_if_changed(plan)
        return False
    changes = list(differences(run.read_recipe(), plan.recipe))
    for name, old, new in changes:
        may_change = any(f"{name}.".startswith(f"{prefix}.") for prefix in _RESUMABLE_SETTINGS)
        message = f"this run was started with {name}={old}, but now it is {new}"
        hint = "use the settings it was started with to resume, or another folder with --run"
        check(may_change, str(run.folder), message, hint, RunError)
    for name, old, new in changes:
        plan.log(f"{run.folder}: {name} was {old} and is now {new}")
    return bool(changes)
