"""Beginnings: the first weights of a model, new or those of another run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from heedful.errors import ConfigError, RunError
from heedful.experiment.batch_size import with_largest_batch_size, with_saved_batch_size
from heedful.experiment.data_modules import load_data
from heedful.experiment.training_loop import TrainingLoop, TrainingResult
from heedful.recipes import Recipe
from heedful.runs import Run, resolve_device
from heedful.storage import clean_up_interrupted
from heedful.storage.atomic import lock_folder
from heedful.training.checkpoints import CheckpointManager, Snapshot
from heedful.training.config import TrainingConfig
from heedful.training.distributed import DistributedContext
from heedful.training.process_group import init_distributed, main_process_first
from heedful.training.progress import print_line
from heedful.training.state import TrainingLimits, TrainingProgress, read_progress

_SETTING = "training.init_from"


def initialize_from_run(initial: str, run: Run, recipe: Recipe) -> None:
    """Begin a run with the vocabulary of another, whose weights will be begun with."""
    other = Run(initial)
    other.verify()
    theirs = other.read_recipe()
    if theirs.tokenizers != recipe.tokenizers:
        raise ConfigError(
            f"{_SETTING}={initial}",
            "that run cuts text in another way, so its weights mean other tokens",
            "give the settings under `text` that its config.yaml has",
        )
    run.initialize(recipe, other.read_tokenizers(theirs))


# Resuming: may this recipe go on in that folder, and what changes if it does?
#
# A run goes on by the settings it was begun with. What only says how long it goes on, how often it
# is looked at and what is kept may change: so a finished run is extended.

RESUMABLE_SETTINGS = (
    "info",
    "decoding",
    "training.max_steps",
    "training.max_epochs",
    "training.max_minutes",
    "training.max_flops",
    "training.max_nonfinite_steps",
    "training.patience",
    "training.validate_every",
    "training.max_eval_samples",
    "training.num_logged_samples",
    "training.save_every",
    "training.checkpoints",
    "training.distributed_strategy",
)


class SettingChange(NamedTuple):
    """A setting that is not what it was."""

    setting: str
    old: object
    new: object


def check_resume_compatible(run: Run, recipe: Recipe, log_message: Callable[[str], None]) -> None:
    """Make a recipe that of a run that exists, or say why it cannot be."""
    changes = list(_diff_settings(run.read_recipe().model_dump(), recipe.model_dump()))
    for at, old, new in changes:
        if not _is_resumable(at):
            raise RunError(
                str(run.folder),
                f"the folder holds a run with {at}={old}, but now it is {new}",
                "give the settings it was begun with to go on, or another folder with --run",
            )
    for at, old, new in changes:
        log_message(f"{run.folder}: {at} was {old} and is now {new}")
    if changes:
        run.replace_recipe(recipe)


def finished_progress(config: TrainingConfig, snapshot: Snapshot) -> TrainingProgress | None:
    """Give how far a run came that is over, if these settings take it no further."""
    progress = read_progress(snapshot)
    limits = TrainingLimits(config)
    over = limits.reached_limit(progress.usage(snapshot.step)) or limits.early_stopping_reason(
        progress
    )
    return progress if progress.stop_reason and over else None


def _is_resumable(at: str) -> bool:
    return any(at == free or at.startswith(f"{free}.") for free in RESUMABLE_SETTINGS)


def _diff_settings(old: Any, new: Any, at: str = "") -> Iterator[SettingChange]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            inner = f"{at}.{key}" if at else str(key)
            yield from _diff_settings(old.get(key), new.get(key), inner)
    elif old != new:
        yield SettingChange(at, old, new)


# Training: the way from a recipe to a trained run, in order.


def train(
    recipe: Recipe,
    output_dir: Path | str,
    *,
    device: str = "auto",
    console: Console | None = None,
    report_to: Sequence[str] = (),
    auto_find_batch_size: bool = False,
    memory_limit: int | None = None,
) -> TrainingResult:
    """Train by a recipe into a folder, or go on where that was interrupted.

    `track` names trackers that are told how it goes; `auto_find_batch_size` looks for the largest batch that
    fits into memory, or into `memory_limit` bytes.
    """
    run = Run(output_dir)
    with ExitStack() as stack:
        ranks, local_device = stack.enter_context(
            init_distributed(resolve_device(device), recipe.training.distributed_strategy)
        )
        console = (
            (console or Console(stderr=True)) if ranks.is_main_process else Console(quiet=True)
        )
        if ranks.is_main_process:
            stack.enter_context(lock_folder(run.folder))
        tell = _message_logger(console)
        if auto_find_batch_size:
            recipe = with_saved_batch_size(recipe, run)
        checkpoints = CheckpointManager(run.checkpoints, recipe.training.checkpoints, tell)
        stack.callback(checkpoints.close)
        snapshot = main_process_first(
            ranks, lambda: _find_snapshot(run, recipe, checkpoints, ranks, tell)
        )
        if snapshot and (progress := finished_progress(recipe.training, snapshot)):
            tell(f"{run.folder}: already trained ({progress.stop_reason}) at step {snapshot.step}")
            return TrainingResult.from_progress(snapshot.step, progress)
        corpora = main_process_first(ranks, lambda: load_data(recipe, run, console))
        if auto_find_batch_size and snapshot is None:
            recipe = with_largest_batch_size(
                recipe, corpora, run, local_device, ranks, limit=memory_limit, log_message=tell
            )
        session = TrainingLoop(
            recipe,
            run,
            corpora,
            checkpoints,
            dist_context=ranks,
            device=local_device,
            console=console,
        )
        return session.run(snapshot, report_to)


def _message_logger(console: Console) -> Callable[[str], None]:
    return lambda line: print_line(console, line)


def _find_snapshot(
    run: Run,
    recipe: Recipe,
    checkpoints: CheckpointManager,
    dist_context: DistributedContext,
    log_message: Callable[[str], None],
) -> Snapshot | None:
    """Find where a run stands: nowhere, if it is only beginning."""
    if run.exists:
        if dist_context.is_main_process:
            clean_up_interrupted(run.folder)
            check_resume_compatible(run, recipe, log_message)
        return checkpoints.load()
    if run.checkpoints.exists():
        raise RunError(
            str(run.checkpoints),
            "checkpoints lie here without the config.yaml they were trained by",
            "put config.yaml and text/ back, or name another folder with --run",
        )
    if recipe.training.init_from is not None:
        initialize_from_run(recipe.training.init_from, run, recipe)
    return None
