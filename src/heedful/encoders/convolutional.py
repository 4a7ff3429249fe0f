"""Convolutional encoders: every word of a source, and more of its neighbours with every layer.

Law: padding has no influence, and a state stands where its word stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, cast

from pydantic import model_validator
from torch import Tensor, nn

from heedful.attention.masks import padding
from heedful.encoders.encoder import Encoder
from heedful.layers.convolution_choices import ConvolutionalParts
from heedful.layers.convolutions import GatedLayer, NormedConvolution, halved
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.layers.pooling import MeanPooling
from heedful.shapes import Int


class ConvolutionalEncoder(Encoder):
    """Gated layers between two matrices; z, what comes out, is as wide as the embeddings e.

    (Gehring et al. 2017, section 3.) A place is called for by z and what is taken of it is
    (z + e) sqrt(0.5), both told their places. The paper's equation 2 takes z + e; the constant is
    the authors' code's, and what section 3.4 wants of every sum: that it keeps the variance.
    """

    def __init__(
        self,
        embedding: Embedding,
        layers: Sequence[GatedLayer],
        *,
        enter: NormedConvolution,
        leave: NormedConvolution,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.enter = enter
        self.layers = nn.ModuleList(layers)
        self.leave = leave
        self.pooling = MeanPooling()
        self.size = embedding.size

    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> Encoded:
        """Read a batch of sources."""
        mask = padding(lengths, tokens.size(1)).squeeze(1)  # (B, S)
        hidden = ~mask.unsqueeze(-1)
        embedded = self.embedding(tokens)
        read = self.enter(embedded)
        for layer in cast(Iterable[GatedLayer], self.layers):
            read = layer.both_ways(read, mask)
        keys = self.leave(read).masked_fill(hidden, 0)
        states = halved(keys, embedded.masked_fill(hidden, 0))
        return Encoded(states, lengths, self.pooling(states, mask), called_by=keys)


class ConvolutionalEncoderConfig(ConvolutionalParts):
    """Read the source with gated convolutions (Gehring et al. 2017)."""

    kind: Literal["convolutional"] = "convolutional"

    @model_validator(mode="after")
    def _has_middles(self) -> ConvolutionalEncoderConfig:
        even = [layer.kernel for layer in self.layers if layer.kernel % 2 == 0]
        if even:
            raise ValueError(
                f"an encoder sees as many places before as after: kernel must be odd, not {even[0]}"
            )
        return self

    def build(self, *, vocabulary_size: int) -> ConvolutionalEncoder:
        """Make the encoder for a vocabulary."""
        embedding = self.build_embedding(vocabulary_size)
        return ConvolutionalEncoder(
            embedding,
            self.build_layers(),
            enter=NormedConvolution(embedding.size, self.first_size, dropout=self.dropout),
            leave=NormedConvolution(self.last_size, embedding.size),
        )
