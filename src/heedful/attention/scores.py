"""Scores: how strongly does each query call for each key?

A score turns queries (*B, T, Q) and prepared keys (*B, S, A) into numbers (*B, T, S). Work that
concerns the keys alone is done in `prepare`, once per source and never per step. `*B` stands
for any leading dimensions, so one score serves a recurrent decoder (B,) and many heads (B, H).
Each number depends on its own query, its own key and its place, and on nothing beside them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from heedful.shapes import Float


class Score(nn.Module, ABC):
    """How strongly each query calls for each key."""

    @abstractmethod
    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S A"]:
        """Do once what concerns the keys alone."""

    @abstractmethod
    def forward(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S A"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
