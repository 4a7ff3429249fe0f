"""Tokenizers of texts whose words are separated by spaces: tagged words, and their tags.

With characters, each word is its id and then an id for each of its characters. These are not part
of the vocabulary: they follow its last id, and depend only on the code point. Invariant: as many
ids are below the size of the vocabulary as there are words.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

from typing_extensions import override

from heedful.tokenization.standalone import split_spaces
from heedful.tokenization.tokenizer import (
    Normalizer,
    VocabularyTokenizer,
    VocabularyTokenizerConfig,
    check_text,
    normalize_texts,
)
from heedful.tokenization.vocabulary import Vocabulary

NUM_CHARACTERS = 1024
"""Different ids of characters: code points have them modulo this number, so that those of Latin,
Greek and most of Cyrillic have one each."""
MAX_CHARACTERS = 24
"""Characters of a word that have ids: of a longer word, as many of its start as of its end."""
NO_BREAK_SPACE = "\u00a0"


def join_spaces(words: Iterable[str]) -> str:
    """Return the text of words; a space inside a word becomes a no-break space."""
    return " ".join(word.replace(" ", NO_BREAK_SPACE) for word in words)


class WhitespaceTokenizer(VocabularyTokenizer):
    """Words, or tags, separated by spaces; normalization makes the spaces single."""

    def __init__(
        self, vocabulary: Vocabulary, normalizer: Normalizer, *, is_open: bool = False
    ) -> None:
        super().__init__(
            vocabulary, lambda text: " ".join(split_spaces(normalizer(text))), is_open=is_open
        )

    @staticmethod
    @override
    def tokenize(text: str) -> list[str]:
        return split_spaces(text)

    @staticmethod
    @override
    def detokenize(tokens: list[str]) -> str:
        return " ".join(filter(None, tokens))


class WordCharacterTokenizer(WhitespaceTokenizer):
    """Each word as its id and the ids of its characters, which are not normalized."""

    @property
    @override
    def id_bound(self) -> int:
        return len(self) + NUM_CHARACTERS

    @override
    def encode(self, text: str) -> list[int]:
        check_text(text, location="text")
        return self.encode_batch([text])[0]

    @override
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        rows = []
        for words in map(split_spaces, normalize_texts(texts, str)):
            ids = self.vocabulary.tokens_to_ids(map(self.normalizer, words))
            pairs = zip(ids, map(self._character_ids, words), strict=True)
            rows.append([token for word, characters in pairs for token in (word, *characters)])
        return rows

    @override
    def decode(self, ids: Iterable[int]) -> str:
        return super().decode(token for token in ids if token < len(self))

    @override
    def ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        size = len(self)
        return [self._displayed[token] if token < size else chr(token - size) for token in ids]

    def _character_ids(self, word: str) -> list[int]:
        half = MAX_CHARACTERS // 2
        kept = word if len(word) <= MAX_CHARACTERS else word[:half] + word[-half:]
        return [len(self) + ord(character) % NUM_CHARACTERS for character in kept]


class WhitespaceTokenizerConfig(VocabularyTokenizerConfig):
    """Words or tags that are separated by spaces already."""

    tokenizer_class = WhitespaceTokenizer
    type: Literal["whitespace"] = "whitespace"


class WordCharacterTokenizerConfig(VocabularyTokenizerConfig):
    """Words that are separated by spaces already, each with its characters; for taggers.

    Normalization changes words, but not their characters.
    """

    tokenizer_class = WordCharacterTokenizer
    vocabulary_type: ClassVar = "whitespace"  # of tokenizers that have the same words
    type: Literal["word-character"] = "word-character"
    open_vocabulary: Literal[False] = False
    """Ids beyond the vocabulary are characters."""
