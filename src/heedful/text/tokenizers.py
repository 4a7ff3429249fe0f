"""Tokenizers: how a text is cut into tokens, and put together again.

Laws, tested for every tokenizer: `decode(encode(text))` is the normalised text, exactly, where
every piece of it is known; an encoded id is never `PAD`, `BOS` or `EOS`, however the text is
spelled; what is saved and loaded encodes the same; lone surrogates are refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self

from heedful.errors import DataError
from heedful.text.normalisation import Normalisation
from heedful.text.surrogates import refuse_surrogates
from heedful.text.vocabulary import SPECIAL_NAMES, UNK, Vocabulary
from heedful.text.words import join_words, split_words

VOCABULARY_FILE = "vocabulary.json"


class Tokenizer(ABC):
    """Text to ids and back."""

    def __init__(self, normalise: Normalisation) -> None:
        self.normalise = normalise

    def encode(self, text: str) -> list[int]:
        """Cut one text; nothing is put before or after it."""
        return self._encode([clean(text, self.normalise, at="text")])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Cut many texts."""
        return self._encode(list(clean_all(texts, self.normalise)))

    @abstractmethod
    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Cut texts that are clean."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Put a text together; `PAD`, `BOS` and `EOS` leave no trace, `UNK` says "<unk>"."""

    @abstractmethod
    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Say how each id is shown to people: "horto", ".", and a lone space as a space."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what was learned into a folder that exists; the config loads it again."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the ids, those of the special symbols included."""


class VocabularyTokenizer(Tokenizer):
    """A tokenizer that cuts by a fixed rule and looks the pieces up."""

    unknown: ClassVar[str] = SPECIAL_NAMES[UNK]

    def __init__(self, vocabulary: Vocabulary, normalise: Normalisation) -> None:
        super().__init__(normalise)
        self.vocabulary = vocabulary
        self._spellings = ("", self.unknown, "", "", *vocabulary.tokens)
        self._shown = (*SPECIAL_NAMES, *map(self.show, vocabulary.tokens))

    @staticmethod
    @abstractmethod
    def split(text: str) -> list[str]:
        """Cut a text into pieces."""

    @staticmethod
    @abstractmethod
    def join(pieces: list[str]) -> str:
        """Put pieces together: `join(split(text))` is the text."""

    @staticmethod
    def show(piece: str) -> str:
        """Say how a piece is shown to people."""
        return piece

    @classmethod
    def train(
        cls, texts: Iterable[str], normalise: Normalisation, *, min_count: int, max_size: int
    ) -> Self:
        """Learn which pieces there are."""
        counts: Counter[str] = Counter()
        for text in clean_all(texts, normalise):
            counts.update(cls.split(text))
        refuse_nothing(counts)
        return cls(
            Vocabulary.from_counts(counts, min_count=min_count, max_size=max_size), normalise
        )

    @classmethod
    def load(cls, folder: Path, normalise: Normalisation) -> Self:
        """Read what `save` wrote."""
        return cls(Vocabulary.load(folder / VOCABULARY_FILE), normalise)

    def save(self, folder: Path) -> None:
        """Write the vocabulary into a folder that exists."""
        self.vocabulary.save(folder / VOCABULARY_FILE)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [self.vocabulary.ids(self.split(text)) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Put the pieces together."""
        return self.join([self._spellings[each] for each in ids])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Say how each id is shown to people."""
        return [self._shown[each] for each in ids]

    def __len__(self) -> int:
        return len(self.vocabulary)


class CharacterTokenizer(VocabularyTokenizer):
    """Every code point is a token."""

    @staticmethod
    def split(text: str) -> list[str]:
        """Cut a text into its code points."""
        return list(text)

    @staticmethod
    def join(pieces: list[str]) -> str:
        """Put code points together."""
        return "".join(pieces)


class WordTokenizer(VocabularyTokenizer):
    """Words, signs and white space, each with the space before it (see `words`).

    Where a script writes no spaces, a word is all that stands between two signs: for such text
    choose subwords or characters.
    """

    # The space before an unknown piece is lost with it, and words mostly have one.
    unknown = " " + SPECIAL_NAMES[UNK]

    @staticmethod
    def split(text: str) -> list[str]:
        """Cut a text into words, signs and white space."""
        return split_words(text)

    @staticmethod
    def join(pieces: list[str]) -> str:
        """Put words, signs and white space together."""
        return join_words(pieces)

    @staticmethod
    def show(piece: str) -> str:
        """Show a piece without the space before it."""
        return piece.removeprefix(" ") or piece


def clean(text: str, normalise: Normalisation, *, at: str) -> str:
    """Normalise a text, once it is known to be one."""
    refuse_surrogates(text, at=at)
    return normalise(text)


def clean_all(texts: Iterable[str], normalise: Normalisation) -> Iterator[str]:
    """Normalise many texts; one that is none is named by its number."""
    for number, text in enumerate(texts, start=1):
        yield clean(text, normalise, at=f"text {number}")


def refuse_nothing(found: object) -> None:
    """Refuse to learn tokens from no text."""
    if not found:
        problem = "there is nothing to learn tokens from: no text, or only empty ones"
        raise DataError("text", problem, "give text that holds something")
