""""""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt

from heedful.config import BaseConfig
from heedful.errors import DataError
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, SPECIAL_TOKENS, UNK, Vocabulary

# Normalisation: what is changed in a text before it is cut into tokens.
#
# By default nothing. Whatever is changed is a setting that is saved with the run, never a habit
# of a tokenizer; and normalising twice changes no more than normalising once.


class Normalizer:
    """Steps that change a text, in order; without steps, the identity."""

    def __init__(self, steps: Iterable[Callable[[str], str]] = ()) -> None:
        self.steps = tuple(steps)

    def __call__(self, text: str) -> str:
        """Change a text."""
        for step in self.steps:
            text = step(text)
        return text


class NormalizerConfig(BaseConfig):
    """What to change in a text before it is cut into tokens."""

    unicode: Literal["none", "nfc", "nfkc"] = "none"
    """Compose characters (nfc), or also replace look-alikes such as ligatures (nfkc)."""
    lowercase: bool = False
    """Make capitals small."""
    strip: bool = False
    """Remove white space, and with it a carriage return, from both ends."""

    def build(self) -> Normalizer:
        """Make the function that changes a text so."""
        # nfkc can uncover capitals and spaces (U+1D400, U+00A8), so it comes first.
        steps: list[Callable[[str], str]] = []
        if self.unicode != "none":
            form: Literal["NFC", "NFKC"] = "NFC" if self.unicode == "nfc" else "NFKC"
            steps.append(partial(unicodedata.normalize, form))
        if self.lowercase:
            steps.append(str.lower)
        if self.strip:
            steps.append(str.strip)
        return Normalizer(steps)


# Surrogates: whether a string is text at all.
#
# A Python string can hold halves of UTF-16 pairs (U+D800 to U+DFFF). No encoding can write them,
# so they are refused where text comes in, by name and place, rather than deep inside.


