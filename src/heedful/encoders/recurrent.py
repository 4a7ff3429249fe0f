"""Recurrent encoders: a source read word by word, in one direction or both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.attention.choices.positions import PositionConfig
from heedful.attention.masks import padding
from heedful.config import Choice
from heedful.layers.cell_choices import CellConfig, GruCellConfig
from heedful.layers.cells import Cell
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.layers.recurrence import Recurrence
from heedful.shapes import Int


class RecurrentEncoder(nn.Module):
    """Recurrent layers on top of one another; the summary is where each direction ends."""

    def __init__(
        self, embedding: Embedding, layers: Sequence[Recurrence], *, dropout: float, size: int
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(dropout)
        self.size = size

    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> Encoded:
        """Read a batch of sources."""
        states = self.embedding(tokens)
        for number, layer in enumerate(self.layers):
            states = layer(self.dropout(states) if number else states, lengths)
        seen = padding(lengths, tokens.size(1)).squeeze(1)  # (B, S)
        top = self.layers[-1]
        assert isinstance(top, Recurrence)
        return Encoded(states * seen[:, :, None], lengths, top.seen_at_end(states, lengths))


class RecurrentEncoderConfig(Choice):
    """Read the source with recurrent layers."""

    kind: Literal["recurrent"] = "recurrent"
    cell: CellConfig = GruCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    hidden_size: PositiveInt = 256
    """Width of a state, both directions together."""
    num_layers: PositiveInt = 1
    """Layers on top of one another."""
    bidirectional: bool = True
    """Whether each layer reads both ways."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings and between layers."""
    positions: PositionConfig | None = None
    """How words are told their places; if not given, the recurrence alone knows."""

    @model_validator(mode="after")
    def _has_halves(self) -> RecurrentEncoderConfig:
        if self.bidirectional and self.hidden_size % 2:
            raise ValueError(f"hidden_size, for both directions, must be even: {self.hidden_size}")
        return self

    def build(self, *, vocabulary_size: int) -> RecurrentEncoder:
        """Make the encoder for a vocabulary."""
        size, places = self.embedding_size, self.positions
        placing = places.build(embedding_size=size) if places else None
        embedding = Embedding(vocabulary_size, size, dropout=self.dropout, placing=placing)
        inputs = [embedding.size] + [self.hidden_size] * (self.num_layers - 1)
        layers = [self._layer(size) for size in inputs]
        return RecurrentEncoder(embedding, layers, dropout=self.dropout, size=self.hidden_size)

    def _layer(self, input_size: int) -> Recurrence:
        width = self.hidden_size // 2 if self.bidirectional else self.hidden_size

        def cell() -> Cell:
            return self.cell.build(input_size=input_size, hidden_size=width)

        return Recurrence(forwards=cell(), backwards=cell() if self.bidirectional else None)
