"""Scheduled sampling: training on some of the model's own tokens (Bengio et al. 2015).

Each input token after the first is the target's with probability `teacher_forcing_ratio`, and
otherwise one that the model samples or finds most probable. No gradient passes through the
choice. Invariant: the ratio depends on the step alone, lies between 0 and 1 and never rises.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.search.hypotheses import State, StepwiseModel
from heedful.shapes import Float, StepTokens, TokenIds

TokenChoice = Literal["sample", "argmax"]


def run_scheduled_sampling(
    model: StepwiseModel[State],
    tokens: TokenIds,
    state: State,
    teacher_forcing_ratio: float,
    token_choice: TokenChoice,
) -> tuple[Float[Tensor, "B T N"], Float[Tensor, "B T S"]]:
    """Run one step per token; return log-probabilities and attention weights of all steps."""
    log_probs: list[Tensor] = []
    weights: list[Tensor] = []
    for gold_tokens in tokens.unbind(dim=1):
        last_log_probs = log_probs[-1] if log_probs else None
        input_tokens = choose_input_token(
            gold_tokens, last_log_probs, teacher_forcing_ratio, token_choice
        )
        step = model.step(input_tokens, state)
        state = step.state
        log_probs.append(step.log_probs)
        weights.append(step.weights)
    return torch.stack(log_probs, dim=1), torch.stack(weights, dim=1)


def choose_input_token(
    gold_tokens: StepTokens,
    log_probs: Float[Tensor, "B N"] | None,
    teacher_forcing_ratio: float,
    token_choice: TokenChoice,
) -> StepTokens:
    """Choose between the target's token and the model's own; without `log_probs`, the former."""
    if log_probs is None:
        return gold_tokens
    own_tokens = sample_tokens(log_probs.detach(), token_choice)
    is_gold = torch.rand(gold_tokens.shape, device=gold_tokens.device) < teacher_forcing_ratio
    return torch.where(is_gold, gold_tokens, own_tokens)


def sample_tokens(log_probs: Float[Tensor, "B N"], token_choice: TokenChoice) -> StepTokens:
    """Choose the model's own tokens."""
    if token_choice == "argmax":
        return log_probs.argmax(dim=-1)
    # Gumbel-max: torch.multinomial would abort the process on a GPU when it meets NaN, which the
    # loss should report instead.
    return (log_probs - torch.empty_like(log_probs).exponential_().log()).argmax(dim=-1)


class ScheduleConfigBase(BaseConfig):
    """A schedule of teacher forcing; steps count from 1, the papers' i from 0."""

    type: str

    @abstractmethod
    def teacher_forcing_ratio(self, step: int) -> float:
        """Return the probability that an input token is the target's."""


class TeacherForcingConfig(ScheduleConfigBase):
    """Teacher forcing: every input token is the target's (Williams & Zipser 1989)."""

    type: Literal["teacher-forcing"] = "teacher-forcing"
    token_choice: ClassVar[TokenChoice] = "sample"

    @override
    def teacher_forcing_ratio(self, step: int) -> float:
        return 1.0


class ScheduledSamplingConfigBase(ScheduleConfigBase):
    """A ratio that falls."""

    token_choice: TokenChoice = "sample"
    """Sample the model's own tokens, or take the most probable ones."""


class LinearSamplingConfig(ScheduledSamplingConfigBase):
    """max(min_ratio, k - c i): linear decay."""

    type: Literal["linear"] = "linear"
    k: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Ratio at the first step."""
    c: NonNegativeFloat = 1e-4
    """Decrease per step."""
    min_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Smallest ratio."""

    @override
    def teacher_forcing_ratio(self, step: int) -> float:
        return max(self.min_ratio, self.k - self.c * (step - 1))


class ExponentialSamplingConfig(ScheduledSamplingConfigBase):
    """k^i: exponential decay."""

    type: Literal["exponential"] = "exponential"
    k: Annotated[float, Field(gt=0, lt=1)] = 0.9999
    """Factor per step."""

    @override
    def teacher_forcing_ratio(self, step: int) -> float:
        return self.k ** (step - 1)


class InverseSigmoidSamplingConfig(ScheduledSamplingConfigBase):
    """k / (k + exp(i / k)): inverse sigmoid decay."""

    type: Literal["inverse-sigmoid"] = "inverse-sigmoid"
    k: Annotated[PositiveFloat, Field(ge=1)] = 1000.0
    """Time scale: the ratio is 0.5 after k ln k steps."""

    @override
    def teacher_forcing_ratio(self, step: int) -> float:
        # The equal 1 / (1 + exp(i / k - ln k)), with an exponent that cannot overflow.
        return 1 / (1 + math.exp(min((step - 1) / self.k - math.log(self.k), 700.0)))


ScheduledSamplingConfig = Annotated[
    TeacherForcingConfig
    | LinearSamplingConfig
    | ExponentialSamplingConfig
    | InverseSigmoidSamplingConfig,
    Field(discriminator="type"),
]
