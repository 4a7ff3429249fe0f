"""A training job: the model, data and folder of a run, as the training loop needs them.

Invariants: only the main process writes; validation leaves parameters, modes and random numbers as
they were; a full disk ends training only if `on_disk_full` says so, or at the last step; whenever a
checkpoint is saved, the best weights up to its step are also saved.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from rich.console import Console
from torch import Tensor, nn

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.shuffling import DataCursor
from heedful.errors import DiskFullError, RunError, check, format_count
from heedful.experiment.debug_dumps import BAD_STEPS_FOLDER, NonFiniteError, write_debug_dump
from heedful.experiment.embedding_files import load_embedding_files
from heedful.experiment.environment import environment_info, peak_memory
from heedful.experiment.flops import training_flops_per_target
from heedful.experiment.pretrained_encoder import load_encoder_weights, pretrained_encoder
from heedful.experiment.trainer_setup import build_trainer
from heedful.pytree import map_tensors
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tasks.task import Task
from heedful.tasks.task_data import DataModule, VocabSizes
from heedful.training import state
from heedful.training.callbacks import Callback, MetricsLogger, StepMetrics, ValidationResult
from heedful.training.checkpoints import CheckpointManager, Snapshot
from heedful.training.distributed import SINGLE_PROCESS, DistributedContext
from heedful.training.optim import LRSchedule
from heedful.training.progress import print_line, print_samples, show_progress
from heedful.training.state import TrainingProgress
from heedful.training.trackers import build_tracker_callbacks
from heedful.training.trainer import PendingStep

Value = TypeVar("Value")

NUM_VALIDATIONS = 10  # if `validate_every` is null
PLAN_SECONDS, PLAN_FRACTION = 60, 0.1  # after which the speed is known
FIRST_VALIDATION_SECONDS = 60.0
_FIRST_VALIDATION_FRACTION = 0.1  # of training.max_minutes, if that is earlier
_MAX_SHOWN_EXAMPLES = 200  # decoded for metrics that are only shown
_MAX_DECODING_FRACTION = 0.1  # of the training time, for these metrics


@torch.no_grad()
def compute_dev_metrics(
    task: Task,
    model: nn.Module,
    batches: Iterable[Any],
    *,
    device: torch.device | str = "cpu",
    dist_context: DistributedContext = SINGLE_PROCESS,
) -> dict[str, float]:
    """Return the metrics that are computed with teacher forcing; a collective operation."""
    model.eval()
    sums = torch.zeros((), dtype=torch.float64)
    for batch in batches:
        rows, weight = dist_context.shard_batch(batch)
        rows = map_tensors(lambda tensor: tensor.to(device), rows)
        sums = sums + weight * task.evaluation.batch_sums(model, rows)
    return task.evaluation.finalize(dist_context.all_reduce(sums))


class TrainingJob:
    """One run while it is trained; with multiple ranks, each has a job."""

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        data_module: DataModule,
        checkpoints: CheckpointManager,
        dist_context: DistributedContext,
        *,
        device: torch.device,
        console: Console,
    ) -> None:
        self.recipe = recipe
        self.task = recipe.task
        self.config = config = recipe.training
        self.run = run
        self.data_module = data_module
        self.checkpoints = checkpoints
        self.dist_context = dist_context
        self.device = device
        self.console = console
        self.limits = recipe.limits
        self.progress = TrainingProgress(data_fingerprint=data_module.fingerprint)
        self.lr_schedule = LRSchedule(
            config.lr_scheduler,
            config.optimizer.learning_rate,
            lambda step: self.limits.planned_steps(step, self.progress),
            self.progress.scores,
        )
        sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
        self.trainer = build_trainer(
            recipe,
            sizes,
            self.lr_schedule,
            data_module=data_module,
            log=self.log,
            dist_context=dist_context,
            device=device,
        )
        self.inference_model = dist_context.inference_model(self.trainer.model)
        model = self.inference_model
        self.dev_evaluator = self.task.evaluation.dev_evaluator(model, data_module, recipe, device)
        self.flops_per_target = training_flops_per_target(recipe, data_module)
        self.start_time = time.monotonic()
        self._is_plan_logged = False
        self._num_validations_due = 0  # if they are spread over the limits
        self._unsaved_best: tuple[int, Mapping[str, Tensor]] | None = None  # step and weights
        self._decoding_seconds: list[float] = []  # for metrics that are only shown
        self.stop_requested: Callable[[], bool] = lambda: False

    def start(self) -> None:
        """Initialize the model, from another run if the recipe names one; start new logs."""
        if self.dist_context.is_main_process:  # a killed process may have left some
            self.run.truncate_logs_after(-1, self.log)
        num_parameters = sum(parameter.numel() for parameter in self.trainer.model.parameters())
        self.log(f"model: {num_parameters:,} parameters on {self.device}")
        if (encoder := pretrained_encoder(self.recipe)) is not None:
            load_encoder_weights(encoder, self.trainer.model)
            tuned = "frozen" if encoder.tune == "frozen" else f"tuned: {encoder.tune}"
            self.log(f"encoder: states of {encoder.path}, {tuned}, with its tokenizer")
        if self.config.init_from is not None:
            Run(self.config.init_from).load_weights_into(self.trainer.model)
            self.log(f"initialized from {self.config.init_from}")
        tokenizers, vectors = self.data_module.tokenizers, self.config.init_embeddings
        load_embedding_files(self.trainer.model, vectors, tokenizers, self.log)

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
        self.is_validation_due()
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
    def callbacks(
        self, trackers: Sequence[str] = (), others: Sequence[Callback] = ()
    ) -> Iterator[list[Callback]]:
        """Start the clock and the callbacks of the main process; close them at the end."""
        self.start_time = time.monotonic() - self.progress.seconds
        if not self.dist_context.is_main_process:
            yield []
            return
        step = self.trainer.step
        info = environment_info(self.device, self.dist_context)
        self._write_metrics({"type": "environment", "step": step, **info})
        settings = self.recipe.model_dump(mode="json")
        loggers = [
            MetricsLogger(self._write_metrics, self.trainer.model, self._extra_log_fields),
            *build_tracker_callbacks(trackers, self.run.folder, settings, self.log),
        ]
        with show_progress(
            self.console,
            step=step,
            fraction_done=lambda step: self.limits.fraction_done(step, self.progress),
            metric=self.config.metric_for_best_model,
        ) as bar:
            callbacks = [bar, *loggers, *others]
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
            **environment_info(self.device, self.dist_context),
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

    def agree(self, limit: str, /) -> tuple[str, bool, bool]:
        """Return what any rank finds: the limit reached, a signal to stop, an early validation."""
        flags = bool(limit), self.stop_requested(), self._is_early_validation_due()
        is_reached, is_interrupted, is_early = self.dist_context.all_reduce_any(*flags)
        limit = limit or ("another rank has reached a limit" if is_reached else "")
        return limit, is_interrupted, is_early

    def is_validation_due(self) -> bool:
        """Return whether a validation follows the last step; to be called after each."""
        step, epoch = self.trainer.step, self.progress.cursor.epoch
        interval, epochs = self.config.validate_every, self.config.validate_every_epochs
        if interval is None:
            due = int(NUM_VALIDATIONS * self.limits.fraction_done(step, self.progress))
        else:
            due = epoch // epochs if epochs else 0
        is_due, self._num_validations_due = due > self._num_validations_due, due
        if interval is None:
            return is_due
        is_shorter = epochs is not None and step * epochs < interval * epoch  # than the interval
        return step % interval == 0 or (is_due and is_shorter)

    def _is_early_validation_due(self) -> bool:
        """Whether nothing was validated in the first minute or tenth of the time budget."""
        progress, seconds = self.progress, FIRST_VALIDATION_SECONDS
        if progress.scores or progress.has_early_validation:
            return False
        if self.config.max_minutes is not None:
            seconds = min(seconds, _FIRST_VALIDATION_FRACTION * 60 * self.config.max_minutes)
        return progress.seconds >= seconds

    def validate(self, *, is_early: bool = False) -> ValidationResult:
        """Evaluate on the dev data, and save the weights if they are the best so far.

        An early validation counts neither for early stopping and learning-rate schedules nor as the
        best later: its step depends on the speed of the machine.
        """
        step, progress, metric = self.trainer.step, self.progress, self.config.metric_for_best_model
        with self.trainer.averaged_parameters():
            with self.dist_context.summon_full_params(self.trainer.model):
                scores = self._dev_scores(metric)
                num_samples = self.config.num_logged_samples
                is_main = self.dist_context.is_main_process
                has_samples = is_main and not self.stop_requested()
                samples = self.dev_evaluator.sample_predictions(num_samples) if has_samples else []
            sign = -1 if self.recipe.best_model_metric.higher_is_better else 1
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
        self.log(f"step {step}: {self.task.evaluation.format(scores)}{best}")
        print_samples(self.console, samples)
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

    def log(self, message: str) -> None:
        """Print a line; only the main process has a console."""
        print_line(self.console, message)

    def _dev_scores(self, metric: str) -> dict[str, float]:
        with self.trainer.precision.autocast():
            scores = compute_dev_metrics(
                self.task,
                accelerate_for_inference(self.inference_model, self.device),
                self.data_module.validation_batches(),
                device=self.device,
                dist_context=self.dist_context,
            )
        decoded: dict[str, float] = {}
        if self.dist_context.is_main_process:
            decoded = self._decoded_scores([] if metric in scores else [metric])
        if metric not in scores:
            score = torch.tensor(decoded.get(metric, 0.0), dtype=torch.float64)
            scores[metric] = self.dist_context.all_reduce(score).item()
        return {**scores, **decoded}

    def _decoded_scores(self, required: Sequence[str]) -> dict[str, float]:
        """Return metrics of outputs: the required ones, and others while they take little time."""
        shown = self.config.validation_metrics
        names = [*required, *(self.task.evaluation.shown_metrics if shown is None else shown)]
        if required:
            return self.dev_evaluator.compute_scores(names)
        start, spent = time.monotonic(), self._decoding_seconds
        max_seconds = _MAX_DECODING_FRACTION * (start - self.start_time)
        if self.stop_requested() or sum([*spent, *spent[-1:]]) > max_seconds:
            return {}
        scores = self.dev_evaluator.compute_scores(names, max_examples=_MAX_SHOWN_EXAMPLES)
        spent.append(time.monotonic() - start)
        return scores

    def _save_best_weights(self) -> None:
        """Save the best weights unless they are saved; a full disk may have delayed them."""
        if self._unsaved_best:
            step, state_dict = self._unsaved_best
            self.run.save_model(state_dict, step=step)
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
            "peak_memory": peak_memory(self.device),
            "seconds": round(time.monotonic() - self.start_time, 3),
        }
