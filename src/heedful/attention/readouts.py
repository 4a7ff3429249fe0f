"""Readouts: what is taken from the memory, given where attention went?"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from heedful.shapes import Float


class Readout(nn.Module, ABC):
    """What is taken from the memory."""

    is_per_position = False
    """Whether a context is kept for every place, (*B, T, S, V), and not one for all."""

    @abstractmethod
    def forward(
        self,
        weights: Float[Tensor, "*B T S"],
        values: Float[Tensor, "*B S V"],
        queries: Float[Tensor, "*B T Q"] | None = None,
    ) -> Float[Tensor, "*B T V"] | Float[Tensor, "*B T S V"]:
        """Take a context for every query."""


class Expectation(Readout):
    """The mean of the values under the weights: sum_s weights_s values_s."""

    def forward(
        self,
        weights: Float[Tensor, "*B T S"],
        values: Float[Tensor, "*B S V"],
        queries: Float[Tensor, "*B T Q"] | None = None,
    ) -> Float[Tensor, "*B T V"]:
        """Average the values."""
        return weights @ values


class Selection(Readout):
    """The value at the place with the most weight, and nothing of the others.

    A row without any weight takes zeros. No gradient reaches the weights.
    """

    def forward(
        self,
        weights: Float[Tensor, "*B T S"],
        values: Float[Tensor, "*B S V"],
        queries: Float[Tensor, "*B T Q"] | None = None,
    ) -> Float[Tensor, "*B T V"]:
        """Pick one value."""
        most, places = weights.max(dim=-1, keepdim=True)  # (*B, T, 1)
        chosen = values.gather(-2, places.expand(*places.shape[:-1], values.size(-1)))
        return torch.where(most > 0, chosen, 0 * most.detach())  # NaN stays NaN


class Gated(Readout):
    """beta * inner, beta = sigmoid(w . q + b), a scalar  (Xu et al. 2015, section 4.2.1).

    The query says how much of its context it wants at all. The gate is one number for the whole
    context; well-known code has a vector there.
    """

    def __init__(self, inner: Readout, *, query_size: int) -> None:
        super().__init__()
        self.inner = inner
        self.gate = nn.Linear(query_size, 1)

    def forward(
        self,
        weights: Float[Tensor, "*B T S"],
        values: Float[Tensor, "*B S V"],
        queries: Float[Tensor, "*B T Q"] | None = None,
    ) -> Float[Tensor, "*B T V"]:
        """Take a context and let part of it through."""
        assert queries is not None, "a gate is set by the query"
        return self.gate(queries).sigmoid() * self.inner(weights, values, queries)


class PerPosition(Readout):
    """Every value by itself, for an emission that mixes what would be said of each.

    (Wu et al. 2018, "Hard non-monotonic attention for character-level transduction")
    """

    is_per_position = True

    def forward(
        self,
        weights: Float[Tensor, "*B T S"],
        values: Float[Tensor, "*B S V"],
        queries: Float[Tensor, "*B T Q"] | None = None,
    ) -> Float[Tensor, "*B T S V"]:
        """Give every query all values."""
        return values.unsqueeze(-3).expand(*weights.shape, values.size(-1))
