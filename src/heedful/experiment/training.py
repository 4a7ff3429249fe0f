"""Training: the way from a recipe to a trained run, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from heedful.corpora import read_corpora
from heedful.errors import RunError
from heedful.experiment.beginning import begin_from
from heedful.experiment.fitting import fitted, with_recorded_batch
from heedful.experiment.resuming import finished, settle
from heedful.experiment.session import Outcome, Session
from heedful.recipes import Recipe
from heedful.runs import Run, pick_device
from heedful.storage import sweep
from heedful.training.checkpoints import Checkpoints, Snapshot
from heedful.training.distributed import in_turn, joining
from heedful.training.locks import locked
from heedful.training.progress import say
from heedful.training.ranks import Ranks


def train(
    recipe: Recipe,
    folder: Path | str,
    *,
    device: str = "auto",
    console: Console | None = None,
    track: Sequence[str] = (),
    memory_fit: bool = False,
    memory_limit: int | None = None,
) -> Outcome:
    """Train by a recipe into a folder, or go on where that was interrupted.

    `track` names trackers that are told how it goes; `memory_fit` looks for the largest batch that
    fits into memory, or into `memory_limit` bytes.
    """
    run = Run(folder)
    with ExitStack() as stack:
        ranks, place = stack.enter_context(joining(pick_device(device), recipe.training.parallel))
        console = (console or Console(stderr=True)) if ranks.is_first else Console(quiet=True)
        if ranks.is_first:
            stack.enter_context(locked(run.folder))
        tell = _teller(console)
        if memory_fit:
            recipe = with_recorded_batch(recipe, run)
        checkpoints = Checkpoints(run.checkpoints, recipe.training.checkpoints, tell)
        stack.callback(checkpoints.close)
        snapshot = in_turn(ranks, lambda: _stand(run, recipe, checkpoints, ranks, tell))
        if snapshot and (progress := finished(recipe.training, snapshot)):
            tell(f"{run.folder}: already trained ({progress.ended}) at step {snapshot.step}")
            return Outcome.of(snapshot.step, progress)
        corpora = in_turn(ranks, lambda: read_corpora(recipe, run, console))
        if memory_fit and snapshot is None:
            recipe = fitted(recipe, corpora, run, place, ranks, limit=memory_limit, tell=tell)
        session = Session(
            recipe, run, corpora, checkpoints, ranks=ranks, device=place, console=console
        )
        return session.run(snapshot, track)


def _teller(console: Console) -> Callable[[str], None]:
    return lambda line: say(console, line)


def _stand(
    run: Run,
    recipe: Recipe,
    checkpoints: Checkpoints,
    ranks: Ranks,
    tell: Callable[[str], None],
) -> Snapshot | None:
    """Find where a run stands: nowhere, if it is only beginning."""
    if run.exists:
        if ranks.is_first:
            sweep(run.folder)
            settle(run, recipe, tell)
        return checkpoints.load()
    if run.checkpoints.exists():
        raise RunError(
            str(run.checkpoints),
            "checkpoints lie here without the config.yaml they were trained by",
            "put config.yaml and text/ back, or name another folder with --run",
        )
    if recipe.training.initial is not None:
        begin_from(recipe.training.initial, run, recipe)
    return None
