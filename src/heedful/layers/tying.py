"""Tying: one table of words for what is read and what is said.

A word is said as it is read (Press & Wolf 2017), and where both sides have one vocabulary, it is
read alike on both.
"""

from __future__ import annotations

from torch import nn

from heedful.errors import ConfigError
from heedful.layers.embeddings import Embedding


def tie(projection: nn.Linear, embedding: Embedding) -> None:
    """Let words be said by the vectors they are read by."""
    said, read = projection.weight.shape, embedding.table.weight.shape
    if said != read:
        raise ConfigError(
            "embeddings",
            f"a word is said by a vector of {said[1]} numbers and read by one of {read[1]}",
            "make both widths the same, or do not tie them",
        )
    projection.weight = embedding.table.weight


def share(one: Embedding, other: Embedding) -> None:
    """Let words of both sides be read by the same vectors."""
    require_one_vocabulary(one.table.num_embeddings, other.table.num_embeddings)
    widths = one.table.embedding_dim, other.table.embedding_dim
    if widths[0] != widths[1]:
        raise ConfigError(
            "embeddings",
            f"words of both sides cannot share vectors: those of the source have {widths[0]} "
            f"numbers and those of the target {widths[1]}",
            "make both widths the same, or keep embeddings separate",
        )
    one.table.weight = other.table.weight


def require_one_vocabulary(source_size: int, target_size: int) -> None:
    """Refuse to share what two vocabularies have apart."""
    if source_size != target_size:
        raise ConfigError(
            "embeddings",
            f"words of both sides cannot share vectors: the source has {source_size} tokens and "
            f"the target {target_size}",
            "set text.kind to 'shared', or keep embeddings separate",
        )
