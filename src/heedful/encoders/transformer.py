"""Transformer encoders: every place of a source looks at every other."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from heedful.attention.masks import padding
from heedful.encoders.encoder import Encoder
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.layers.pooling import MeanPooling
from heedful.layers.transformer import TransformerStack
from heedful.layers.transformer_choices import PlacedTransformerParts
from heedful.shapes import Int


class TransformerEncoder(Encoder):
    """A stack of Transformer layers; the summary is the mean of the states."""

    def __init__(self, embedding: Embedding, stack: TransformerStack, *, size: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.size = size
        self.pooling = MeanPooling()

    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> Encoded:
        """Read a batch of sources."""
        mask = padding(lengths, tokens.size(1)).squeeze(1)  # (B, S)
        read, penalties = self.stack.both_ways(self.embedding(tokens), lengths)
        states = read.masked_fill(~mask.unsqueeze(-1), 0)
        return Encoded(states, lengths, self.pooling(states, mask), penalties=penalties)


class TransformerEncoderConfig(PlacedTransformerParts):
    """Read the source with Transformer layers (Vaswani et al. 2017)."""

    kind: Literal["transformer"] = "transformer"

    def build(self, *, vocabulary_size: int) -> TransformerEncoder:
        """Make the encoder for a vocabulary."""
        return TransformerEncoder(
            self.embedding(vocabulary_size), self.stack(at="encoder"), size=self.size
        )
