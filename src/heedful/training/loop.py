"""The training loop: steps, validations and checkpoints in one function.

Callbacks observe and cannot steer. Invariant: a run that was interrupted and resumed takes the same
steps, validates and saves at the same steps as one that was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, Self

from heedful.data.batching import DataCursor
from heedful.training.callbacks import Callback, StepMetrics, ValidationResult
from heedful.training.config import TrainingConfig
from heedful.training.state import TrainingProgress
from heedful.training.trainer import Trainer


class TrainingResult(NamedTuple):
    """How training ended."""

    step: int
    stop_reason: str  # empty if it was interrupted
    best_score: float  # of the metric for the best model; lower is better
    seconds: float

    @classmethod
    def from_progress(cls, step: int, progress: TrainingProgress) -> Self:
        """Return the result of a training that stands at `step`."""
        return cls(step, progress.stop_reason, progress.best_score, progress.seconds)


class TrainingLimits:
    """When training stops: limits on steps, epochs, time and FLOPs, and early stopping."""

    def __init__(self, config: TrainingConfig) -> None:
        self._config = config

    def reached(self, step: int, progress: TrainingProgress) -> str:
        """Return the first limit that is reached, as text; empty if none is."""
        for name, (value, limit) in self._limits(step, progress).items():
            if value >= limit:
                return f"reached {name}={limit if isinstance(limit, int) else f'{limit:g}'}"
        return ""

    def early_stopping_reason(self, progress: TrainingProgress) -> str:
        """Return why training stops early, as text; empty if it does not."""
        patience, num_bad = self._config.patience, progress.validations_since_best
        if patience is None or num_bad < patience:
            return ""
        return f"early stopping: no improvement in {num_bad} validations"

    def fraction_done(self, step: int, progress: TrainingProgress) -> float:
        """Return how close the nearest limit is, from 0 to 1."""
        fractions = [value / limit for value, limit in self._limits(step, progress).values()]
        return min(1.0, max(fractions))

    def _limits(self, step: int, progress: TrainingProgress) -> dict[str, tuple[float, float]]:
        values = {
            "max_steps": step,
            "max_epochs": progress.cursor.epoch,
            "max_minutes": progress.seconds / 60,
            "max_flops": progress.flops,
        }
        limits = {name: getattr(self._config, name) for name in values}
        return {name: (values[name], limit) for name, limit in limits.items() if limit is not None}


class ResumableBatches(Protocol):
    """Batches and the position after the last one that was taken."""

    cursor: DataCursor

    def __iter__(self) -> Iterator[Any]: ...


class Job(Protocol):
    """A run as the loop sees it; with several ranks, each has one and calls it in step."""

    config: TrainingConfig
    trainer: Trainer
    progress: TrainingProgress
    limits: TrainingLimits

    def record_step(self, metrics: StepMetrics, cursor: DataCursor) -> None:
        """Update the progress."""
        ...

    def handle_nonfinite_step(self, metrics: StepMetrics, micro_batches: Sequence[Any]) -> None:
        """Log a step that was skipped because of NaN or infinity; raise after too many."""
        ...

    def agree(self, limit: str, /) -> tuple[str, bool]:
        """Return the limit reached on any rank, and whether any rank was asked to stop."""
        ...

    def validate(self) -> ValidationResult:
        """Evaluate on the dev data, and save the weights if they are the best so far."""
        ...

    def save_checkpoint(self, *, score: float | None, is_last: bool) -> None:
        """Save all that is needed to resume; `score` if this step was validated."""
        ...


def run_training(
    job: Job, batches: ResumableBatches, callbacks: Sequence[Callback]
) -> TrainingResult:
    """Train until a limit is reached, training is interrupted or the batches run out."""
    config, trainer, progress = job.config, job.trainer, job.progress
    stream = iter(batches)
    while micro_batches := list(islice(stream, config.gradient_accumulation_steps)):
        trainer.model.train()
        metrics = trainer.train_step(micro_batches)
        job.record_step(metrics, batches.cursor)
        for callback in callbacks:
            callback.on_step_end(metrics)
        job.handle_nonfinite_step(metrics, micro_batches)
        limit, is_interrupted = job.agree(job.limits.reached(metrics.step, progress))
        is_validated = bool(limit) or metrics.step % config.validate_every == 0
        if is_validated:
            result = job.validate()
            for callback in callbacks:
                callback.on_validation_end(result)
        progress.stop_reason = limit or job.limits.early_stopping_reason(progress)
        is_last = bool(progress.stop_reason) or is_interrupted
        is_due = config.save_every is not None and metrics.step % config.save_every == 0
        if is_last or is_validated or is_due:
            score = progress.scores[-1] if is_validated else None
            job.save_checkpoint(score=score, is_last=is_last)
        if is_last:
            break
    return TrainingResult.from_progress(trainer.step, progress)
