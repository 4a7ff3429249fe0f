"""Encoders: what reads a source, so that a decoder can write about it.

Law: padding has no influence, and a state stands where its word stands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.shapes import Int


class Encoder(nn.Module, ABC):
    """What reads a source."""

    embedding: Embedding
    size: int
    """Width of a state."""
    keeps_memories: bool = False
    """Whether what memory cells hold at the ends is told, where layers have them."""

    @property
    def end_sizes(self) -> tuple[int, ...]:
        """How wide what is seen of each layer at its end is; nothing where none has an end."""
        return ()

    @property
    def backward_size(self) -> int:
        """How many of the last values seen at the top layer's end a backward reading made."""
        return 0

    @abstractmethod
    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> Encoded:
        """Read a batch of sources."""
