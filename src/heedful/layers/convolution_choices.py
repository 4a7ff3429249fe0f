"""Gated convolutions, as a configuration puts them together."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, PositiveInt
from torch import nn

from heedful.attention.choices.positions import LearnedPositionsConfig, PositionConfig
from heedful.attention.positions import LearnedPositions
from heedful.config import Choice
from heedful.layers.convolutions import EMBEDDING_SPREAD, GatedLayer
from heedful.layers.embeddings import Embedding
from heedful.text.vocabulary import PAD


class LayersConfig(Choice):
    """Some layers of one width on top of one another."""

    count: PositiveInt = 1
    """How many."""
    size: PositiveInt = 256
    """Their width."""
    kernel: PositiveInt = 3
    """Places that a layer puts together."""


class ConvolutionalParts(Choice):
    """What both sides of a convolutional system are made of (Gehring et al. 2017)."""

    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    layers: Annotated[tuple[LayersConfig, ...], Field(min_length=1)] = (LayersConfig(count=4),)
    """The layers, bottom first."""
    positions: PositionConfig | None = LearnedPositionsConfig()
    """How words are told their places; if not given, only a layer's neighbourhood is known."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings and from what layers read."""

    @property
    def first_size(self) -> int:
        """Width of what the first layer reads."""
        return self.layers[0].size

    @property
    def last_size(self) -> int:
        """Width of what the last layer makes."""
        return self.layers[-1].size

    def build_embedding(self, vocabulary_size: int) -> Embedding:
        """Make the vectors of words and, if learned, of places: N(0, 0.1)."""
        size = self.embedding_size
        placing = self.positions.build(embedding_size=size) if self.positions else None
        embedding = Embedding(vocabulary_size, size, dropout=self.dropout, placing=placing)
        tables = [embedding.table]
        if placing is not None:
            if not isinstance(placing.positions, LearnedPositions):
                return embedding  # waves are of height one: shorter words would drown in them
            tables.append(placing.positions.table)
        for table in tables:
            nn.init.normal_(table.weight, std=EMBEDDING_SPREAD)
        nn.init.zeros_(embedding.table.weight[PAD].detach())
        return embedding

    def build_layers(self) -> list[GatedLayer]:
        """Make the layers, bottom first."""
        each = [group for group in self.layers for _ in range(group.count)]
        sizes = pairwise([self.first_size, *(layer.size for layer in each)])
        return [
            GatedLayer(below, size, kernel=layer.kernel, dropout=self.dropout)
            for layer, (below, size) in zip(each, sizes, strict=True)
        ]
