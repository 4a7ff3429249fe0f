"""Dilated encoders: a source read by convolutions, and unfolded to the length of its target.

The target is not known yet, so its length is taken to be a |s| + b (Kalchbrenner et al. 2016,
section 3.2, "dynamic unfolding"). Law: padding has no influence, and a state stands where its word
stands.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.attention.masks import padding
from heedful.encoders.encoder import Encoder
from heedful.layers.dilated import DilatedParts, DilatedStack
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.layers.pooling import MeanPooling
from heedful.shapes import Int


class Unfolding(nn.Module):
    """|t^| = a |s| + b, to the nearest whole number."""

    def __init__(self, factor: float, offset: int) -> None:
        super().__init__()
        self.factor = factor
        self.offset = offset

    def size(self, length: int) -> int:
        """Say how long a source of this length becomes."""
        return round(self.factor * length + self.offset)

    def forward(self, lengths: Int[Tensor, "B"], longest: int) -> Int[Tensor, "B"]:
        """Say how long sources become, of which none is longer than `longest`."""
        # Looked up: worked out on another device, a half might be rounded another way.
        sizes = [self.size(length) for length in range(longest + 1)]
        return torch.tensor(sizes, device=lengths.device)[lengths]


class DilatedEncoder(Encoder):
    """Dilated blocks over a source that is first filled up with zeros to the unfolded length.

    (Kalchbrenner et al. 2016, section 3.) The states are those of the words. What the blocks made
    of every place, those behind the words too, is kept beside them, for a decoder to read place
    by place.
    """

    def __init__(self, embedding: Embedding, stack: DilatedStack, unfolding: Unfolding) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.unfolding = unfolding
        self.pooling = MeanPooling()
        self.size = stack.size

    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> Encoded:
        """Read a batch of sources."""
        size = tokens.size(1)
        mask = padding(lengths, size).squeeze(1)  # (B, S)
        embedded = self.embedding(tokens).masked_fill(~mask.unsqueeze(-1), 0)
        unfolded_size = self.unfolding.size(size)
        there = padding(self.unfolding(lengths, size), unfolded_size).squeeze(1)  # (B, U)
        unfolded = self.stack.both_ways(pad(embedded, (0, 0, 0, unfolded_size - size)), there)
        states = unfolded[:, :size].masked_fill(~mask.unsqueeze(-1), 0)
        return Encoded(states, lengths, self.pooling(states, mask), unfolded=unfolded)


class DilatedEncoderConfig(DilatedParts):
    """Read the source with dilated convolutions (Kalchbrenner et al. 2016)."""

    kind: Literal["dilated"] = "dilated"
    length_factor: Annotated[float, Field(ge=1)] = 1.2
    """How many tokens of the target there are to one of the source, at most: the paper's a."""
    length_offset: NonNegativeInt = 0
    """How many more there are, whatever the source: the paper's b."""

    @model_validator(mode="after")
    def _has_a_middle(self) -> DilatedEncoderConfig:
        if self.kernel % 2 == 0:
            raise ValueError(
                f"an encoder sees as far before as after: kernel must be odd, not {self.kernel}"
            )
        return self

    def build(self, *, vocabulary_size: int) -> DilatedEncoder:
        """Make the encoder for a vocabulary."""
        stack = self.build_stack()
        return DilatedEncoder(
            self.build_embedding(vocabulary_size),
            stack,
            Unfolding(self.length_factor, self.length_offset),
        )
