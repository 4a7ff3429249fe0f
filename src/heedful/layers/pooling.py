"""Pooling: how does a whole sequence become one vector?

Law: padding has no influence; a sequence of padding alone becomes zeros.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig, build_self_attention
from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.shapes import Bool, Float


class Pooling(nn.Module, ABC):
    """How a whole sequence becomes one vector."""

    @abstractmethod
    def forward(
        self, states: Float[Tensor, "*B S V"], mask: Bool[Tensor, "*B S"]
    ) -> Float[Tensor, "*B V"]:
        """Put together the states where the mask is True."""


class MeanPooling(Pooling):
    """The mean of the states."""

    def forward(
        self, states: Float[Tensor, "*B S V"], mask: Bool[Tensor, "*B S"]
    ) -> Float[Tensor, "*B V"]:
        """Take the mean."""
        total = states.masked_fill(~mask.unsqueeze(-1), 0).sum(dim=-2)
        return total / mask.sum(dim=-1, keepdim=True).clamp(min=1)


class MaxPooling(Pooling):
    """The highest value of each unit, wherever it stands  (Collobert & Weston 2008)."""

    def forward(
        self, states: Float[Tensor, "*B S V"], mask: Bool[Tensor, "*B S"]
    ) -> Float[Tensor, "*B V"]:
        """Take the highest values."""
        lowest = torch.finfo(states.dtype).min
        highest = states.masked_fill(~mask.unsqueeze(-1), lowest).amax(dim=-2)
        return highest.masked_fill(~mask.any(dim=-1, keepdim=True), 0)


class AttentionPooling(Pooling):
    """What a learned query finds in the states  (Yang et al. 2016, section 2.2)."""

    def __init__(self, attention: Attention, *, query_size: int) -> None:
        super().__init__()
        self.attention = attention
        self.query = nn.Parameter(torch.randn(query_size) * query_size**-0.5)

    def forward(
        self, states: Float[Tensor, "*B S V"], mask: Bool[Tensor, "*B S"]
    ) -> Float[Tensor, "*B V"]:
        """Ask for the one thing that was learned."""
        # No number at a hidden place, times a weight of zero, would still be no number.
        seen = states.masked_fill(~mask.unsqueeze(-1), 0)
        memory = self.attention.build_memory(seen, mask.unsqueeze(-2))
        query = self.query.expand(*states.shape[:-2], 1, -1)
        return self.attention(query, memory, need_weights=False).context.squeeze(-2)


class LastStatePoolingConfig(BaseConfig):
    """Take what is seen where the reading ends, of every direction its own end."""

    type: Literal["last"] = "last"

    def build(self, *, size: int) -> None:
        """Make nothing: whoever reads knows where it ended."""


class MeanPoolingConfig(BaseConfig):
    """Take the mean of the states."""

    type: Literal["mean"] = "mean"

    def build(self, *, size: int) -> Pooling:
        """Make the pooling for states of this width."""
        return MeanPooling()


class MaxPoolingConfig(BaseConfig):
    """Take the highest value of each unit."""

    type: Literal["max"] = "max"

    def build(self, *, size: int) -> Pooling:
        """Make the pooling for states of this width."""
        return MaxPooling()


class AttentionPoolingConfig(BaseConfig):
    """Take what a learned query finds in the states (Yang et al. 2016)."""

    type: Literal["attention"] = "attention"
    attention: AttentionConfig = AttentionConfig()
    """How it looks for it."""

    def build(self, *, size: int) -> Pooling:
        """Make the pooling for states of this width."""
        attention = build_self_attention(
            self.attention, query_size=size, memory_size=size, config_path="pooling.attention"
        )
        return AttentionPooling(attention, query_size=size)


_PoolingTypes = Literal["last", "mean", "max", "attention"]
_Poolings = LastStatePoolingConfig | MeanPoolingConfig | MaxPoolingConfig | AttentionPoolingConfig
PoolingConfig = Annotated[
    _Poolings,
    Field(discriminator="type"),
    allow_bare_type(_PoolingTypes | _Poolings),
]
