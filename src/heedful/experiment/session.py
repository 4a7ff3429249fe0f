"""A session: one training, from its first or its next step to its last or its interruption."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import torch
from rich.console import Console

from heedful.corpora import Corpora
from heedful.errors import RunError, StorageError
from heedful.experiment.costs import operations_per_target
from heedful.experiment.environment import environment
from heedful.experiment.keeping import Keeper
from heedful.experiment.learners import build_learner
from heedful.experiment.validating import Validator, in_words
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.training.checkpoints import Checkpoints, Snapshot
from heedful.training.drops import DropCount
from heedful.training.engine import NonFiniteError, fit
from heedful.training.interrupts import UnsavedError, listening_for_interrupts
from heedful.training.limits import Limits
from heedful.training.memory import peak_memory
from heedful.training.metrics_log import MetricsLog
from heedful.training.observers import Observer, Report, Validation
from heedful.training.progress import say, watching
from heedful.training.ranks import Ranks
from heedful.training.state import Progress, restore, take_snapshot
from heedful.training.trackers import track


class Outcome(NamedTuple):
    """How training ended."""

    step: int
    ended: str  # why; nothing if it was interrupted
    best_score: float  # of the metric that validations are judged by; smaller is better
    seconds: float

    @classmethod
    def of(cls, step: int, progress: Progress) -> Self:
        """How training ended that has come this far."""
        return cls(step, progress.ended, progress.best_score, progress.seconds)


class Session(Observer):
    """One training, which is itself the first to be told of every update."""

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        corpora: Corpora,
        checkpoints: Checkpoints,
        *,
        ranks: Ranks,
        device: torch.device,
        console: Console,
    ) -> None:
        self.recipe = recipe
        self.config = recipe.training
        self.folder = run.folder
        self.corpora = corpora
        self.ranks = ranks
        self.device = device
        self.console = console
        self.limits = Limits(self.config)
        self.keeper = Keeper(
            run,
            checkpoints,
            writes=ranks.is_first,
            goes_on=self.config.checkpoints.if_disk_full == "go-on",
            tell=self._tell,
        )
        self.progress = Progress(data=corpora.fingerprint)
        self.learner = build_learner(
            recipe, corpora.text, self._learning_rate, ranks=ranks, device=device
        )
        self.validator = Validator(self.learner, corpora, recipe, device)
        self.per_target = operations_per_target(recipe, corpora)
        self.began = time.monotonic()
        self.is_interrupted: Callable[[], bool] = lambda: False
        self.observers: list[Observer] = [self]

    def run(self, snapshot: Snapshot | None, trackers: Sequence[str] = ()) -> Outcome:
        """Train until an end is reached or an interrupt comes."""
        if snapshot is None:
            self._begin()
        else:
            self._resume(snapshot)
        self.stream = self.corpora.stream(self.progress.position)
        self.began = time.monotonic() - self.progress.seconds
        with listening_for_interrupts() as self.is_interrupted, self.observed(trackers):
            try:
                fit(
                    self.learner,
                    self.stream,
                    until=self.is_over,
                    accumulate=self.config.accumulate,
                    observers=self.observers,
                )
            except StorageError as error:
                if self.is_interrupted():
                    raise UnsavedError(error.at, error.problem, error.remedy) from error
                raise
        return Outcome.of(self.learner.step, self.progress)

    def updated(self, report: Report) -> None:
        """Count what an update did."""
        progress = self.progress
        progress.position = self.stream.position
        # Clocks of ranks differ; that of the first counts.
        progress.seconds = time.monotonic() - self.began if self.ranks.is_first else 0.0
        progress.learning_rate = report.learning_rate
        progress.operations += report.num_targets * self.per_target
        progress.skipped += bool(report.skipped)
        is_bad = report.skipped not in ("", "overflow")
        progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if is_bad else 0

    def _learning_rate(self, step: int) -> float:
        return self.config.learning_rate(step, self.progress.scores)

    def _tell(self, line: str) -> None:
        say(self.console, line)

    def _begin(self) -> None:
        weights = sum(weight.numel() for weight in self.learner.model.parameters())
        self._tell(f"model: {weights:,} weights on {self.device}")
        if self.config.initial is not None:
            Run(self.config.initial).put_weights_into(self.learner.model)
            self._tell(f"the first weights are those of {self.config.initial}")

    def _resume(self, snapshot: Snapshot) -> None:
        progress = restore(self.learner, snapshot, at=str(self.keeper.checkpoints.folder))
        if progress.data != self.progress.data:
            raise RunError(
                str(self.folder),
                "the training data has changed since this run was begun",
                "put the data back to go on, or name another folder with --run",
            )
        if progress.ended:
            self._say_extension(progress)
        self.progress = progress
        self.progress.ended = ""
        self.keeper.forget_after(self.learner.step)
        self._tell(f"{self.folder}: going on at step {self.learner.step}")

    def _say_extension(self, progress: Progress) -> None:
        self._tell(f"{self.folder}: was over ({progress.ended}) and is now extended")
        rate = self.config.learning_rate(self.learner.step + 1, progress.scores)
        self._tell(
            f"the learning rate of its last step was {progress.learning_rate:.3g}; "
            f"it goes on at {rate:.3g}"
        )

    @contextmanager
    def observed(self, trackers: Sequence[str] = ()) -> Iterator[None]:
        """Let whoever wants to know be told, while within."""
        if not self.ranks.is_first:
            yield
            return
        step, model, settings = (
            self.learner.step,
            self.learner.model,
            self.recipe.model_dump(mode="json"),
        )
        self.keeper.log({"kind": "environment", "step": step, **self._environment()})
        log = MetricsLog(self.keeper.log, DropCount(model), self._beside)
        told = track(trackers, self.folder, self.folder.name, settings, tell=self._tell)
        metric = self.config.metric
        with watching(self.console, step=step, share=self._share, metric=metric) as bar:
            self.observers = [self, bar, log, *told]
            try:
                yield
            finally:
                for observer in self.observers:
                    observer.closed()

    def _environment(self) -> dict[str, Any]:
        return environment(self.device, self.ranks)

    def _share(self, step: int) -> float:
        return self.limits.share(self.progress.reached(step))

    def _beside(self) -> dict[str, Any]:
        """What stands in every line of metrics beside what an update did."""
        return {
            "epoch": self.progress.position.epoch,
            "skipped": self.progress.skipped,
            "operations": self.progress.operations,
            "memory": peak_memory(self.device),
            "seconds": round(time.monotonic() - self.began, 3),
        }

    def is_over(self, report: Report, group: Sequence[Any]) -> bool:
        """Validate and save where that is due; say whether this was the last step."""
        self._face_what_is_no_number(report, group)
        passed = self.limits.passed(self.progress.reached(report.step))
        is_passed, is_interrupted = self.ranks.any(bool(passed), self.is_interrupted())
        is_validated = is_passed or report.step % self.config.validate_every == 0
        if is_validated:
            self._validate(report.step)
        if is_passed:
            self.progress.ended = passed or "another rank has reached a limit"
        else:
            self.progress.ended = self.limits.is_hopeless(self.progress)
        is_last = bool(self.progress.ended) or is_interrupted
        every = self.config.save_every
        if is_last or is_validated or (every is not None and report.step % every == 0):
            self._save(is_validated=is_validated, is_last=is_last)
        return is_last

    def _face_what_is_no_number(self, report: Report, group: Sequence[Any]) -> None:
        in_a_row = self.progress.skipped_in_a_row
        if not in_a_row:
            return
        place = self.progress.position
        at = f"training step {report.step} (epoch {place.epoch + 1}, batch {place.batch})"
        kept = self._bundle(report, group)
        if in_a_row < self.config.max_bad_steps:
            self._tell(f"{at}: {report.skipped}; nothing was learned from it{kept}")
            return
        raise NonFiniteError(
            at,
            f"{report.skipped}; this is step {in_a_row} of its kind in a row{kept}",
            "nothing was learned from these steps, and what was saved before is good; lower "
            "training.optimizer.learning_rate or training.max_grad_norm",
        )

    def _bundle(self, report: Report, group: Sequence[Any]) -> str:
        """Keep what is needed to look at this step; say where."""
        facts = {
            "step": report.step,
            "position": self.progress.position,
            "problem": report.skipped,
            "learning_rate": report.learning_rate,
            **self._environment(),
        }
        return self.keeper.keep_bad_step(group, self.learner.random_before, facts)

    def _save(self, *, is_validated: bool, is_last: bool) -> None:
        score = self.progress.scores[-1] if is_validated else None
        folder = self.keeper.checkpoints.folder
        with self.keeper.facing_a_full_disk(is_last=is_last):
            self.keeper.save(take_snapshot(self.learner, self.progress, beside=folder), score=score)

    def _validate(self, step: int) -> None:
        """Measure the model on what is held out; publish it if it is the best so far."""
        progress = self.progress
        with self.learner.averaged():
            with self.ranks.whole(self.learner.model):
                scores, samples = self.validator.scores(), self.validator.samples()
            cost = self.validator.cost(scores)
            is_best = cost < progress.best_score
            progress.scores.append(cost)
            if is_best:
                self.keeper.publish(self.ranks.weights(self.learner.model), step=step)
        seconds = time.monotonic() - self.began
        validation = Validation(step, seconds, scores, is_best, samples)
        self._tell(in_words(validation, metric=self.config.metric, best=progress.best_score))
        self.keeper.log_samples(step, samples)
        for observer in self.observers:
            observer.validated(validation)
