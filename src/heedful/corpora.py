"""Corpora: the data of a run, read, cut into tokens and reported on.

What differs between models of pairs and models of running text is all here: how data is read,
and how batches are made of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

from rich.console import Console

from heedful.data.collate import Batch, collate
from heedful.data.masking import hide
from heedful.data.prepare import (
    BatchStream,
    Position,
    epoch_shapes,
    fingerprint,
    hold_out,
    tokenise,
)
from heedful.data.records import Pair
from heedful.data.running import (
    TextBatch,
    TextStream,
    Tokens,
    apart,
    fingerprint_of,
    hold_out_end,
    overlapping,
    run_together,
)
from heedful.data.store import PairStore
from heedful.errors import ConfigError
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tasks.masked_language_model import MaskedLanguageModelConfig
from heedful.text.config import TextPair
from heedful.text.vocabulary import UNK
from heedful.training.progress import say

_CUTTING = "cutting texts into tokens"
_TWO_FILES = "two files: --source FILE --target FILE"


class Batches(Protocol):
    """Batches without end; `position` says where to go on."""

    position: Position

    def __iter__(self) -> Iterator[Any]:
        """Give the next batches."""
        ...


class Corpora(ABC):
    """What is learned from and what is validated on, as tokens."""

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

    def __init__(self, recipe: Recipe, text: TextPair, train: PairStore, dev: PairStore) -> None:
        self.recipe = recipe
        self.text = text
        self.train = train
        self.dev = dev
        self.fingerprint = fingerprint(train)

    def stream(self, position: Position) -> BatchStream:
        """Give batches to learn from, from this position on."""
        config = self.recipe.training
        return BatchStream(self.train, config.batching, seed=config.seed, position=position)

    def held_out(self) -> Iterator[Batch]:
        """Give batches to validate on, always the same."""
        config = self.recipe.training
        for shape in epoch_shapes(self.dev, config.batching, seed=config.seed, epoch=0):
            yield collate(self.dev, shape)


class TextCorpora(Corpora):
    """Running text, of which each token says the next."""

    def __init__(self, recipe: Recipe, text: TextPair, train: Tokens, dev: Tokens) -> None:
        self.recipe = recipe
        self.text = text
        self.train = train
        self.dev = dev
        self.fingerprint = fingerprint_of(train)

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


def read_corpora(recipe: Recipe, run: Run, console: Console) -> Corpora:
    """Read the data of a recipe; a run that is only beginning learns its vocabulary from it."""
    with console.status("reading the data"):
        learned, held_out = _read(recipe, console)
    if not run.exists:
        with console.status("learning the vocabulary"):
            run.begin(recipe, recipe.text.train(*_sides(recipe, learned)))
    text = run.read_text(recipe)
    if recipe.is_of_text:
        return _text_corpora(recipe, text, learned, held_out, console)
    return _pair_corpora(recipe, text, learned, held_out, console)


def _read(recipe: Recipe, console: Console) -> tuple[list[Any], list[Any]]:
    """Read pairs or lines: what is learned from, and what is validated on."""
    data = recipe.data
    if data.train is None:
        files = "a file: --text FILE" if recipe.is_of_text else _TWO_FILES
        raise ConfigError(
            "data.train", "the recipe does not say what to learn from", f"give {files}"
        )
    at = data.train.describe()
    say(console, f"reading {at}")
    examples: list[Any] = data.train.read()
    if data.dev is not None:
        return examples, data.dev.read()
    if recipe.is_of_text:
        return hold_out_end(examples, at=at)
    return hold_out(examples, seed=recipe.training.seed, at=at)


def _sides(recipe: Recipe, learned: list[Any]) -> tuple[list[str], list[str]]:
    """Give the texts that the tokenizers of source and target learn from."""
    if recipe.is_of_text:
        return learned, []
    return [pair.source for pair in learned], [pair.target for pair in learned]


def _pair_corpora(
    recipe: Recipe, text: TextPair, learned: list[Pair], held_out: list[Pair], console: Console
) -> PairCorpora:
    sizes = f"{len(text.source)} source and {len(text.target)} target tokens"
    say(console, f"vocabulary: {sizes}")
    stores = list[PairStore]()
    for name, pairs in (("train", learned), ("dev", held_out)):
        with console.status(_CUTTING):
            store, report = tokenise(pairs, text, recipe.data.selection, at=f"data.{name}")
        for line in report.lines():
            say(console, f"{name}: {line}")
        stores.append(store)
    return PairCorpora(recipe, text, *stores)


def _text_corpora(
    recipe: Recipe, text: TextPair, learned: list[str], held_out: list[str], console: Console
) -> TextCorpora:
    say(console, f"vocabulary: {len(text.target)} tokens")
    rows = list[Tokens]()
    for name, lines in (("train", learned), ("dev", held_out)):
        with console.status(_CUTTING):
            rows.append(run_together(lines, text.target))
        unknown = int((rows[-1] == UNK).sum())
        beside = f", {unknown} of them unknown" if unknown else ""
        say(console, f"{name}: {len(lines)} lines, {len(rows[-1]) - 1} tokens{beside}")
    is_masked = isinstance(recipe.model, MaskedLanguageModelConfig)
    return (MaskedTextCorpora if is_masked else TextCorpora)(recipe, text, *rows)
