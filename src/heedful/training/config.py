"""How long and how a model is trained, as a configuration says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from heedful.config import Choice
from heedful.data.batching import BatchingConfig
from heedful.training.averaging import AverageConfig
from heedful.training.checkpoints import KeepConfig
from heedful.training.objectives import LikelihoodConfig, ObjectiveConfig
from heedful.training.optim import AdamWConfig, OptimizerConfig
from heedful.training.precision import PrecisionName
from heedful.training.sampling import SamplingConfig, TeacherForcingConfig
from heedful.training.schedules import Course, InverseSquareRootConfig, ScheduleConfig

MetricName = Literal[
    "loss",
    "accuracy",
    "exact-match",
    "bleu",
    "chrf",
    "ter",
    "tokenised-bleu",
    "multi-bleu",
    "rouge-1",
    "rouge-2",
    "rouge-l",
    "token-accuracy",
    "wer",
    "per",
    "cer",
    "span-f1",
    "span-f1-iob2",
]
"""What a validation can be judged by: told the truth word by word (loss, accuracy), or else by what
the model writes by itself."""


class TrainingConfig(Choice):
    """How long and how a model is trained."""

    seed: int = 0
    """Decides the first weights, the order of the data and what dropout drops."""
    initial: str | None = None
    """A run folder whose weights and vocabulary are begun with, instead of new ones."""
    max_steps: PositiveInt = 20_000
    """Most updates."""
    max_epochs: PositiveInt | None = None
    """Most times the data is gone through; no limit if not given."""
    max_minutes: PositiveFloat | None = None
    """Most minutes, those before an interruption counted; no limit if not given."""
    max_operations: PositiveFloat | None = None
    """Most floating-point operations, forwards and backwards; no limit if not given."""
    max_bad_steps: PositiveInt = 10
    """Steps in a row with a loss or gradient that is no number after which training stops."""
    patience: PositiveInt | None = 10
    """Validations without a better score after which training ends; no such end if null."""
    metric: MetricName = "loss"
    """What a validation is judged by: the best weights are kept, and `patience` counts."""
    validate_every: PositiveInt = 500
    """Updates between validations; weights and state are saved at each."""
    judged: PositiveInt = 500
    """Most held-out texts that are decoded for a metric of outputs, such as bleu."""
    samples: NonNegativeInt = 3
    """Held-out texts whose outputs are kept at each validation, to be looked at."""
    save_every: PositiveInt | None = None
    """Updates between further checkpoints; only at validations if not given."""
    checkpoints: KeepConfig = KeepConfig()
    """Which checkpoints are kept."""
    batching: BatchingConfig = BatchingConfig()
    """How examples are grouped."""
    accumulate: PositiveInt = 1
    """Batches per update."""
    parallel: Literal["replicated", "sharded"] = "replicated"
    """Whether each of several processes holds all weights (DDP) or its part of them (FSDP2)."""
    precision: PrecisionName = "fp32"
    """Numbers that products are computed in; weights are always fp32."""
    optimizer: OptimizerConfig = AdamWConfig()
    """How gradients move the weights."""
    schedule: ScheduleConfig = InverseSquareRootConfig(warmup_steps=1000)
    """How large the learning rate is at each step."""
    max_grad_norm: PositiveFloat | None = 1.0
    """Gradients longer than this are shortened to it."""
    max_grad_value: PositiveFloat | None = None
    """Each number of a gradient is kept within this of zero."""
    average: AverageConfig | None = None
    """A moving average of the weights, which is then what is validated and published."""
    objective: ObjectiveConfig = LikelihoodConfig()
    """What is made small."""
    sampling: SamplingConfig = TeacherForcingConfig()
    """How many of the tokens before it the model is told, and how many it says itself."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of each target spread evenly over the vocabulary."""

    def learning_rate(self, step: int, scores: Sequence[float] = ()) -> float:
        """The learning rate at a step, counted from 1, after validations with these scores."""
        share = self.schedule.share(step, Course(self.max_steps, scores))
        return self.optimizer.learning_rate * share
