"""Embeddings: from tokens to vectors."""

from __future__ import annotations

import math

from torch import Tensor, nn

from heedful.attention.positional_encoding import PositionCombiner
from heedful.errors import ConfigError
from heedful.shapes import Float, Int
from heedful.tokenization.vocabulary import PAD


class TokenEmbedding(nn.Module):
    """A vector for every token of a vocabulary, told its place if there is a placing.

    Without one, padding is zero. Where vectors are `scaled`, they are multiplied by the root of
    their width, so that a table shared with an emission, whose vectors are short, does not drown
    in places (Vaswani et al. 2017, section 3.4).
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        *,
        dropout: float,
        position_combiner: PositionCombiner | None = None,
        scale_embeddings: bool = False,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_size, padding_idx=PAD)
        self.position_combiner = position_combiner
        self.embedding_size = (
            embedding_size if position_combiner is None else position_combiner.output_size
        )
        self.scale = math.sqrt(embedding_size) if scale_embeddings else 1.0
        self.norm = norm
        self.dropout = nn.Dropout(dropout)
        # Short as usual, words would drown in waves of height one.
        is_short = scale_embeddings or position_combiner is None
        nn.init.normal_(self.embedding.weight, std=embedding_size**-0.5 if is_short else 1.0)
        nn.init.zeros_(self.embedding.weight[PAD].detach())

    def forward(
        self, tokens: Int[Tensor, "*B"], start_positions: Int[Tensor, "B"] | int = 0
    ) -> Float[Tensor, "*B E"]:
        """Look the tokens up; `first` is the place of the first one of each row."""
        vectors = self.embedding(tokens)
        if self.scale != 1.0:
            vectors = vectors * self.scale
        positioned = (
            vectors
            if self.position_combiner is None
            else self.position_combiner(vectors, start_positions)
        )
        return self.dropout(positioned if self.norm is None else self.norm(positioned))


# Tying: one table of words for what is read and what is said.
#
# A word is said as it is read (Press & Wolf 2017), and where both sides have one vocabulary, it is
# read alike on both.


def tie_weights(projection: nn.Linear, embedding: TokenEmbedding) -> None:
    """Let words be said by the vectors they are read by."""
    output_shape, input_shape = projection.weight.shape, embedding.embedding.weight.shape
    if output_shape != input_shape:
        raise ConfigError(
            "embeddings",
            f"a word is said by a vector of {output_shape[1]} numbers and read by one of {input_shape[1]}",
            "make both widths the same, or do not tie them",
        )
    projection.weight = embedding.embedding.weight


def share_embeddings(source: TokenEmbedding, target: TokenEmbedding) -> None:
    """Let words of both sides be read by the same vectors."""
    check_shared_vocabulary(source.embedding.num_embeddings, target.embedding.num_embeddings)
    widths = source.embedding.embedding_dim, target.embedding.embedding_dim
    if widths[0] != widths[1]:
        raise ConfigError(
            "embeddings",
            f"words of both sides cannot share vectors: those of the source have {widths[0]} "
            f"numbers and those of the target {widths[1]}",
            "make both widths the same, or keep embeddings separate",
        )
    source.embedding.weight = target.embedding.weight


def check_shared_vocabulary(source_vocab_size: int, target_vocab_size: int) -> None:
    """Refuse to share what two vocabularies have apart."""
    if source_vocab_size != target_vocab_size:
        raise ConfigError(
            "embeddings",
            f"words of both sides cannot share vectors: the source has {source_vocab_size} tokens and "
            f"the target {target_vocab_size}",
            "set tokenizers.type to 'shared', or keep embeddings separate",
        )
