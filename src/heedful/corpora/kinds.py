"""Kinds of corpora: how batches are made of pairs, of running text, and of text with gaps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from heedful.data.collate import Batch, collate
from heedful.data.masking import hide
from heedful.data.prepare import BatchStream, Position, epoch_shapes
from heedful.data.records import Pair
from heedful.data.regularisation import Recut
from heedful.data.running import Row, TextBatch, TextStream, Tokens, apart, overlapping
from heedful.data.store import Pairs, PairStore
from heedful.recipes import Recipe
from heedful.tasks.masked_language_model import MaskedLanguageModelConfig
from heedful.text.config import TextPair


class Batches(Protocol):
    """Batches without end; `position` says where to go on."""

    position: Position

    def __iter__(self) -> Iterator[Any]:
        """Give the next batches."""
        ...


class Corpora(ABC):
    """What is learned from and what is validated on, as tokens."""

    recipe: Recipe
    text: TextPair
    fingerprint: str
    """Tells one corpus from another."""

    @abstractmethod
    def stream(self, position: Position) -> Batches:
        """Give batches to learn from, from this position on."""

    @abstractmethod
    def held_out(self) -> Iterator[Any]:
        """Give batches to validate on, always the same."""


class PairCorpora(Corpora):
    """Pairs of texts."""

    def __init__(
        self,
        recipe: Recipe,
        text: TextPair,
        train: Pairs,
        dev: PairStore,
        *,
        fingerprint: str,
        held_out_pairs: Sequence[Pair],
    ) -> None:
        self.recipe = recipe
        self.text = text
        self.train = train
        self.dev = dev
        self.fingerprint = fingerprint
        self.held_out_pairs = list(held_out_pairs)

    def stream(self, position: Position) -> BatchStream:
        """Give batches to learn from, from this position on."""
        config = self.recipe.training
        recutters = self.recipe.text.recutters(self.text)
        train = Recut(self.train, recutters, seed=config.seed) if any(recutters) else self.train
        return BatchStream(train, config.batching, seed=config.seed, position=position)

    def held_out(self) -> Iterator[Batch]:
        """Give batches to validate on, always the same."""
        config = self.recipe.training
        for shape in epoch_shapes(self.dev, config.batching, seed=config.seed, epoch=0):
            yield collate(self.dev, shape)


class TextCorpora(Corpora):
    """Running text, of which each token says the next."""

    def __init__(
        self,
        recipe: Recipe,
        text: TextPair,
        train: Row,
        dev: Tokens,
        *,
        fingerprint: str,
    ) -> None:
        self.recipe = recipe
        self.text = text
        self.train = train
        self.dev = dev
        self.fingerprint = fingerprint

    def stream(self, position: Position) -> TextStream:
        """Give batches to learn from, from this position on."""
        streams, seed = self.recipe.data.streams, self.recipe.training.seed
        return TextStream(self.train, streams, seed=seed, position=position)

    def held_out(self) -> Iterator[TextBatch]:
        """Give batches to validate on: each token is asked for once, as it is in evaluation."""
        return overlapping(self.dev, self.recipe.data.streams)


class MaskedTextCorpora(TextCorpora):
    """Running text, of which some tokens are hidden; what is drawn follows from the place alone."""

    def stream(self, position: Position) -> TextStream:
        """Give batches to learn from, from this position on."""
        stream = super().stream(position)
        stream.change = self._hide
        return stream

    def held_out(self) -> Iterator[TextBatch]:
        """Give batches to validate on, always with the same tokens hidden."""
        for number, batch in enumerate(apart(self.dev, self.recipe.data.streams)):
            yield self._hide(batch, Position(-1, number))

    def _hide(self, batch: TextBatch, place: Position) -> TextBatch:
        model = self.recipe.model
        assert isinstance(model, MaskedLanguageModelConfig)
        seed = f"{self.recipe.training.seed} {place.epoch} {place.batch}"
        size = len(self.text.target)
        return hide(batch.inputs, model.masking, vocabulary_size=size, seed=seed)
