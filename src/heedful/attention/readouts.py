"""Readouts: what is taken from the memory, given where attention went?"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from heedful.shapes import Float


class Readout(nn.Module, ABC):
    """What is taken from the memory."""

    @abstractmethod
    def forward(
        self, weights: Float[Tensor, "*B T S"], values: Float[Tensor, "*B S V"]
    ) -> Float[Tensor, "*B T V"]:
        """Take a context for every query."""


class Expectation(Readout):
    """The mean of the values under the weights: sum_s weights_s values_s."""

    def forward(
        self, weights: Float[Tensor, "*B T S"], values: Float[Tensor, "*B S V"]
    ) -> Float[Tensor, "*B T V"]:
        """Average the values."""
        return weights @ values
