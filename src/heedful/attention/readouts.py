"""The readouts, as a configuration names them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.config import BaseConfig
from heedful.shapes import Float

# Readouts: what is taken from the memory, given where attention went?


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


class WeightedSumReadout(Readout):
    """The mean of the values under the weights: sum_s weights_s values_s."""

    def forward(
        self,
        weights: Float[Tensor, "*B T S"],
        values: Float[Tensor, "*B S V"],
        queries: Float[Tensor, "*B T Q"] | None = None,
    ) -> Float[Tensor, "*B T V"]:
        """Average the values."""
        return weights @ values


class ArgmaxReadout(Readout):
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
        max_weight, places = weights.max(dim=-1, keepdim=True)  # (*B, T, 1)
        chosen = values.gather(-2, places.expand(*places.shape[:-1], values.size(-1)))
        return torch.where(max_weight > 0, chosen, 0 * max_weight.detach())  # NaN stays NaN


class GatedReadout(Readout):
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


class PerPositionReadout(Readout):
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


class WeightedSumReadoutConfig(BaseConfig):
    """Take the mean of the values under the weights."""

    type: Literal["weighted-sum"] = "weighted-sum"

    def build(self, *, query_size: int) -> Readout:
        """Make the readout."""
        return WeightedSumReadout()


class ArgmaxReadoutConfig(BaseConfig):
    """Take the value with the most weight and nothing of the others."""

    type: Literal["argmax"] = "argmax"

    def build(self, *, query_size: int) -> Readout:
        """Make the readout."""
        return ArgmaxReadout()


class GatedReadoutConfig(BaseConfig):
    """Let the query say how much of its context it wants (Xu et al. 2015)."""

    type: Literal["gated"] = "gated"
    inner: WeightedSumReadoutConfig | ArgmaxReadoutConfig = Field(
        default=WeightedSumReadoutConfig(), discriminator="type"
    )
    """How the context is taken that the gate then lets through."""

    def build(self, *, query_size: int) -> Readout:
        """Make the readout."""
        return GatedReadout(self.inner.build(query_size=query_size), query_size=query_size)


class PerPositionReadoutConfig(BaseConfig):
    """Keep every value apart, for an emission that mixes what each would say (Wu et al. 2018)."""

    type: Literal["per-position"] = "per-position"

    def build(self, *, query_size: int) -> Readout:
        """Make the readout."""
        return PerPositionReadout()


ReadoutConfig = Annotated[
    WeightedSumReadoutConfig | ArgmaxReadoutConfig | GatedReadoutConfig | PerPositionReadoutConfig,
    Field(discriminator="type"),
]
