"""Scores: how strongly does each query call for each key?

A score turns queries (*B, T, Q) and prepared keys (*B, S, A) into numbers (*B, T, S). Work that
concerns the keys alone is done in `prepare`, once per source and never per step. `*B` stands
for any leading dimensions, so one score serves a recurrent decoder (B,) and many heads (B, H).
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


class DotScore(Score):
    """q . k  (Luong et al. 2015, equation 8, "dot")."""

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S K"]:
        """Keys are compared as they are."""
        return keys

    def forward(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every key."""
        return queries @ prepared.transpose(-1, -2)


class BilinearScore(Score):
    """q . W k  (Luong et al. 2015, equation 8, "general")."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(key_size, query_size, bias=False)

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S Q"]:
        """W k."""
        return self.projection(keys)

    def forward(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return queries @ prepared.transpose(-1, -2)


class AdditiveScore(Score):
    """v . tanh(W q + U k)  (Bahdanau et al. 2015, section A.1.2)."""

    def __init__(self, query_size: int, key_size: int, hidden_size: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, hidden_size, bias=False)
        self.key_projection = nn.Linear(key_size, hidden_size, bias=False)
        self.reduction = nn.Linear(hidden_size, 1, bias=False)

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S A"]:
        """U k."""
        return self.key_projection(keys)

    def forward(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S A"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        projected = self.query_projection(queries)  # (*B, T, A)
        hidden = projected.unsqueeze(-2) + prepared.unsqueeze(-3)  # (*B, T, S, A)
        return self.reduction(hidden.tanh()).squeeze(-1)
