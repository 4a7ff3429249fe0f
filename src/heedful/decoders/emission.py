"""Emission: how is a token said?

An emission turns features, and what attention saw, into log-probabilities of tokens. It is not
part of the recurrence, so a known target is emitted all at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from torch import Tensor, nn

from heedful.attention import Memory
from heedful.config import Choice
from heedful.shapes import Float


class Emission(nn.Module, ABC):
    """How a token is said."""

    @abstractmethod
    def forward(
        self,
        features: Float[Tensor, "B T *S D"],
        weights: Float[Tensor, "B T S"],
        memory: Memory,
    ) -> Float[Tensor, "B T N"]:
        """Give the log-probability of every token."""


class VocabularyEmission(Emission):
    """log softmax(W f + b): every token is chosen from the vocabulary."""

    def __init__(self, feature_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(feature_size, vocabulary_size)

    def forward(
        self,
        features: Float[Tensor, "B T *S D"],
        weights: Float[Tensor, "B T S"],
        memory: Memory,
    ) -> Float[Tensor, "B T N"]:
        """Give the log-probability of every token."""
        del weights, memory  # a vocabulary knows no source
        return self.projection(features).log_softmax(dim=-1)


class VocabularyEmissionConfig(Choice):
    """Choose every token from the vocabulary."""

    kind: Literal["vocabulary"] = "vocabulary"

    def build(self, *, feature_size: int, vocabulary_size: int) -> Emission:
        """Make the emission."""
        return VocabularyEmission(feature_size, vocabulary_size)


EmissionConfig = VocabularyEmissionConfig
