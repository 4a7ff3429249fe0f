"""Tokenizers: the interface, normalization, and tokenizers by word and by character.

Invariants, tested for each tokenizer: `decode(encode(text))` is the normalized text, exactly,
if each token of it is known; no text is encoded as `PAD`, `BOS` or `EOS`; a saved and loaded
tokenizer encodes the same; lone surrogates are rejected.

An open vocabulary adds the unknown tokens of one source only to the vocabulary of that source
(See et al. 2017): with V entries, V + s is the unknown token whose first occurrence is
position s, in the source and in its target.
"""

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from reprlib import repr as short_repr
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.errors import ArgumentError, DataError, check
from heedful.tokenization.standalone import VOCABULARY_FILE, join_words, normalize, split_words
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, SPECIAL_TOKENS, UNK, Vocabulary

Normalizer = Callable[[str], str]
"""Changes a text before tokenization; idempotent."""


class NormalizerConfig(BaseConfig):
    """How a text is changed before tokenization."""

    unicode: Literal["none", "nfc", "nfkc"] = "none"
    """Compose characters (nfc), or also replace compatibility characters (nfkc)."""
    lowercase: bool = False
    """Convert to lower case."""
    strip: bool = False
    """Remove white space, also a carriage return, from both ends."""
    punctuation: Literal["keep", "remove"] = "keep"
    """Remove punctuation that is not within a word, and white space around it, as is usual for
    captions: "A man 's dog , running ." becomes "A man 's dog running"."""

    def normalize(self, text: str) -> str:
        """Return the normalized text."""
        return normalize(
            text,
            unicode=self.unicode,
            lowercase=self.lowercase,
            strip=self.strip,
            punctuation=self.punctuation,
        )


def check_text(text: str, *, location: str) -> None:
    """Raise an error for no string, or one with half of a UTF-16 pair, which no file can have."""
    if not isinstance(text, str):
        message = f"must be a text (str), but is {short_repr(text)} ({type(text).__name__})"
        raise ArgumentError(location, message, "give texts, or an iterable of them")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            location,
            f"character {error.start + 1} is U+{ord(text[error.start]):04X}, "
            "half of a surrogate pair, which is not valid text",
            "remove it, or decode the text again from its bytes",
        ) from None


def normalize_texts(texts: Iterable[str], normalizer: Normalizer) -> Iterator[str]:
    """Check and normalize texts; an error names the number of the text."""
    for index, text in enumerate(texts, start=1):
        check_text(text, location=f"text {index}")
        yield normalizer(text)


def check_training_text(tokens: object) -> None:
    """Raise DataError if there is nothing to train a tokenizer on."""
    message = "no text to train a tokenizer on, or only empty lines"
    check(tokens, "text", message, "give a text that is not empty", DataError)


class Tokenizer(ABC):
    """Text to ids and back."""

    is_open = False
    """Whether `for_source` gives ids to tokens beyond the vocabulary."""
    has_line_breaks = False
    """Whether a line break is a token of the text; if not, running text has EOS in its place."""
    normalizes_first: ClassVar[bool] = True
    """Whether `_encode` gets normalized texts; if not, texts as they are."""

    def __init__(self, normalizer: Normalizer, displayed_tokens: Iterable[str]) -> None:
        self.normalizer = normalizer
        self._displayed = (*SPECIAL_TOKENS, *displayed_tokens)

    def __len__(self) -> int:
        return len(self._displayed)

    @property
    def id_bound(self) -> int:
        """A number that all ids are below: the size of the vocabulary, or more."""
        return len(self)

    def encode(self, text: str) -> list[int]:
        """Encode a text, without BOS and EOS."""
        check_text(text, location="text")
        return self._encode([self.normalizer(text) if self.normalizes_first else text])[0]

    def encode_phrase(self, text: str) -> list[int]:
        """Encode a part of a text, without the prefix of whole texts."""
        return self.encode(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode multiple texts."""
        normalizer = self.normalizer if self.normalizes_first else str
        return self._encode(list(normalize_texts(texts, normalizer)))

    def for_source(self, text: str, source: "Tokenizer") -> "Tokenizer":
        """Return a tokenizer for the target of a source; with an open vocabulary, a new one."""
        return self

    @abstractmethod
    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Encode checked texts; see `normalizes_first`."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids; `PAD`, `BOS` and `EOS` become nothing, `UNK` becomes "<unk>"."""

    def ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Return each id as it is displayed: "horto", ".", " ", and a byte as "<0xE2>".

        A subword with a space before it begins with SentencePiece's mark, U+2581.
        """
        return [self._displayed[token_id] for token_id in ids]

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the tokenizer into an existing folder; its config loads it."""


class VocabularyTokenizer(Tokenizer):
    """A tokenizer that splits a text by a rule and looks up the tokens."""

    unk_token: ClassVar[str] = SPECIAL_TOKENS[UNK]

    def __init__(
        self, vocabulary: Vocabulary, normalizer: Normalizer, *, is_open: bool = False
    ) -> None:
        super().__init__(normalizer, map(self.display, vocabulary.tokens))
        self.vocabulary = vocabulary
        self.is_open = is_open
        self._spellings = ("", self.unk_token, "", "", *vocabulary.tokens)
        self._source_tokens: Sequence[str] = ()  # with an open vocabulary, of its source
        self._source_ids: dict[str, int] = {}  # of those that the vocabulary does not have

    @staticmethod
    @abstractmethod
    def tokenize(text: str) -> list[str]:
        """Split a text into tokens."""

    @staticmethod
    def detokenize(tokens: list[str]) -> str:
        """Join tokens: `detokenize(tokenize(text))` is the text."""
        return "".join(tokens)

    @staticmethod
    def display(token: str) -> str:
        """Return a token as it is displayed."""
        return token

    @override
    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / VOCABULARY_FILE)

    @override
    def for_source(self, text: str, source: Tokenizer) -> "VocabularyTokenizer":
        if not self.is_open:
            return self
        tokenizer = copy.copy(self)
        tokenizer._source_tokens = self.tokenize(self.normalizer(text))
        tokenizer._source_ids = {}
        for token_id, token in enumerate(tokenizer._source_tokens, start=len(self)):
            if token not in self.vocabulary:
                tokenizer._source_ids.setdefault(token, token_id)
        return tokenizer

    @override
    def _encode(self, texts: list[str]) -> list[list[int]]:
        source_ids = self._source_ids
        return [self.vocabulary.tokens_to_ids(self.tokenize(text), source_ids) for text in texts]

    @override
    def decode(self, ids: Iterable[int]) -> str:
        return self.detokenize([self._spelling(token_id) for token_id in ids])

    @override
    def ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        size = len(self)
        return [
            self._displayed[token_id] if token_id < size else self.display(self._spelling(token_id))
            for token_id in ids
        ]

    def _spelling(self, token_id: int) -> str:
        position = token_id - len(self._spellings)
        if position < 0:
            return self._spellings[token_id]
        # Entries of padding have no token; rows of a search that have ended may contain them.
        tokens = self._source_tokens
        return tokens[position] if position < len(tokens) else self.unk_token


