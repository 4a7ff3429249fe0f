"""Sampling: how many of the tokens before it is a model told, and how many does it say itself?

A model that always reads known tokens never sees its own mistakes until it is used. Scheduled
sampling (Bengio et al. 2015, section 2.4) makes it read more and more of its own. The teacher's
share is a function of the step alone, so nothing of it needs to be saved. Law: it lies between 0
and 1 and never rises. Steps count from 1; the papers' i counts the updates done before.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from heedful.config import Choice
from heedful.decoders.own_tokens import Own

Share = Annotated[float, Field(ge=0, le=1)]


class TeacherForcingConfig(Choice):
    """Tell the model every token before the one it is to say (Williams & Zipser 1989)."""

    kind: Literal["teacher-forcing"] = "teacher-forcing"

    @property
    def own(self) -> Own:
        """How the model chooses tokens of its own: it never does."""
        return "drawn"

    def teacher_share(self, step: int) -> float:
        """The share of tokens that are known, at a step."""
        del step
        return 1.0


class ScheduledChoice(Choice):
    """A share that falls, and how the model chooses the rest."""

    kind: str
    own: Own = "drawn"
    """Whether the model's own tokens are drawn as likely as it finds them, or the likeliest."""


class LinearSamplingConfig(ScheduledChoice):
    """max(minimum, k - c i): fall in a straight line."""

    kind: Literal["linear"] = "linear"
    k: Share = 1.0
    """The share at the first step."""
    c: NonNegativeFloat = 1e-4
    """How much the share falls at every step."""
    minimum: Share = 0.0
    """The least share."""

    def teacher_share(self, step: int) -> float:
        """The share of tokens that are known, at a step."""
        return max(self.minimum, self.k - self.c * (step - 1))


class ExponentialSamplingConfig(ScheduledChoice):
    """k^i: fall by the same ratio at every step."""

    kind: Literal["exponential"] = "exponential"
    k: Annotated[float, Field(gt=0, lt=1)] = 0.9999
    """What the share is multiplied by at every step."""

    def teacher_share(self, step: int) -> float:
        """The share of tokens that are known, at a step."""
        return self.k ** (step - 1)


class InverseSigmoidSamplingConfig(ScheduledChoice):
    """k / (k + exp(i / k)): fall slowly, then fast, then slowly."""

    kind: Literal["inverse-sigmoid"] = "inverse-sigmoid"
    k: Annotated[PositiveFloat, Field(ge=1)] = 1000.0
    """How long it takes; a half is reached after k ln k steps."""

    def teacher_share(self, step: int) -> float:
        """The share of tokens that are known, at a step."""
        # In this form a late step gives nothing, where exp(i / k) is beyond every number.
        return 1 / (1 + math.exp(min((step - 1) / self.k - math.log(self.k), _LARGEST)))


_LARGEST = 700.0  # exp of little more is beyond what a float can hold

SamplingConfig = Annotated[
    TeacherForcingConfig
    | LinearSamplingConfig
    | ExponentialSamplingConfig
    | InverseSigmoidSamplingConfig,
    Field(discriminator="kind"),
]
