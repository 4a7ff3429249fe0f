"""Embeddings: from tokens to vectors."""

from __future__ import annotations

from torch import Tensor, nn

from heedful.shapes import Float, Int
from heedful.text.vocabulary import PAD


class Embedding(nn.Module):
    """A vector for every token of a vocabulary; padding is zero."""

    def __init__(self, vocabulary_size: int, size: int, *, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary_size, size, padding_idx=PAD)
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.table.weight, std=size**-0.5)
        nn.init.zeros_(self.table.weight[PAD].detach())

    def forward(self, tokens: Int[Tensor, "*B"]) -> Float[Tensor, "*B E"]:
        """Look the tokens up."""
        return self.dropout(self.table(tokens))
