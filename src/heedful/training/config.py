"""How long and how a model is trained, as a configuration says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from heedful.config import BaseConfig
from heedful.data.batching import BatchingConfig
from heedful.models.scheduled_sampling import ScheduledSamplingConfig, TeacherForcingConfig
from heedful.training.checkpoints import CheckpointConfig
from heedful.training.objectives import CrossEntropyObjectiveConfig, ObjectiveConfig
from heedful.training.optim import (
    AdamWConfig,
    InverseSqrtScheduleConfig,
    LRScheduleConfig,
    OptimizerConfig,
    TrainingHistory,
)
from heedful.training.trainer import EMAConfig, PrecisionName


class TrainingConfig(BaseConfig):
    """How long and how a model is trained."""

    seed: int = 0
    """Decides the first weights, the order of the data and what dropout drops."""
    init_from: str | None = None
    """A run folder whose weights and vocabulary are begun with, instead of new ones."""
    max_steps: PositiveInt = 20_000
    """Most updates."""
    max_epochs: PositiveInt | None = None
    """Most times the data is gone through; no limit if not given."""
    max_minutes: PositiveFloat | None = None
    """Most minutes, those before an interruption counted; no limit if not given."""
    max_flops: PositiveFloat | None = None
    """Most floating-point operations, forwards and backwards; no limit if not given."""
    max_nonfinite_steps: PositiveInt = 10
    """Steps in a row with a loss or gradient that is no number after which training stops."""
    patience: PositiveInt | None = 10
    """Validations without a better score after which training ends; no such end if null."""
    metric_for_best_model: str = "loss"
    """Metric of the task that selects the best checkpoint and that `patience` watches."""
    validate_every: PositiveInt = 500
    """Updates between validations; weights and state are saved at each."""
    max_eval_samples: PositiveInt = 500
    """Most held-out texts that are decoded for a metric of outputs, such as bleu."""
    num_logged_samples: NonNegativeInt = 3
    """Held-out texts whose outputs are kept at each validation, to be looked at."""
    save_every: PositiveInt | None = None
    """Updates between further checkpoints; only at validations if not given."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    """Which checkpoints are kept."""
    batching: BatchingConfig = BatchingConfig()
    """How examples are grouped."""
    gradient_accumulation_steps: PositiveInt = 1
    """Batches per update."""
    distributed_strategy: Literal["ddp", "fsdp"] = "ddp"
    """Whether each of several processes holds all weights (DDP) or its part of them (FSDP2)."""
    precision: PrecisionName = "fp32"
    """Numbers that products are computed in; weights are always fp32."""
    optimizer: OptimizerConfig = AdamWConfig()
    """How gradients move the weights."""
    lr_scheduler: LRScheduleConfig = InverseSqrtScheduleConfig(warmup_steps=1000)
    """How large the learning rate is at each step."""
    max_grad_norm: PositiveFloat | None = 1.0
    """Gradients longer than this are shortened to it."""
    max_grad_value: PositiveFloat | None = None
    """Each number of a gradient is kept within this of zero."""
    ema: EMAConfig | None = None
    """A moving average of the weights, which is then what is validated and published."""
    objective: ObjectiveConfig = CrossEntropyObjectiveConfig()
    """What is made small."""
    scheduled_sampling: ScheduledSamplingConfig = TeacherForcingConfig()
    """How many of the tokens before it the model is told, and how many it says itself."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of each target spread evenly over the vocabulary."""

    def learning_rate(self, step: int, scores: Sequence[float] = ()) -> float:
        """The learning rate at a step, counted from 1, after validations with these scores."""
        share = self.lr_scheduler.lr_factor(step, TrainingHistory(self.max_steps, scores))
        return self.optimizer.learning_rate * share