class CharacterTokenizer(VocabularyTokenizer):
    """Each code point is a token."""

    @staticmethod
    @override
    def tokenize(text: str) -> list[str]:
        return list(text)


class WordTokenizer(VocabularyTokenizer):
    """Words, signs and white space, each with the space before it.

    In scripts without spaces a word is everything between two signs: use subwords or characters.
    """

    # An unknown word loses the space before it, and most words have one.
    unk_token = " " + SPECIAL_TOKENS[UNK]

    tokenize = staticmethod(split_words)

    @staticmethod
    @override
    def detokenize(tokens: list[str]) -> str:
        return join_words(tokens)

    @staticmethod
    @override
    def display(token: str) -> str:
        return token.removeprefix(" ") or token


class LabelTokenizer(VocabularyTokenizer):
    """The whole text is one token: for labels and other closed sets of texts."""

    @staticmethod
    @override
    def tokenize(text: str) -> list[str]:
        return [text] if text else []


class TokenizerConfigBase(BaseConfig):
    """Settings of tokenizers that segment a text in one way."""

    def build_regularizer(self, tokenizer: Tokenizer) -> None:
        """Return None: only subwords can be segmented in multiple ways."""


class VocabularyTokenizerConfig(TokenizerConfigBase):
    """Settings of tokenizers with a vocabulary."""

    tokenizer_class: ClassVar[type[VocabularyTokenizer]]
    type: str  # first, so that it is written first
    max_vocab_size: Annotated[int, Field(gt=NUM_SPECIAL_TOKENS)] = 30_000
    """Maximum size of the vocabulary, special tokens included."""
    min_frequency: PositiveInt = 1
    """Minimum number of occurrences of a token; rarer ones are unknown."""
    open_vocabulary: bool = False
    """Add the unknown tokens of a source to the vocabulary of its target, for output heads that
    copy (See et al. 2017)."""
    normalization: NormalizerConfig = NormalizerConfig()
    """How a text is changed first."""

    def train(self, texts: Iterable[str]) -> VocabularyTokenizer:
        """Build the vocabulary of these texts."""
        counts: Counter[str] = Counter()
        for text in normalize_texts(texts, self.normalization.normalize):
            counts.update(self.tokenizer_class.tokenize(text))
        check_training_text(counts)
        return self._build(
            Vocabulary.from_counts(
                counts, min_count=self.min_frequency, max_size=self.max_vocab_size
            )
        )

    def load(self, folder: Path) -> VocabularyTokenizer:
        """Load a saved tokenizer."""
        return self._build(Vocabulary.load(folder / VOCABULARY_FILE))

    def _build(self, vocabulary: Vocabulary) -> VocabularyTokenizer:
        normalize, is_open = self.normalization.normalize, self.open_vocabulary
        return self.tokenizer_class(vocabulary, normalize, is_open=is_open)


class WordTokenizerConfig(VocabularyTokenizerConfig):
    """Words, signs and white space; rare words are unknown."""

    tokenizer_class = WordTokenizer
    type: Literal["word"] = "word"


class CharacterTokenizerConfig(VocabularyTokenizerConfig):
    """Characters; long sequences, but hardly anything is unknown."""

    tokenizer_class = CharacterTokenizer
    type: Literal["character"] = "character"


class LabelTokenizerConfig(VocabularyTokenizerConfig):
    """One token per text: labels, and other texts from a closed set."""

    tokenizer_class = LabelTokenizer
    type: Literal["label"] = "label"
    normalization: NormalizerConfig = NormalizerConfig(strip=True)
    """How a label is changed first; by default, white space around it is removed."""
