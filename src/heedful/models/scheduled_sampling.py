"""Scheduled sampling: training on some of the model's own tokens (Bengio et al. 2015).

No gradient passes through the choice of a token. Invariant: the ratio of teacher forcing depends on
the step alone, lies between 0 and 1 and never rises.
"""

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.search.hypotheses import State, StepwiseModel
from heedful.shapes import LogProbs, SourceWeights, StepLogProbs, StepTokens, TokenIds

TokenChoice = Literal["sample", "argmax"]


class InputSampler(NamedTuple):
    """Chooses input tokens: the target's with a probability, otherwise one of the model's own."""

    teacher_forcing_ratio: float  # the probability
    token_choice: TokenChoice  # sample the model's own tokens, or take the most probable ones

    def choose(self, gold_tokens: StepTokens, log_probs: StepLogProbs | None) -> StepTokens:
        """Choose the next input of each row; without `log_probs`, the target's."""
        if log_probs is None:
            return gold_tokens
        scores = log_probs.detach()
        if self.token_choice == "sample":
            # Gumbel-max: torch.multinomial would abort the process on a GPU when it meets NaN,
            # which the loss should report instead.
            scores = scores - torch.empty_like(scores).exponential_().log()
        sampled_tokens = scores.argmax(dim=-1)
        draws = torch.rand(gold_tokens.shape, device=gold_tokens.device)
        return torch.where(draws < self.teacher_forcing_ratio, gold_tokens, sampled_tokens)


def run_scheduled_sampling(
    model: StepwiseModel[State], tokens: TokenIds, state: State, sampler: InputSampler
) -> tuple[LogProbs, SourceWeights]:
    """Run one step per token; return log-probabilities and attention weights of all steps."""
    log_probs: list[Tensor] = []
    weights: list[Tensor] = []
    for gold_tokens in tokens.unbind(dim=1):
        input_tokens = sampler.choose(gold_tokens, log_probs[-1] if log_probs else None)
        step = model.step(input_tokens, state)
        state = step.state
        log_probs.append(step.log_probs)
        weights.append(step.weights)
    return torch.stack(log_probs, dim=1), torch.stack(weights, dim=1)


class TeacherForcingConfig(BaseConfig):
    """Teacher forcing: each input token is the target's (Williams & Zipser 1989)."""

    type: Literal["teacher-forcing"] = "teacher-forcing"
    token_choice: ClassVar[TokenChoice] = "sample"

    def teacher_forcing_ratio(self, step: int) -> float:
        """Return 1."""
        return 1.0


class ScheduledSamplingConfigBase(BaseConfig):
    """A ratio of teacher forcing that falls; steps count from 1, the paper's i from 0."""

    type: str
    token_choice: TokenChoice = "sample"
    """Sample the model's own tokens, or take the most probable ones."""

    @abstractmethod
    def teacher_forcing_ratio(self, step: int) -> float:
        """Return the probability that an input token is the target's."""


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
