"""Kinds of corpora: how batches are made of pairs, of running text, and of text with gaps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

from heedful.data.batch_stream import DataCursor
from heedful.recipes import Recipe
from heedful.tokenization.tokenizer_pair import TokenizerPair


class BatchIterator(Protocol):
    """Batches without end; `cursor` says where to go on."""

    cursor: DataCursor

    def __iter__(self) -> Iterator[Any]:
        """Give the next batches."""
        ...


class DataModule(ABC):
    """What is learned from and what is validated on, as tokens."""

    recipe: Recipe
    tokenizers: TokenizerPair
    fingerprint: str
    """Tells one corpus from another."""

    @abstractmethod
    def train_batches(self, cursor: DataCursor) -> BatchIterator:
        """Give batches to learn from, from this position on."""

    @abstractmethod
    def validation_batches(self) -> Iterator[Any]:
        """Give batches to validate on, always the same."""
