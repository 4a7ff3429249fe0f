"""Alignments: from scores to weights over the memory.

An alignment obeys two laws, tested for every class here: weights are zero wherever the mask is
False, and a row sums to one unless all of it is hidden, when it is all zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from heedful.shapes import Bool, Float


class Alignment(nn.Module, ABC):
    """Where attention goes, given how strongly each place calls."""

    @abstractmethod
    def forward(
        self, scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
    ) -> Float[Tensor, "*B T S"]:
        """Share one unit of attention among the visible places."""


class Softmax(Alignment):
    """exp(score / temperature) / sum of the same over the visible places.

    A temperature below one sharpens the weights, one above it evens them out.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        assert temperature > 0, temperature
        self.temperature = temperature

    def forward(
        self, scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
    ) -> Float[Tensor, "*B T S"]:
        """Share one unit of attention among the visible places."""
        # Hide after dividing: a low temperature would make finfo.min infinite.
        return hide(scores / self.temperature, mask).softmax(dim=-1) * mask


def hide(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
) -> Float[Tensor, "*B T S"]:
    """Give the hidden places the least score there is."""
    # finfo.min, not -inf: a fully hidden row must give zeros, in value and in gradient,
    # and a NaN in the scores must stay visible rather than be mistaken for one.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
