"""A training job: the model, data and folder of a run, as the training loop needs them.

Invariants: only the main process writes; a full disk ends training only if `on_disk_full` says so,
or at the last step; whenever a checkpoint is saved, the best weights up to its step are also saved.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save
from torch import Tensor

from heedful.data.shuffling import DataCursor
from heedful.errors import DiskFullError, HeedfulError, RunError, check, format_count
from heedful.experiment.embedding_files import load_embedding_file
from heedful.experiment.environment import environment_info, peak_memory
from heedful.experiment.flops import training_flops_per_target
from heedful.experiment.plan import TrainingPlan
from heedful.experiment.pretrained_encoder import load_encoder_weights
from heedful.experiment.trainer_setup import build_model, build_trainer
from heedful.experiment.validation import Validator
from heedful.pytree import tensors_of
from heedful.runs import Run
from heedful.storage.atomic import atomic_replace
from heedful.tasks.task_data import DataModule, VocabSizes
from heedful.training import state
from heedful.training.callbacks import (
    Callback,
    MetricsLogger,
    PeriodicLogger,
    StepMetrics,
    ValidationResult,
)
from heedful.training.checkpoints import CheckpointManager, Snapshot
from heedful.training.distributed import DistributedContext
from heedful.training.optim import LRSchedule
from heedful.training.progress import print_samples, show_progress
from heedful.training.state import TrainingProgress
from heedful.training.trackers import build_tracker_callbacks
from heedful.training.trainer import PendingStep

BAD_STEPS_FOLDER = "bad-steps"
MAX_DEBUG_DUMPS = 10  # per run; the first ones tell the most


class NonFiniteError(HeedfulError):
    """Too many consecutive steps with a loss or gradient that is not finite."""

    exit_code = 3


def write_debug_dump(
    folder: Path,
    micro_batches: Sequence[Any],
    rng_states: Mapping[str, Tensor],
    metadata: Mapping[str, Any],
) -> Path | None:
    """Save what is needed to repeat a step from the last checkpoint; None if there are enough.

    Not the parameters: the last checkpoint and the same command lead to them.
    """
    if folder.exists() and len(list(folder.glob("step-*"))) >= MAX_DEBUG_DUMPS:
        return None
    path = folder / f"step-{metadata['step']:08d}"
    with atomic_replace(path) as temporary:
        temporary.mkdir()
        for index, batch in enumerate(micro_batches):
            tensors = {str(field): tensor for field, tensor in enumerate(tensors_of(batch))}
            (temporary / f"batch-{index}.safetensors").write_bytes(save(tensors))
        (temporary / "rng_states.safetensors").write_bytes(save(dict(rng_states)))
        text = json.dumps(metadata, indent=2) + "\n"
        (temporary / "metadata.json").write_text(text, encoding="utf-8")
    return path


Value = TypeVar("Value")

PLAN_SECONDS, PLAN_FRACTION = 60, 0.1  # after which the speed is known


class TrainingJob:
    """One run while it is trained; with multiple ranks, each has a job."""

    def __init__(
        self,
        plan: TrainingPlan,
        data_module: DataModule,
        checkpoints: CheckpointManager,
        dist_context: DistributedContext,
    ) -> None:
        self.plan, self.run, self.log = plan, plan.run, plan.log
        self.config = config = plan.config
        self.data_module = data_module
        self.checkpoints = checkpoints
        self.dist_context = dist_context
        self.limits = plan.recipe.limits
        self.progress = TrainingProgress(data_fingerprint=data_module.fingerprint)
        self.lr_schedule = LRSchedule(
            config.lr_scheduler,
            config.optimizer.learning_rate,
            lambda step: self.limits.planned_steps(step, self.progress),
            self.progress.scores,
        )
        sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
        model = build_model(plan.recipe, sizes, data_module=data_module, device=plan.device)
        self.flops_per_target = training_flops_per_target(plan.recipe, model, data_module)
        self.trainer = build_trainer(
            plan.recipe,
            model,
            self.lr_schedule,
            data_module=data_module,
            log=plan.log,
            dist_context=dist_context,
            device=plan.device,
        )
        self.validator = Validator(plan, self.trainer, data_module)
        self.start_time = time.monotonic()
        self._is_plan_logged = False
        self._unsaved_best: tuple[int, Mapping[str, Tensor]] | None = None  # step and weights
        self.stop_requested: Callable[[], bool] = lambda: False

    def start(self) -> None:
        """Initialize the model, from another run if the recipe names one; start new logs."""
        if self.dist_context.is_main_process:  # a killed process may have left some
            self.run.truncate_logs_after(-1, self.log)
        num_parameters = sum(parameter.numel() for parameter in self.trainer.model.parameters())
        self.log(f"model: {num_parameters:,} parameters on {self.plan.device}")
        if (encoder := self.plan.recipe.pretrained_encoder) is not None:
            load_encoder_weights(encoder, self.trainer.model)
            tuned = "frozen" if encoder.tune == "frozen" else f"tuned: {encoder.tune}"
            self.log(f"encoder: states of {encoder.path}, {tuned}, with its tokenizer")
        if self.config.init_from is not None:
            Run(self.config.init_from).load_weights_into(self.trainer.model)
            self.log(f"initialized from {self.config.init_from}")
        for name, path in self.config.init_embeddings:
            if path is not None:
                tokenizer = getattr(self.data_module.tokenizers, name)
                load_embedding_file(self.trainer.model, name, path, tokenizer, self.log)

    def resume(self, snapshot: Snapshot) -> None:
        """Restore a snapshot and drop the logs of later steps."""
        folder, fingerprint = self.run.folder, self.progress.data_fingerprint
        location = str(self.checkpoints.folder)
        self.progress = state.restore_snapshot(self.trainer, snapshot, location=location)
        is_same = self.progress.data_fingerprint == fingerprint
        message = "the training data has changed since this run was started"
        hint = "restore the data to resume, or use another folder with --run"
        check(is_same, str(folder), message, hint, RunError)
        self.lr_schedule.scores = self.progress.scores
        self.is_validation_due()  # so that those before the snapshot are not due again
        if self.progress.stop_reason:
            self.log(f"{folder}: was finished ({self.progress.stop_reason}); training is extended")
            last, following = self.progress.learning_rate, self.lr_schedule(self.trainer.step + 1)
            rates = f"was {last:.3g}; the next step has {following:.3g}"
            self.log(f"the learning rate of the last step {rates}")
        self.progress.stop_reason = ""
        if self.dist_context.is_main_process:
            self.run.truncate_logs_after(self.trainer.step, self.log)
        self.log(f"{folder}: resuming from step {self.trainer.step}")

    @contextmanager
    def callbacks(self) -> Iterator[list[Callback]]:
        """Start the clock and the callbacks of the main process; close them at the end."""
        self.start_time = time.monotonic() - self.progress.seconds
        if not self.dist_context.is_main_process:
            yield []
            return
        step = self.trainer.step
        info = environment_info(self.plan.device, self.dist_context)
        self._write_metrics({"type": "environment", "step": step, **info})
        settings = self.plan.recipe.model_dump(mode="json")
        loggers: list[PeriodicLogger]
        loggers = [MetricsLogger(self._write_metrics, self.trainer.model, self._extra_log_fields)]
        if trackers := self.plan.report_to:
            loggers += build_tracker_callbacks(trackers, self.run.folder, settings, self.log)
        with show_progress(
            self.plan.console,
            step=step,
            fraction_done=lambda step: self.limits.fraction_done(step, self.progress),
            metric=self.config.metric_for_best_model,
        ) as bar:
            callbacks = [bar, *loggers, *self.plan.callbacks]
            try:
                yield callbacks
            finally:
                for callback in callbacks:
                    callback.on_train_end()

    def record_step(self, started: PendingStep, cursor: DataCursor) -> None:
        """Update all progress that does not depend on the losses."""
        progress, is_main_process = self.progress, self.dist_context.is_main_process
        progress.cursor = cursor
        # The clocks of ranks differ; that of the main process counts.
        seconds = time.monotonic() - self.start_time if is_main_process else 0.0
        if self.config.max_minutes is not None:  # the learning rate depends on it
            seconds = self.dist_context.all_reduce(
                torch.tensor(seconds, dtype=torch.float64)
            ).item()
        progress.seconds = seconds
        progress.learning_rate = started.learning_rate
        progress.flops += started.num_targets * self.flops_per_target
        done = self.limits.fraction_done(started.step, progress)
        if not self._is_plan_logged and (seconds >= PLAN_SECONDS or done >= PLAN_FRACTION):
            self._is_plan_logged = True
            self._log_plan(started.step)

    def _log_plan(self, step: int) -> None:
        """Say how long training will take at the speed so far, and if it ends in the warmup."""
        planned = self.limits.planned_steps(step + 1, self.progress)
        minutes = self.progress.seconds * planned / step / 60
        if self.config.max_minutes is None and minutes >= 2:
            advice = "training.max_minutes sets a time, and ends the learning-rate schedule with it"
            duration = f"about {minutes:,.0f} minutes at this speed"
            self.log(f"{format_count(planned, 'step')}: {duration}; {advice}")
        warmup_steps = self.config.lr_scheduler.num_warmup_steps(planned)
        if planned <= warmup_steps:
            end = f"after about {format_count(planned, 'step')}, in the warmup of {warmup_steps:,}"
            advice = "set training.lr_scheduler.warmup_ratio=0.1, or train longer"
            self.log(f"training ends {end}: the learning rate never reaches its peak; {advice}")

    def finish_step(
        self, started: PendingStep, cursor: DataCursor, callbacks: Sequence[Callback]
    ) -> None:
        """Wait for the losses of a step, and tell them to callbacks."""
        metrics, progress = started.finish(), self.progress
        progress.num_skipped_steps += bool(metrics.skip_reason)
        is_nonfinite = metrics.skip_reason not in ("", "overflow")
        progress.num_consecutive_skips = progress.num_consecutive_skips + 1 if is_nonfinite else 0
        for callback in callbacks:
            callback.on_step_end(metrics)
        if is_nonfinite:
            self._handle_nonfinite_step(started, metrics, cursor)

    def _handle_nonfinite_step(
        self, started: PendingStep, metrics: StepMetrics, cursor: DataCursor
    ) -> None:
        """Log a step that was skipped because of NaN or infinity; raise after too many."""
        count = self.progress.num_consecutive_skips
        location = f"training step {metrics.step} (epoch {cursor.epoch + 1}, batch {cursor.batch})"
        metadata = {
            "step": metrics.step,
            "cursor": cursor,
            "problem": metrics.skip_reason,
            "learning_rate": metrics.learning_rate,
            **environment_info(self.plan.device, self.dist_context),
            "checkpoint": self.checkpoints.latest_step,
        }
        folder, (batches, rng_states) = self.run.folder / BAD_STEPS_FOLDER, started[2:4]
        path = self._write(lambda: write_debug_dump(folder, batches, rng_states, metadata))
        dump = f" (see {path})" if path else ""
        message = f"{metrics.skip_reason}; {format_count(count, 'consecutive step')} skipped{dump}"
        settings = "training.optimizer.learning_rate or training.max_grad_norm"
        hint = f"earlier checkpoints are good; lower {settings}"
        check(count < self.config.max_nonfinite_steps, location, message, hint, NonFiniteError)
        self.log(f"{location}: {metrics.skip_reason}; the step was skipped{dump}")

    def sync_stop_flags(self, limit: str, /) -> tuple[str, bool, bool]:
        """Return what any rank finds: the limit reached, a signal to stop, an early validation."""
        is_early = self.validator.is_early_due(self.progress)
        flags = bool(limit), self.stop_requested(), is_early
        is_reached, is_interrupted, is_early = self.dist_context.all_reduce_any(*flags)
        limit = limit or ("another rank has reached a limit" if is_reached else "")
        return limit, is_interrupted, is_early

    def is_validation_due(self) -> bool:
        """Return whether a validation follows the last step; to be called after each."""
        return self.validator.is_due(self.limits, self.trainer.step, self.progress)

    def validate(self, *, is_early: bool = False) -> ValidationResult:
        """Evaluate on the dev data, and save the weights if they are the best so far.

        An early validation counts neither for early stopping and learning-rate schedules nor as the
        best later: its step depends on the speed of the machine.
        """
        step, progress, metric = self.trainer.step, self.progress, self.config.metric_for_best_model
        is_main = self.dist_context.is_main_process
        with self.trainer.averaged_parameters():
            scores, samples = self.validator.validate(self.start_time, self.stop_requested)
            sign = -1 if self.plan.recipe.best_model_metric.higher_is_better else 1
            # NaN is the worst score; the first weights are the best, whatever they score.
            score = math.inf if math.isnan(scores[metric]) else sign * scores[metric]
            is_best = not progress.scores or score < progress.best_score
            if is_early:
                progress.has_early_validation = True
            else:
                progress.scores.append(score)
            if is_best:
                state_dict = self.dist_context.full_state_dict(self.trainer.model)
                self._unsaved_best = (step, state_dict) if is_main else None
            self._write(self._save_best_weights)
            if is_best and self._unsaved_best:  # later steps change the parameters
                copies = {name: tensor.to("cpu", copy=True) for name, tensor in state_dict.items()}
                self._unsaved_best = step, copies
        best = "" if is_best else f"  (best {metric} so far: {sign * progress.best_score:.4f})"
        self.log(f"step {step}: {self.plan.recipe.task.evaluation.format(scores)}{best}")
        print_samples(self.plan.console, samples)
        self._write(lambda: self.run.append_samples(step, samples))
        seconds = time.monotonic() - self.start_time
        return ValidationResult(step, seconds, scores, is_best, samples)

    def save_checkpoint(self, *, score: float | None, is_last: bool) -> None:
        """Save all that is needed to resume; `score` if this step was validated."""
        with self._tolerate_full_disk(is_last=is_last):
            folder = self.checkpoints.folder
            snapshot = state.take_snapshot(self.trainer, self.progress, folder)
            if self.dist_context.is_main_process:
                self._save_best_weights()
                self.checkpoints.save(snapshot, score=score)

    def _save_best_weights(self) -> None:
        """Save the best weights unless they are saved; a full disk may have delayed them."""
        if self._unsaved_best:
            step, state_dict = self._unsaved_best
            precision = self.config.saved_precision
            self.run.save_model(state_dict, step=step, precision=precision)
            self._unsaved_best = None

    def _write(self, action: Callable[[], Value]) -> Value | None:
        if self.dist_context.is_main_process:
            with self._tolerate_full_disk():
                return action()
        return None

    @contextmanager
    def _tolerate_full_disk(self, *, is_last: bool = False) -> Iterator[None]:
        try:
            yield
        except DiskFullError as error:
            if is_last or self.config.checkpoints.on_disk_full == "stop":
                raise
            self.log(f"not saved: {error}\n  training continues and will retry")

    def _write_metrics(self, fields: Mapping[str, Any]) -> None:
        self._write(lambda: self.run.append_metrics(fields))

    def _extra_log_fields(self) -> dict[str, Any]:
        return {
            "epoch": self.progress.cursor.epoch,
            "num_skipped_steps": self.progress.num_skipped_steps,
            "flops": self.progress.flops,
            "peak_memory": peak_memory(self.plan.device),
            "seconds": round(time.monotonic() - self.start_time, 3),
        }
