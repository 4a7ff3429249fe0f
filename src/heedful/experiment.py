"""Experiments: from a recipe to a run folder.

The same call goes on where an interrupted one stopped. What a person wants to know on the way
is said to a console; what a program wants to know is in `metrics.jsonl`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import nn

from heedful.corpora import Corpora, read_corpora
from heedful.errors import RunError
from heedful.nested import map_tensors
from heedful.recipes import Recipe
from heedful.runs import Run, pick_device
from heedful.storage import read_manifest, sweep
from heedful.training.checkpoints import (
    Progress,
    load_checkpoint,
    read_progress,
    save_checkpoint,
)
from heedful.training.devices import suit
from heedful.training.drops import DropCount
from heedful.training.engine import Learner, Report, fit
from heedful.training.interrupts import listening_for_interrupts
from heedful.training.objectives import Loss, negative_log_likelihood
from heedful.training.progress import say, watching
from heedful.training.validation import validate

_LOG_EVERY = 10  # steps between lines of metrics


class Outcome(NamedTuple):
    """How training ended."""

    step: int
    ended: str  # why; nothing if it was interrupted
    best_loss: float
    seconds: float


def train(
    recipe: Recipe, folder: Path | str, *, device: str = "auto", console: Console | None = None
) -> Outcome:
    """Train by a recipe into a folder, or go on where that was interrupted."""
    console = console or Console(stderr=True)
    run = Run(folder)
    place = pick_device(device)
    if run.exists:
        _refuse_other_recipe(run, recipe)
        sweep(run.folder)
        if outcome := _finished(run, console):
            return outcome
    elif run.state.exists():
        raise RunError(
            str(run.state),
            "a checkpoint lies here without the config.yaml it was trained by",
            "put config.yaml and text/ back, or name another folder with --run",
        )
    session = _Session(recipe, run, read_corpora(recipe, run, console), place, console)
    session.resume()
    session.learn()
    return session.outcome()


def _finished(run: Run, console: Console) -> Outcome | None:
    if not run.state.exists():
        return None
    read_manifest(run.state)
    step, progress = read_progress(run.state)
    if not progress.ended:
        return None
    say(console, f"{run.folder}: already trained ({progress.ended}) at step {step}")
    return Outcome(step, progress.ended, progress.best_loss, progress.seconds)


def _refuse_other_recipe(run: Run, recipe: Recipe) -> None:
    there, here = run.read_recipe(), recipe
    if there != here:
        place, old, new = _first_difference(there.model_dump(), here.model_dump())
        raise RunError(
            str(run.folder),
            f"the folder holds a run with {place}={old}, but now it is {new}",
            "give the settings it was begun with to go on, or another folder with --run",
        )


def _first_difference(there: object, here: object, at: str = "") -> tuple[str, object, object]:
    if isinstance(there, dict) and isinstance(here, dict):
        for key in [*there, *here]:
            if there.get(key) != here.get(key):
                inner = f"{at}.{key}" if at else str(key)
                return _first_difference(there.get(key), here.get(key), inner)
    return at, there, here


class _Session:
    """One training, from its first or its next step to its last or its interruption."""

    def __init__(
        self, recipe: Recipe, run: Run, corpora: Corpora, device: torch.device, console: Console
    ) -> None:
        suit(device)
        torch.manual_seed(recipe.training.seed)
        self.config = recipe.training
        self.run = run
        self.corpora = corpora
        self.device = device
        self.console = console
        text = corpora.text
        model = recipe.model.build(source_size=len(text.source), target_size=len(text.target))
        self.learner = Learner(
            model.to(device),
            self._loss,
            self.config.optimizer.build(model),
            self.config.learning_rate,
            max_grad_norm=self.config.max_grad_norm,
        )
        self.drops = DropCount(self.learner.model)
        self.max_seconds = 60 * (self.config.max_minutes or math.inf)
        self.progress = Progress(data=corpora.fingerprint)
        self.is_interrupted: Callable[[], bool] = lambda: False

    def _loss(self, model: nn.Module, batch: Any) -> Loss:
        batch = self._placed(batch)
        sampling, smoothing = self.config.sampling, self.config.label_smoothing
        share = sampling.teacher_share(self.learner.step + 1)
        log_probs, _, penalties = model(batch, share, sampling.own, need_weights=False)
        error = negative_log_likelihood(log_probs, batch.targets, smoothing=smoothing)
        return Loss(error, penalties)

    def _placed(self, batch: Any) -> Any:
        return map_tensors(lambda tensor: tensor.to(self.device), batch)

    def resume(self) -> None:
        """Go back to the last checkpoint, if there is one."""
        if not self.run.state.exists():
            weights = sum(weight.numel() for weight in self.learner.model.parameters())
            say(self.console, f"model: {weights:,} weights on {self.device}")
            return
        progress = load_checkpoint(self.run.state, self.learner)
        if progress.data != self.progress.data:
            raise RunError(
                str(self.run.folder),
                "the training data has changed since this run was begun",
                "put the data back to go on, or name another folder with --run",
            )
        self.progress = progress
        self.run.forget_metrics_after(self.learner.step)
        say(self.console, f"{self.run.folder}: going on at step {self.learner.step}")

    def learn(self) -> None:
        """Train until an end is reached or an interrupt comes."""
        config = self.config
        self.stream = self.corpora.stream(self.progress.position)
        self.began = time.monotonic() - self.progress.seconds
        watched = watching(
            self.console,
            step=self.learner.step,
            max_steps=config.max_steps,
            max_seconds=self.max_seconds - self.progress.seconds,
        )
        with listening_for_interrupts() as self.is_interrupted, watched as show:
            fit(
                self.learner,
                self.stream,
                until=self._is_over,
                accumulate=config.accumulate,
                observers=[show, self._log],
            )

    def _log(self, report: Report) -> None:
        if report.step % _LOG_EVERY == 0 or report.step == 1:
            seconds = round(time.monotonic() - self.began, 3)
            facts = report._asdict()
            penalties = facts.pop("penalties")
            named = {"penalties": penalties} if penalties else {}
            dropped = self.drops.take()
            counted = {} if dropped is None else {"dropped_by_experts": round(dropped, 6)}
            self.run.log({"kind": "training", **facts, **named, **counted, "seconds": seconds})

    def _is_over(self, report: Report) -> bool:
        """Validate and save where that is due; say whether this was the last step."""
        progress, config = self.progress, self.config
        progress.position = self.stream.position
        progress.seconds = time.monotonic() - self.began
        out_of_steps = report.step >= config.max_steps
        out_of_time = progress.seconds > self.max_seconds
        is_due = report.step % config.validate_every == 0 or out_of_steps or out_of_time
        if is_due:
            self._validate(report.step)
        progress.ended = self._reason(out_of_steps, out_of_time)
        if is_due or self.is_interrupted():
            save_checkpoint(self.run.state, self.learner, progress)
        return bool(progress.ended) or self.is_interrupted()

    def _reason(self, out_of_steps: bool, out_of_time: bool) -> str:
        patience, waited = self.config.patience, self.progress.validations_since_best
        if out_of_steps:
            return f"all {self.config.max_steps} steps taken"
        if out_of_time:
            return f"{self.config.max_minutes:g} minutes are over"
        if patience and waited >= patience:
            return f"no better in {waited} validations"
        return ""

    def _validate(self, step: int) -> None:
        batches = map(self._placed, self.corpora.held_out())
        loss, accuracy = validate(self.learner.model, batches)
        is_best = loss < self.progress.best_loss
        self.progress.validations_since_best += 1
        if is_best:
            self.progress.best_loss, self.progress.validations_since_best = loss, 0
            self.run.publish(self.learner.model, step=step)
        self.run.log({"kind": "validation", "step": step, "loss": loss, "accuracy": accuracy})
        mark = "" if is_best else "  (best so far: " + f"{self.progress.best_loss:.4f})"
        say(
            self.console,
            f"step {step}: validation loss {loss:.4f}, perplexity {math.exp(min(loss, 50)):.2f}, "
            f"{100 * accuracy:.1f} % of tokens right{mark}",
        )

    def outcome(self) -> Outcome:
        """How it ended."""
        progress = self.progress
        return Outcome(self.learner.step, progress.ended, progress.best_loss, progress.seconds)
