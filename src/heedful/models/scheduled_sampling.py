"""Own tokens: which token does a decoder go on from, where it is not told all of them?

Scheduled sampling (Bengio et al. 2015): each token after the first is the known one with a
probability, the teacher's share, and otherwise the decoder's own, drawn as it finds tokens likely
or the likeliest. No gradient passes through it.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from heedful.config import BaseConfig
from heedful.search.protocol import State, StepwiseModel
from heedful.shapes import Float, Int

TokenChoice = Literal["sample", "argmax"]


def run_scheduled_sampling(
    model: StepwiseModel[State],
    tokens: Int[Tensor, "B T"],
    state: State,
    teacher_forcing_ratio: float,
    token_choice: TokenChoice,
) -> tuple[Float[Tensor, "B T N"], Float[Tensor, "B T S"]]:
    """Read a target of which some tokens are the model's own.

    Gives how likely each token was at every step, and where the model looked.
    """
    log_probs, weights = list[Tensor](), list[Tensor]()
    for known in tokens.unbind(dim=1):
        input_tokens = choose_input_token(
            known, log_probs[-1] if log_probs else None, teacher_forcing_ratio, token_choice
        )
        step = model.step(input_tokens, state)
        state = step.state
        log_probs.append(step.log_probs)
        weights.append(step.weights)
    return torch.stack(log_probs, dim=1), torch.stack(weights, dim=1)


def choose_input_token(
    gold_tokens: Int[Tensor, "B"],
    log_probs: Float[Tensor, "B N"] | None,
    teacher_forcing_ratio: float,
    token_choice: TokenChoice,
) -> Int[Tensor, "B"]:
    """Take the known token or the decoder's own, if it has said anything yet."""
    if log_probs is None:
        return gold_tokens
    chosen = sample_tokens(log_probs.detach(), token_choice)
    is_known = torch.rand(gold_tokens.shape, device=gold_tokens.device) < teacher_forcing_ratio
    return torch.where(is_known, gold_tokens, chosen)


def sample_tokens(log_probs: Float[Tensor, "B N"], token_choice: TokenChoice) -> Int[Tensor, "B"]:
    """Choose the tokens that the decoder itself would say."""
    if token_choice == "argmax":
        return log_probs.argmax(dim=-1)
    # A race of exponential clocks, not torch.multinomial, which ends a process on a GPU when it
    # meets NaN: the loss is to show it, with the step it came from.
    return (log_probs - torch.empty_like(log_probs).exponential_().log()).argmax(dim=-1)


# Sampling: how many of the tokens before it is a model told, and how many does it say itself?
#
# A model that always reads known tokens never sees its own mistakes until it is used. Scheduled
# sampling (Bengio et al. 2015, section 2.4) makes it read more and more of its own. The teacher's
# share is a function of the step alone, so nothing of it needs to be saved. Law: it lies between 0
# and 1 and never rises. Steps count from 1; the papers' i counts the updates done before.

Fraction = Annotated[float, Field(ge=0, le=1)]


class TeacherForcingConfig(BaseConfig):
    """Tell the model every token before the one it is to say (Williams & Zipser 1989)."""

    type: Literal["teacher-forcing"] = "teacher-forcing"

    @property
    def token_choice(self) -> TokenChoice:
        """How the model chooses tokens of its own: it never does."""
        return "sample"

    def teacher_forcing_ratio(self, step: int) -> float:
        """The share of tokens that are known, at a step."""
        del step
        return 1.0


class ScheduledSamplingConfigBase(BaseConfig):
    """A share that falls, and how the model chooses the rest."""

    type: str
    token_choice: TokenChoice = "sample"
    """Whether the model's own tokens are drawn as likely as it finds them, or the likeliest."""


class LinearSamplingConfig(ScheduledSamplingConfigBase):
    """max(minimum, k - c i): fall in a straight line."""

    type: Literal["linear"] = "linear"
    k: Fraction = 1.0
    """The share at the first step."""
    c: NonNegativeFloat = 1e-4
    """How much the share falls at every step."""
    min_ratio: Fraction = 0.0
    """The least share."""

    def teacher_forcing_ratio(self, step: int) -> float:
        """The share of tokens that are known, at a step."""
        return max(self.min_ratio, self.k - self.c * (step - 1))


class ExponentialSamplingConfig(ScheduledSamplingConfigBase):
    """k^i: fall by the same ratio at every step."""

    type: Literal["exponential"] = "exponential"
    k: Annotated[float, Field(gt=0, lt=1)] = 0.9999
    """What the share is multiplied by at every step."""

    def teacher_forcing_ratio(self, step: int) -> float:
        """The share of tokens that are known, at a step."""
        return self.k ** (step - 1)


class InverseSigmoidSamplingConfig(ScheduledSamplingConfigBase):
    """k / (k + exp(i / k)): fall slowly, then fast, then slowly."""

    type: Literal["inverse-sigmoid"] = "inverse-sigmoid"
    k: Annotated[PositiveFloat, Field(ge=1)] = 1000.0
    """How long it takes; a half is reached after k ln k steps."""

    def teacher_forcing_ratio(self, step: int) -> float:
        """The share of tokens that are known, at a step."""
        # In this form a late step gives nothing, where exp(i / k) is beyond every number.
        return 1 / (1 + math.exp(min((step - 1) / self.k - math.log(self.k), _MAX_EXPONENT)))


_MAX_EXPONENT = 700.0  # exp of little more is beyond what a float can hold

ScheduledSamplingConfig = Annotated[
    TeacherForcingConfig
    | LinearSamplingConfig
    | ExponentialSamplingConfig
    | InverseSigmoidSamplingConfig,
    Field(discriminator="type"),
]
