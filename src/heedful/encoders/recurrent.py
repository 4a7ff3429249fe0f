"""Recurrent encoders: a source read word by word, in one direction or both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.attention.masks import padding
from heedful.config import Choice
from heedful.layers.cells import CellKind
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.layers.recurrence import Recurrence
from heedful.shapes import Float, Int


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
        return Encoded(states * seen[:, :, None], lengths, self._summary(states, lengths))

    def _summary(
        self, states: Float[Tensor, "B S V"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B V"]:
        rows = torch.arange(len(lengths), device=lengths.device)
        forwards_end, backwards_end = states[rows, lengths - 1], states[:, 0]
        top = self.layers[-1]
        assert isinstance(top, Recurrence)
        if top.backwards is None:
            return forwards_end
        half = self.size // 2
        return torch.cat([forwards_end[:, :half], backwards_end[:, half:]], dim=-1)


class RecurrentEncoderConfig(Choice):
    """Read the source with recurrent layers."""

    kind: Literal["recurrent"] = "recurrent"
    cell: CellKind = "gru"
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

    def build(self, *, vocabulary_size: int) -> RecurrentEncoder:
        """Make the encoder for a vocabulary."""
        width = self.hidden_size // 2 if self.bidirectional else self.hidden_size
        inputs = [self.embedding_size] + [self.hidden_size] * (self.num_layers - 1)
        layers = [
            Recurrence(self.cell, size, width, bidirectional=self.bidirectional) for size in inputs
        ]
        embedding = Embedding(vocabulary_size, self.embedding_size, dropout=self.dropout)
        return RecurrentEncoder(embedding, layers, dropout=self.dropout, size=self.hidden_size)
