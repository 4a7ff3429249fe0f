"""Learners: all that learns by a recipe, put together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import torch
from rich.console import Console

from heedful.errors import ConfigError, RunError, StorageError
from heedful.experiment.environment import (
    InterruptedUnsavedError,
    configure_backends,
    environment_info,
    handle_stop_signals,
    peak_memory,
)
from heedful.experiment.flops import training_flops_per_target
from heedful.experiment.run_writer import RunWriter
from heedful.experiment.validation import Validator, format_validation
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tasks.task import DataModule
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.training.callbacks import (
    Callback,
    ExpertOverflowCounter,
    MetricsLogger,
    StepMetrics,
    ValidationResult,
)
from heedful.training.checkpoints import CheckpointManager, Snapshot
from heedful.training.distributed import DistributedContext
from heedful.training.progress import print_line, show_progress
from heedful.training.state import (
    TrainingLimits,
    TrainingProgress,
    restore_snapshot,
    take_snapshot,
)
from heedful.training.trackers import build_tracker_callbacks
from heedful.training.trainer import (
    ExponentialMovingAverage,
    GradientClipper,
    MixedPrecision,
    NonFiniteError,
    Trainer,
    fit,
)


def build_trainer(
    recipe: Recipe,
    tokenizers: TokenizerPair,
    learning_rate: Callable[[int], float],
    *,
    dist_context: DistributedContext,
    device: torch.device,
) -> Trainer:
    """Build a model and how it learns; every rank begins with the same weights."""
    config = recipe.training
    if dist_context.is_sharded:
        _check_objective_can_shard(config.objective.type)
    configure_backends(device)
    torch.manual_seed(config.seed)
    built = recipe.model.build(
        source_vocab_size=len(tokenizers.source), target_vocab_size=len(tokenizers.target)
    )
    model = dist_context.prepare_model(built.to(device))
    torch.manual_seed(config.seed + dist_context.rank)
    return Trainer(
        model,
        config.objective.build(
            label_smoothing=config.label_smoothing, scheduled_sampling=config.scheduled_sampling
        ),
        config.optimizer.build(model),
        learning_rate,
        clipping=GradientClipper(config.max_grad_norm, config.max_grad_value),
        precision=MixedPrecision(config.precision, device.type),
        ema=ExponentialMovingAverage(model, config.ema.decay) if config.ema else None,
        dist_context=dist_context,
        device=device,
    )


def _check_objective_can_shard(objective: str) -> None:
    """A model whose weights are parted cannot write while it learns."""
    if objective != "cross-entropy":
        raise ConfigError(
            "training.distributed_strategy",
            f"the objective {objective!r} lets the model write at every step, for which sharded "
            "weights would have to be gathered every time",
            "set training.distributed_strategy=ddp",
        )


# A session: one training, from its first or its next step to its last or its interruption.


class TrainingResult(NamedTuple):
    """How training ended."""

    step: int
    stop_reason: str  # why; nothing if it was interrupted
    best_score: float  # of the metric that validations are judged by; smaller is better
    seconds: float

    @classmethod
    def from_progress(cls, step: int, progress: TrainingProgress) -> Self:
        """How training ended that has come this far."""
        return cls(step, progress.stop_reason, progress.best_score, progress.seconds)


class TrainingLoop(Callback):
    """One training, which is itself the first to be told of every update."""

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        data_module: DataModule,
        checkpoints: CheckpointManager,
        *,
        dist_context: DistributedContext,
        device: torch.device,
        console: Console,
    ) -> None:
        self.recipe = recipe
        self.config = recipe.training
        self.folder = run.folder
        self.data_module = data_module
        self.dist_context = dist_context
        self.device = device
        self.console = console
        self.stopping_criteria = TrainingLimits(self.config)
        self.run_writer = RunWriter(
            run,
            checkpoints,
            is_writer=dist_context.is_main_process,
            continue_if_disk_full=self.config.checkpoints.on_disk_full == "continue",
            log_message=self._log_message,
        )
        self.progress = TrainingProgress(data_fingerprint=data_module.fingerprint)
        self.trainer = build_trainer(
            recipe,
            data_module.tokenizers,
            self._learning_rate,
            dist_context=dist_context,
            device=device,
        )
        self.validator = Validator(self.trainer, data_module, recipe, device)
        self.flops_per_target = training_flops_per_target(recipe, data_module)
        self.start_time = time.monotonic()
        self.stop_requested: Callable[[], bool] = lambda: False
        self.callbacks: list[Callback] = [self]

    def run(self, snapshot: Snapshot | None, trackers: Sequence[str] = ()) -> TrainingResult:
        """Train until an end is reached or an interrupt comes."""
        if snapshot is None:
            self._start()
        else:
            self._resume(snapshot)
        self.stream = self.data_module.train_batches(self.progress.cursor)
        self.start_time = time.monotonic() - self.progress.seconds
        with handle_stop_signals() as self.stop_requested, self.running_callbacks(trackers):
            try:
                fit(
                    self.trainer,
                    self.stream,
                    should_stop=self.handle_step,
                    gradient_accumulation_steps=self.config.gradient_accumulation_steps,
                    callbacks=self.callbacks,
                )
            except StorageError as error:
                if self.stop_requested():
                    raise InterruptedUnsavedError(
                        error.location, error.message, error.hint
                    ) from error
                raise
        return TrainingResult.from_progress(self.trainer.step, self.progress)

    def on_step_end(self, metrics: StepMetrics) -> None:
        """Count what an update did."""
        progress = self.progress
        progress.cursor = self.stream.cursor
        # Clocks of ranks differ; that of the first counts.
        progress.seconds = (
            time.monotonic() - self.start_time if self.dist_context.is_main_process else 0.0
        )
        progress.learning_rate = metrics.learning_rate
        progress.flops += metrics.num_targets * self.flops_per_target
        progress.num_skipped_steps += bool(metrics.skip_reason)
        is_bad = metrics.skip_reason not in ("", "overflow")
        progress.num_consecutive_skips = progress.num_consecutive_skips + 1 if is_bad else 0

    def _learning_rate(self, step: int) -> float:
        return self.config.learning_rate(step, self.progress.scores)

    def _log_message(self, line: str) -> None:
        print_line(self.console, line)

    def _start(self) -> None:
        weights = sum(weight.numel() for weight in self.trainer.model.parameters())
        self._log_message(f"model: {weights:,} weights on {self.device}")
        if self.config.init_from is not None:
            Run(self.config.init_from).load_weights_into(self.trainer.model)
            self._log_message(f"the first weights are those of {self.config.init_from}")

    def _resume(self, snapshot: Snapshot) -> None:
        progress = restore_snapshot(
            self.trainer, snapshot, location=str(self.run_writer.checkpoints.folder)
        )
        if progress.data_fingerprint != self.progress.data_fingerprint:
            raise RunError(
                str(self.folder),
                "the training data has changed since this run was begun",
                "put the data back to go on, or name another folder with --run",
            )
        if progress.stop_reason:
            self._log_extension(progress)
        self.progress = progress
        self.progress.stop_reason = ""
        self.run_writer.truncate_logs_after(self.trainer.step)
        self._log_message(f"{self.folder}: going on at step {self.trainer.step}")

    def _log_extension(self, progress: TrainingProgress) -> None:
        self._log_message(f"{self.folder}: was over ({progress.stop_reason}) and is now extended")
        rate = self.config.learning_rate(self.trainer.step + 1, progress.scores)
        self._log_message(
            f"the learning rate of its last step was {progress.learning_rate:.3g}; "
            f"it goes on at {rate:.3g}"
        )

    @contextmanager
    def running_callbacks(self, trackers: Sequence[str] = ()) -> Iterator[None]:
        """Let whoever wants to know be told, while within."""
        if not self.dist_context.is_main_process:
            yield
            return
        step, model, settings = (
            self.trainer.step,
            self.trainer.model,
            self.recipe.model_dump(mode="json"),
        )
        self.run_writer.log({"type": "environment", "step": step, **self._environment()})
        log = MetricsLogger(
            self.run_writer.log, ExpertOverflowCounter(model), self._extra_log_fields
        )
        tracker_callbacks = build_tracker_callbacks(
            trackers, self.folder, self.folder.name, settings, log_message=self._log_message
        )
        metric = self.config.metric_for_best_model
        with show_progress(
            self.console, step=step, fraction_done=self._fraction_done, metric=metric
        ) as bar:
            self.callbacks = [self, bar, log, *tracker_callbacks]
            try:
                yield
            finally:
                for observer in self.callbacks:
                    observer.on_train_end()

    def _environment(self) -> dict[str, Any]:
        return environment_info(self.device, self.dist_context)

    def _fraction_done(self, step: int) -> float:
        return self.stopping_criteria.fraction_done(self.progress.usage(step))

    def _extra_log_fields(self) -> dict[str, Any]:
        """What stands in every line of metrics beside what an update did."""
        return {
            "epoch": self.progress.cursor.epoch,
            "num_skipped_steps": self.progress.num_skipped_steps,
            "flops": self.progress.flops,
            "peak_memory": peak_memory(self.device),
            "seconds": round(time.monotonic() - self.start_time, 3),
        }

    def handle_step(self, metrics: StepMetrics, micro_batches: Sequence[Any]) -> bool:
        """Validate and save where that is due; say whether this was the last step."""
        self._handle_nonfinite_step(metrics, micro_batches)
        passed = self.stopping_criteria.reached_limit(self.progress.usage(metrics.step))
        is_passed, is_interrupted = self.dist_context.all_reduce_any(
            bool(passed), self.stop_requested()
        )
        is_validated = is_passed or metrics.step % self.config.validate_every == 0
        if is_validated:
            self._validate(metrics.step)
        if is_passed:
            self.progress.stop_reason = passed or "another rank has reached a limit"
        else:
            self.progress.stop_reason = self.stopping_criteria.early_stopping_reason(self.progress)
        is_last = bool(self.progress.stop_reason) or is_interrupted
        every = self.config.save_every
        if is_last or is_validated or (every is not None and metrics.step % every == 0):
            self._save(is_validated=is_validated, is_last=is_last)
        return is_last

    def _handle_nonfinite_step(self, metrics: StepMetrics, micro_batches: Sequence[Any]) -> None:
        in_a_row = self.progress.num_consecutive_skips
        if not in_a_row:
            return
        cursor = self.progress.cursor
        at = f"training step {metrics.step} (epoch {cursor.epoch + 1}, batch {cursor.batch})"
        kept = self._dump_step(metrics, micro_batches)
        if in_a_row < self.config.max_nonfinite_steps:
            self._log_message(f"{at}: {metrics.skip_reason}; nothing was learned from it{kept}")
            return
        raise NonFiniteError(
            at,
            f"{metrics.skip_reason}; this is step {in_a_row} of its kind in a row{kept}",
            "nothing was learned from these steps, and what was saved before is good; lower "
            "training.optimizer.learning_rate or training.max_grad_norm",
        )

    def _dump_step(self, metrics: StepMetrics, micro_batches: Sequence[Any]) -> str:
        """Keep what is needed to look at this step; say where."""
        facts = {
            "step": metrics.step,
            "cursor": self.progress.cursor,
            "problem": metrics.skip_reason,
            "learning_rate": metrics.learning_rate,
            **self._environment(),
        }
        return self.run_writer.dump_bad_step(
            micro_batches, self.trainer.rng_states_before_step, facts
        )

    def _save(self, *, is_validated: bool, is_last: bool) -> None:
        score = self.progress.scores[-1] if is_validated else None
        folder = self.run_writer.checkpoints.folder
        with self.run_writer.tolerate_disk_full(is_last=is_last):
            self.run_writer.save(
                take_snapshot(self.trainer, self.progress, temporary_folder=folder), score=score
            )

    def _validate(self, step: int) -> None:
        """Measure the model on what is held out; publish it if it is the best so far."""
        progress = self.progress
        with self.trainer.averaged_parameters():
            with self.dist_context.summon_full_params(self.trainer.model):
                scores, samples = self.validator.compute_scores(), self.validator.sample_outputs()
            cost = self.validator.objective_value(scores)
            is_best = cost < progress.best_score
            progress.scores.append(cost)
            if is_best:
                self.run_writer.save_model(
                    self.dist_context.full_state_dict(self.trainer.model), step=step
                )
        seconds = time.monotonic() - self.start_time
        validation = ValidationResult(step, seconds, scores, is_best, samples)
        self._log_message(
            format_validation(
                validation, metric=self.config.metric_for_best_model, best=progress.best_score
            )
        )
        self.run_writer.log_samples(step, samples)
        for observer in self.callbacks:
            observer.on_validation_end(validation)
