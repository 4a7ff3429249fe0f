"""Embeddings: from tokens to vectors."""

from __future__ import annotations

import math

from torch import Tensor, nn

from heedful.attention.positions import Placing
from heedful.shapes import Float, Int
from heedful.text.vocabulary import PAD


class Embedding(nn.Module):
    """A vector for every token of a vocabulary, told its place if there is a placing.

    Without one, padding is zero. Where vectors are `scaled`, they are multiplied by the root of
    their width, so that a table shared with an emission, whose vectors are short, does not drown
    in places (Vaswani et al. 2017, section 3.4).
    """

    def __init__(
        self,
        vocabulary_size: int,
        size: int,
        *,
        dropout: float,
        placing: Placing | None = None,
        scaled: bool = False,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary_size, size, padding_idx=PAD)
        self.placing = placing
        self.size = size if placing is None else placing.output_size
        self.scale = math.sqrt(size) if scaled else 1.0
        self.norm = norm
        self.dropout = nn.Dropout(dropout)
        # Short as usual, words would drown in waves of height one.
        is_short = scaled or placing is None
        nn.init.normal_(self.table.weight, std=size**-0.5 if is_short else 1.0)
        nn.init.zeros_(self.table.weight[PAD].detach())

    def forward(
        self, tokens: Int[Tensor, "*B"], first: Int[Tensor, "B"] | int = 0
    ) -> Float[Tensor, "*B E"]:
        """Look the tokens up; `first` is the place of the first one of each row."""
        vectors = self.table(tokens)
        if self.scale != 1.0:
            vectors = vectors * self.scale
        placed = vectors if self.placing is None else self.placing(vectors, first)
        return self.dropout(placed if self.norm is None else self.norm(placed))
