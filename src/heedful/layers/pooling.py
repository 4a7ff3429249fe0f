"""Pooling: one vector per sequence. Invariant: padding has no influence, and alone gives zeros."""

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig, build_self_attention
from heedful.attention.masks import check_padding_mask
from heedful.config import BaseConfig, ModuleConfig
from heedful.shapes import AnyMask, Float, Values

Pooled = Float[Tensor, "*B V"]


class Pooling(nn.Module, ABC):
    """One vector from the states of a sequence."""

    @abstractmethod
    def forward(self, states: Values, mask: AnyMask = None) -> Pooled:
        """Pool the states where the mask (*B, S) is True; without a mask, all of them."""


class MeanPooling(Pooling):
    """Mean of the states."""

    @override
    def forward(self, states: Values, mask: AnyMask = None) -> Pooled:
        mask = check_padding_mask(mask, states)
        total = states.masked_fill(~mask.unsqueeze(-1), 0).sum(dim=-2)
        return total / mask.sum(dim=-1, keepdim=True).clamp(min=1)


class MaxPooling(Pooling):
    """Largest value of each unit (Collobert & Weston 2008)."""

    @override
    def forward(self, states: Values, mask: AnyMask = None) -> Pooled:
        mask = check_padding_mask(mask, states)
        min_value = torch.finfo(states.dtype).min
        largest = states.masked_fill(~mask.unsqueeze(-1), min_value).amax(dim=-2)
        return largest.masked_fill(~mask.any(dim=-1, keepdim=True), 0)


class AttentionPooling(Pooling):
    """Attention to the states with a learned query (Yang et al. 2016, section 2.2)."""

    def __init__(self, attention: Attention, *, query_size: int) -> None:
        super().__init__()
        self.attention = attention
        self.query = nn.Parameter(torch.randn(query_size) * query_size**-0.5)

    @override
    def forward(self, states: Values, mask: AnyMask = None) -> Pooled:
        mask = check_padding_mask(mask, states)
        # Zero masked states: NaN times a weight of zero would still be NaN.
        visible = states.masked_fill(~mask.unsqueeze(-1), 0)
        memory = self.attention.build_memory(visible, mask)
        query = self.query.expand(*states.shape[:-2], 1, -1)
        return self.attention(query, memory, need_weights=False).context.squeeze(-2)


class MeanPoolingConfig(ModuleConfig):
    """Mean of the states."""

    module_class = MeanPooling
    type: Literal["mean"] = "mean"


class MaxPoolingConfig(ModuleConfig):
    """Largest value of each unit."""

    module_class = MaxPooling
    type: Literal["max"] = "max"


class AttentionPoolingConfig(BaseConfig):
    """Attention to the states with a learned query (Yang et al. 2016)."""

    type: Literal["attention"] = "attention"
    attention: AttentionConfig = AttentionConfig()
    """The attention mechanism."""

    def build(self, *, size: int) -> Pooling:
        attention = build_self_attention(self.attention, size, size, "pooling.attention")
        return AttentionPooling(attention, query_size=size)