def check_no_surrogates(text: str, *, location: str) -> None:
    """Refuse a string that is not text, saying which character makes it so."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            location,
            f"character {error.start + 1} is U+{ord(text[error.start]):04X}, "
            "half of a surrogate pair, which no text can hold",
            "remove it, or decode the text again from its bytes",
        ) from None


# Words: where a word begins and ends.
#
# A piece is a word, a sign or a white space, with the one space before it: "in horto." becomes
# " in", " horto", ".". The text is thought to follow a space, so a word is the same piece at the
# start as within, and the pieces joined are that space and the text, to the last character.

_JOINERS = "\u200c\u200d"
# Unicode keeps all combining marks in these two stretches.
_MARK_RANGES = (range(0x20000), range(0xE0100, 0xE01F0))


def split_words(text: str) -> list[str]:
    """Cut a text into words, signs and white space."""
    return _pattern().findall(" " + text) if text else []


def join_words(words: list[str]) -> str:
    """Put the pieces together, without the space the text was thought to follow."""
    return "".join(words).removeprefix(" ")


@cache
def _pattern() -> re.Pattern[str]:
    # re's \w lacks the combining marks that Indic words are written with, and the joiners that
    # stand inside Persian and Indic words.
    return re.compile(rf" ?[\w{_marks()}{_JOINERS}]+| ?\S|\s")


def _marks() -> str:
    """All combining marks as ranges, which re tries much faster than single characters."""
    marks = {each for each in chain.from_iterable(_MARK_RANGES) if _is_mark(chr(each))}
    firsts = sorted(each for each in marks if each - 1 not in marks)
    lasts = sorted(each for each in marks if each + 1 not in marks)
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(firsts, lasts, strict=True))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


# Tokenizers: how a text is cut into tokens, and put together again.
#
# Laws, tested for every tokenizer: `decode(encode(text))` is the normalised text, exactly, where
# every piece of it is known; an encoded id is never `PAD`, `BOS` or `EOS`, however the text is
# spelled; what is saved and loaded encodes the same; lone surrogates are refused.

VOCABULARY_FILE = "vocabulary.json"


class Tokenizer(ABC):
    """Text to ids and back."""

    def __init__(self, normalizer: Normalizer) -> None:
        self.normalizer = normalizer

    def encode(self, text: str) -> list[int]:
        """Cut one text; nothing is put before or after it."""
        return self._encode([normalize_text(text, self.normalizer, location="text")])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Cut many texts."""
        return self._encode(list(normalize_texts(texts, self.normalizer)))

    @abstractmethod
    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Cut texts that are clean."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Put a text together; `PAD`, `BOS` and `EOS` leave no trace, `UNK` says "<unk>"."""

    @abstractmethod
    def ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Say how each id is shown to people: "horto", ".", and a lone space as a space."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what was learned into a folder that exists; the config loads it again."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the ids, those of the special symbols included."""


def normalize_text(text: str, normalizer: Normalizer, *, location: str) -> str:
    """Normalise a text, once it is known to be one."""
    check_no_surrogates(text, location=location)
    return normalizer(text)


def normalize_texts(texts: Iterable[str], normalizer: Normalizer) -> Iterator[str]:
    """Normalise many texts; one that is none is named by its number."""
    for number, text in enumerate(texts, start=1):
        yield normalize_text(text, normalizer, location=f"text {number}")


class VocabularyTokenizer(Tokenizer):
    """A tokenizer that cuts by a fixed rule and looks the pieces up."""

    unk_token: ClassVar[str] = SPECIAL_TOKENS[UNK]

    def __init__(self, vocabulary: Vocabulary, normalizer: Normalizer) -> None:
        super().__init__(normalizer)
        self.vocabulary = vocabulary
        self._spellings = ("", self.unk_token, "", "", *vocabulary.tokens)
        self._displayed = (*SPECIAL_TOKENS, *map(self.display, vocabulary.tokens))

    @staticmethod
    @abstractmethod
    def tokenize(text: str) -> list[str]:
        """Cut a text into pieces."""

    @staticmethod
    @abstractmethod
    def detokenize(tokens: list[str]) -> str:
        """Put pieces together: `join(tokenize(text))` is the text."""

    @staticmethod
    def display(piece: str) -> str:
        """Say how a piece is shown to people."""
        return piece

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        normalizer: Normalizer,
        *,
        min_frequency: int,
        max_vocab_size: int,
    ) -> Self:
        """Learn which pieces there are."""
        counts: Counter[str] = Counter()
        for text in normalize_texts(texts, normalizer):
            counts.update(cls.tokenize(text))
        check_training_text(counts)
        return cls(
            Vocabulary.from_counts(counts, min_count=min_frequency, max_size=max_vocab_size),
            normalizer,
        )

    @classmethod
    def load(cls, folder: Path, normalizer: Normalizer) -> Self:
        """Read what `save` wrote."""
        return cls(Vocabulary.load(folder / VOCABULARY_FILE), normalizer)

    def save(self, folder: Path) -> None:
        """Write the vocabulary into a folder that exists."""
        self.vocabulary.save(folder / VOCABULARY_FILE)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [self.vocabulary.tokens_to_ids(self.tokenize(text)) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Put the pieces together."""
        return self.detokenize([self._spellings[each] for each in ids])

    def ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Say how each id is shown to people."""
        return [self._displayed[each] for each in ids]

    def __len__(self) -> int:
        return len(self.vocabulary)


def check_training_text(found: object) -> None:
    """Refuse to learn tokens from no text."""
    if not found:
        problem = "there is nothing to learn tokens from: no text, or only empty ones"
        raise DataError("text", problem, "give text that holds something")


class CharacterTokenizer(VocabularyTokenizer):
    """Every code point is a token."""

    @staticmethod
    def tokenize(text: str) -> list[str]:
        """Cut a text into its code points."""
        return list(text)

    @staticmethod
    def detokenize(tokens: list[str]) -> str:
        """Put code points together."""
        return "".join(tokens)


class WordTokenizer(VocabularyTokenizer):
    """Words, signs and white space, each with the space before it (see `words`).

    Where a script writes no spaces, a word is all that stands between two signs: for such text
    choose subwords or characters.
    """

    # The space before an unknown piece is lost with it, and words mostly have one.
    unk_token = " " + SPECIAL_TOKENS[UNK]

    @staticmethod
    def tokenize(text: str) -> list[str]:
        """Cut a text into words, signs and white space."""
        return split_words(text)

    @staticmethod
    def detokenize(tokens: list[str]) -> str:
        """Put words, signs and white space together."""
        return join_words(tokens)

    @staticmethod
    def display(piece: str) -> str:
        """Show a piece without the space before it."""
        return piece.removeprefix(" ") or piece


class LabelTokenizer(VocabularyTokenizer):
    """The whole text is one token: for labels and other closed sets of texts."""

    @staticmethod
    def tokenize(text: str) -> list[str]:
        """Return the text as the only token."""
        return [text] if text else []

    @staticmethod
    def detokenize(tokens: list[str]) -> str:
        """Return the text of the only token."""
        return "".join(tokens)


VocabSize = Annotated[int, Field(gt=NUM_SPECIAL_TOKENS)]


class WordTokenizerConfig(BaseConfig):
    """Words, signs and white space; rare words are unknown."""

    type: Literal["word"] = "word"
    max_vocab_size: VocabSize = 30_000
    """Most entries of the vocabulary, special symbols included."""
    min_frequency: PositiveInt = 1
    """How often a word must be seen to be known."""
    normalization: NormalizerConfig = NormalizerConfig()
    """What to change in a text first."""

    def train(self, texts: Iterable[str]) -> WordTokenizer:
        """Learn the words of these texts."""
        return WordTokenizer.train(
            texts,
            self.normalization.build(),
            min_frequency=self.min_frequency,
            max_vocab_size=self.max_vocab_size,
        )

    def load(self, folder: Path) -> WordTokenizer:
        """Read a saved tokenizer."""
        return WordTokenizer.load(folder, self.normalization.build())


class CharacterTokenizerConfig(BaseConfig):
    """Characters; long sequences, but hardly anything is unknown."""

    type: Literal["character"] = "character"
    max_vocab_size: VocabSize = 30_000
    """Most entries of the vocabulary, special symbols included."""
    min_frequency: PositiveInt = 1
    """How often a character must be seen to be known."""
    normalization: NormalizerConfig = NormalizerConfig()
    """What to change in a text first."""

    def train(self, texts: Iterable[str]) -> CharacterTokenizer:
        """Learn the characters of these texts."""
        return CharacterTokenizer.train(
            texts,
            self.normalization.build(),
            min_frequency=self.min_frequency,
            max_vocab_size=self.max_vocab_size,
        )

    def load(self, folder: Path) -> CharacterTokenizer:
        """Read a saved tokenizer."""
        return CharacterTokenizer.load(folder, self.normalization.build())


class LabelTokenizerConfig(BaseConfig):
    """One token per text: labels, and other texts from a closed set."""

    type: Literal["label"] = "label"
    normalization: NormalizerConfig = NormalizerConfig(strip=True)
    """How texts are normalized; by default, white space around labels is removed."""

    def train(self, texts: Iterable[str]) -> LabelTokenizer:
        """Collect the labels."""
        return LabelTokenizer.train(
            texts, self.normalization.build(), min_frequency=1, max_vocab_size=1_000_000
        )

    def load(self, folder: Path) -> LabelTokenizer:
        """Load the labels."""
        return LabelTokenizer.load(folder, self.normalization.build())
