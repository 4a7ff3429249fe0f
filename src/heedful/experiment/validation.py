"""Validation of a model in training: when it is due, its metrics and its samples.

Invariant: validation leaves parameters, modes and random numbers as they were.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from heedful.acceleration.registry import accelerate_for_inference
from heedful.experiment.plan import TrainingPlan
from heedful.pytree import map_tensors
from heedful.tasks.task import Task
from heedful.tasks.task_data import DataModule
from heedful.training.callbacks import LoggedSample
from heedful.training.distributed import SINGLE_PROCESS, DistributedContext
from heedful.training.state import TrainingLimits, TrainingProgress
from heedful.training.trainer import Trainer

NUM_VALIDATIONS = 10  # if `validate_every` is null
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


class Validator:
    """Validates a model in training on its dev data; with multiple ranks, each has one."""

    def __init__(self, plan: TrainingPlan, trainer: Trainer, data_module: DataModule) -> None:
        self.plan, self._task, self._config = plan, plan.recipe.task, plan.config
        self._trainer, self._dist_context = trainer, trainer.dist_context
        self._data_module = data_module
        self._model = self._dist_context.inference_model(trainer.model)
        self._dev_evaluator = self._task.evaluation.dev_evaluator(
            self._model, data_module, plan.recipe, plan.device, self._dist_context
        )
        self._num_due = 0  # if validations are spread over the limits
        self._decoding_seconds: list[float] = []  # for metrics that are only shown

    def is_due(self, limits: TrainingLimits, step: int, progress: TrainingProgress) -> bool:
        """Return whether a validation follows a step; to be called after each."""
        epoch = progress.cursor.epoch
        interval, epochs = self._config.validate_every, self._config.validate_every_epochs
        if interval is None:
            due = int(NUM_VALIDATIONS * limits.fraction_done(step, progress))
        else:
            due = epoch // epochs if epochs else 0
        is_due, self._num_due = due > self._num_due, due
        if interval is None:
            return is_due
        is_shorter = epochs is not None and step * epochs < interval * epoch  # than the interval
        return step % interval == 0 or (is_due and is_shorter)

    def is_early_due(self, progress: TrainingProgress) -> bool:
        """Return whether nothing was validated in the first minute or tenth of the time budget."""
        seconds = FIRST_VALIDATION_SECONDS
        if progress.scores or progress.has_early_validation:
            return False
        if self._config.max_minutes is not None:
            seconds = min(seconds, _FIRST_VALIDATION_FRACTION * 60 * self._config.max_minutes)
        return progress.seconds >= seconds

    def validate(
        self, start_time: float, stop_requested: Callable[[], bool]
    ) -> tuple[dict[str, float], Sequence[LoggedSample]]:
        """Return metrics, and samples on the main process; a collective operation.

        Outputs are decoded for metrics that are only shown while that takes a small fraction of
        the time since `start_time`, and no signal to stop has arrived.
        """
        with self._dist_context.summon_full_params(self._trainer.model):
            with self._trainer.precision.autocast():
                scores = compute_dev_metrics(
                    self._task,
                    accelerate_for_inference(self._model, self.plan.device),
                    self._data_module.validation_batches(),
                    device=self.plan.device,
                    dist_context=self._dist_context,
                )
            metric = self._config.metric_for_best_model
            required = [] if metric in scores else [metric]
            is_main = self._dist_context.is_main_process
            is_decoding = bool(required) or not (stop_requested() or self._is_slow(start_time))
            # The clocks of ranks differ; that of the main process counts.
            (is_decoding,) = self._dist_context.all_reduce_any(is_main and is_decoding)
            takes_part = is_main or self._dev_evaluator.is_shared
            decoded = self._decoded_scores(required) if is_decoding and takes_part else {}
            if required:
                value = decoded.get(metric, 0.0) if is_main else 0.0
                score = torch.tensor(value, dtype=torch.float64)
                scores[metric] = self._dist_context.all_reduce(score).item()
            has_samples, count = is_main and not stop_requested(), self._config.num_logged_samples
            samples = self._dev_evaluator.sample_predictions(count) if has_samples else []
        return {**scores, **decoded}, samples

    def _is_slow(self, start_time: float) -> bool:
        """Return whether metrics that are only shown have taken too much of the time."""
        spent = sum([*self._decoding_seconds, *self._decoding_seconds[-1:]])
        return spent > _MAX_DECODING_FRACTION * (time.monotonic() - start_time)

    def _decoded_scores(self, required: Sequence[str]) -> dict[str, float]:
        """Return metrics of outputs: the required ones, and those that are only shown."""
        chosen = self._config.validation_metrics
        names = [*required, *(self._task.evaluation.shown_metrics if chosen is None else chosen)]
        if required:
            return self._dev_evaluator.compute_scores(names)
        start = time.monotonic()
        scores = self._dev_evaluator.compute_scores(names, max_examples=_MAX_SHOWN_EXAMPLES)
        self._decoding_seconds.append(time.monotonic() - start)
        return scores
