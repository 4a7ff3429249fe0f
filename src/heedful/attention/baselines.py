"""Baselines: what reward is expected before a place is chosen?

A choice is good or bad by what it brought beyond that. Whatever is expected must not depend on
the choice itself: then it changes how much the gradients of REINFORCE scatter, not their mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from heedful.shapes import Bool, Float


class Baseline(nn.Module, ABC):
    """What reward is expected before a place is chosen."""

    @abstractmethod
    def forward(
        self, log_probs: Float[Tensor, "*B T"], queries: Float[Tensor, "*B T Q"] | None = None
    ) -> Float[Tensor, "*B T"]:
        """Expect a reward for each choice, from the query that it was made for.

        Of the choices only their shape and kind of number are used.
        """

    @abstractmethod
    def learn(
        self,
        rewards: Float[Tensor, "*B T"],
        expected: Float[Tensor, "*B T"],
        real: Bool[Tensor, "*B T"],
    ) -> dict[str, Float[Tensor, ""]]:
        """Take in the rewards that came; say, by name, what is added to the loss."""


class NoBaseline(Baseline):
    """b = 0: a choice is as good as its reward."""

    def forward(
        self, log_probs: Float[Tensor, "*B T"], queries: Float[Tensor, "*B T Q"] | None = None
    ) -> Float[Tensor, "*B T"]:
        """Expect nothing."""
        return torch.zeros_like(log_probs)

    def learn(
        self,
        rewards: Float[Tensor, "*B T"],
        expected: Float[Tensor, "*B T"],
        real: Bool[Tensor, "*B T"],
    ) -> dict[str, Float[Tensor, ""]]:
        """Learn nothing."""
        return {}


class MovingBaseline(Baseline):
    """b_k = momentum b_{k-1} + (1 - momentum) mean reward of batch k, b_0 = 0.

    (Xu et al. 2015, section 4.1; momentum 0.9 there.) The mean is over all choices made for real
    targets. It is saved with the weights, so that training goes on from it.
    """

    value: Float[Tensor, ""]

    def __init__(self, momentum: float = 0.9) -> None:
        super().__init__()
        assert 0 <= momentum < 1, momentum
        self.momentum = momentum
        self.register_buffer("value", torch.zeros(()))

    def forward(
        self, log_probs: Float[Tensor, "*B T"], queries: Float[Tensor, "*B T Q"] | None = None
    ) -> Float[Tensor, "*B T"]:
        """Expect of every choice what the last ones brought."""
        # A sum, not a view: what was expected stays when the value moves on.
        return torch.zeros_like(log_probs) + self.value.to(log_probs.dtype)

    def learn(
        self,
        rewards: Float[Tensor, "*B T"],
        expected: Float[Tensor, "*B T"],
        real: Bool[Tensor, "*B T"],
    ) -> dict[str, Float[Tensor, ""]]:
        """Move towards the mean reward, in training only; nothing is added to the loss."""
        if self.training:
            # No question is put to a GPU: a batch without real targets moves nothing.
            mean = rewards.masked_fill(~real, 0).sum() / real.sum().clamp(min=1)
            pull = (1 - self.momentum) * real.any()
            self.value.lerp_(mean.to(self.value.dtype), pull.to(self.value.dtype))
        return {}


class LearnedBaseline(Baseline):
    """b_t = w . q_t + c, by regression on the rewards  (Mnih et al. 2014).

    The query is taken as it is: what the baseline learns does not reach the model.
    """

    def __init__(self, query_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, 1)

    def forward(
        self, log_probs: Float[Tensor, "*B T"], queries: Float[Tensor, "*B T Q"] | None = None
    ) -> Float[Tensor, "*B T"]:
        """Expect what the query promises."""
        assert queries is not None, "a learned baseline is read from the query"
        return self.projection(queries.detach()).squeeze(-1)

    def learn(
        self,
        rewards: Float[Tensor, "*B T"],
        expected: Float[Tensor, "*B T"],
        real: Bool[Tensor, "*B T"],
    ) -> dict[str, Float[Tensor, ""]]:
        """Half the squared distance from the rewards."""
        missed = (rewards - expected).square().masked_fill(~real, 0)
        return {"baseline": missed.sum() / 2}
