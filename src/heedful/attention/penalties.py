"""Penalties: what is wrong with where attention went, as a number to be added to the loss?

A penalty is a value returned, never hidden in a module: a sum over the real targets of a batch,
times its weight. Padding, of targets and of sources, adds nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from heedful.attention.alignments import Looked
from heedful.shapes import Float


class Penalty(nn.Module, ABC):
    """What is wrong with where attention went."""

    name: str
    """What reports call it."""

    @abstractmethod
    def forward(self, looked: Looked) -> Float[Tensor, ""]:
        """Add up what is wrong."""
