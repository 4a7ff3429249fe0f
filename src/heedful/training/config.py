"""How long and how a model is trained, as a configuration says it."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from heedful.config import Choice
from heedful.data.batching import BatchingConfig
from heedful.training.optim import AdamWConfig, OptimizerConfig
from heedful.training.sampling import SamplingConfig, TeacherForcingConfig
from heedful.training.schedules import InverseSquareRootConfig, ScheduleConfig


class TrainingConfig(Choice):
    """How long and how a model is trained."""

    seed: int = 0
    """Decides the first weights, the order of the data and what dropout drops."""
    max_steps: PositiveInt = 20_000
    """Most updates."""
    max_minutes: PositiveFloat | None = None
    """Most minutes, those before an interruption counted; no limit if not given."""
    patience: PositiveInt | None = 10
    """Validations without a better loss after which training ends; no such end if null."""
    validate_every: PositiveInt = 500
    """Updates between validations; weights and state are saved at each."""
    batching: BatchingConfig = BatchingConfig()
    """How examples are grouped."""
    accumulate: PositiveInt = 1
    """Batches per update."""
    optimizer: OptimizerConfig = AdamWConfig()
    """How gradients move the weights."""
    schedule: ScheduleConfig = InverseSquareRootConfig(warmup_steps=1000)
    """How large the learning rate is at each step."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients longer than this are shortened to it."""
    sampling: SamplingConfig = TeacherForcingConfig()
    """How many of the tokens before it the model is told, and how many it says itself."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of each target spread evenly over the vocabulary."""

    def learning_rate(self, step: int) -> float:
        """The learning rate at a step, counted from 1."""
        share = self.schedule.share(step, max_steps=self.max_steps)
        return self.optimizer.learning_rate * share
