"""Objectives: what is made small?

An objective is a sum over what it counts, never a mean: who divides, and by how many, is the
learner's business, so that no grouping of batches changes the gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.shapes import Float


class Loss(NamedTuple):
    """What is made small: how wrong the model was, and what else was wrong, by name.

    Apart, because models are compared by the first alone.
    """

    error: Float[Tensor, ""]
    penalties: Mapping[str, Float[Tensor, ""]]


class Objective(ABC):
    """What is made small."""

    @abstractmethod
    def count(self, batch: Any) -> int:
        """What the sum over a batch is divided by: real target tokens, or sentences."""

    @abstractmethod
    def __call__(self, model: nn.Module, batch: Any, step: int, bare: nn.Module) -> Loss:
        """Say how wrong a model is about a batch; `step` is the update it is for, from 1 on.

        `model` is what is differentiated through, and is called once; it may be wrapped. `bare`
        is the same model without a wrapper, to be asked for outputs.
        """
