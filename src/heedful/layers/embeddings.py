"""Embeddings: from tokens to vectors."""

from __future__ import annotations

from torch import Tensor, nn

from heedful.attention.positions import Placing
from heedful.shapes import Float, Int
from heedful.text.vocabulary import PAD


class Embedding(nn.Module):
    """A vector for every token of a vocabulary, told its place if there is a placing.

    Without one, padding is zero.
    """

    def __init__(
        self,
        vocabulary_size: int,
        size: int,
        *,
        dropout: float,
        placing: Placing | None = None,
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary_size, size, padding_idx=PAD)
        self.placing = placing
        self.size = size if placing is None else placing.output_size
        self.dropout = nn.Dropout(dropout)
        # Short as usual, words would drown in waves of height one (Vaswani et al. 2017, 3.4).
        nn.init.normal_(self.table.weight, std=size**-0.5 if placing is None else 1.0)
        nn.init.zeros_(self.table.weight[PAD].detach())

    def forward(self, tokens: Int[Tensor, "*B"]) -> Float[Tensor, "*B E"]:
        """Look the tokens up."""
        vectors = self.table(tokens)
        return self.dropout(vectors if self.placing is None else self.placing(vectors))
