"""Tokenizers of texts of a special form: separated words and tags, sentences, molecules, positions.

Words with characters: each word is its id and then an id for each of its characters. These are not
part of the vocabulary: they follow its last id, and depend only on the code point, so as many ids
are below the size of the vocabulary as there are words. Sentences: a mark, the first id of the
vocabulary, is a token of its own between two of them; without the marks, tokens are those of the
word tokenizer. SMILES: tokens concatenate to the text, also where it is not SMILES. A position is
encoded only if the source has it.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from typing_extensions import override

from heedful.errors import DataError, check, format_count
from heedful.tokenization.standalone import (
    SMILES_TOKEN,
    join_words,
    split_smiles,
    split_spaces,
    split_words,
)
from heedful.tokenization.tokenizer import (
    Normalizer,
    Tokenizer,
    TokenizerConfigBase,
    VocabularyTokenizer,
    VocabularyTokenizerConfig,
    WordTokenizer,
)
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, SPECIAL_TOKENS, UNK, Vocabulary

# ----- words or tags that are separated by spaces

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

    tokenize = staticmethod(split_spaces)

    @staticmethod
    @override
    def detokenize(tokens: list[str]) -> str:
        return " ".join(filter(None, tokens))


class WordCharacterTokenizer(WhitespaceTokenizer):
    """Each word as its id and the ids of its characters, which are not normalized."""

    normalizes_first = False

    @property
    @override
    def id_bound(self) -> int:
        return len(self) + NUM_CHARACTERS

    @override
    def _encode(self, texts: list[str]) -> list[list[int]]:
        rows = []
        for words in map(split_spaces, texts):
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


# ----- words in sentences

SENTENCE_END = "<sentence>"
"""The mark; `split_words` separates "<" from letters, so no text has it as a word."""
SENTENCE_END_ID = NUM_SPECIAL_TOKENS
_END_SIGNS = frozenset(".!?\u2026\u3002\uff01\uff1f")
_CLOSING_SIGNS = frozenset("\"')]\u201d\u2019\u00bb")


def split_sentences(words: Sequence[str]) -> list[list[str]]:
    """Group words into sentences; abbreviations such as "Mr." also end one."""
    sentences: list[list[str]] = [[]]
    has_ended = False
    for word in words:
        sign = word.strip()
        is_end = sign in _END_SIGNS
        # A closing sign has no space before it.
        if has_ended and sign and not is_end and word not in _CLOSING_SIGNS:
            sentences.append([])
            has_ended = False
        has_ended = has_ended or is_end
        sentences[-1].append(word)
    return sentences


class SentenceWordTokenizer(WordTokenizer):
    """Words, signs and white space, with a mark between sentences."""

    @staticmethod
    @override
    def tokenize(text: str) -> list[str]:
        first, *others = split_sentences(split_words(text))
        return [*first, *(word for sentence in others for word in (SENTENCE_END, *sentence))]

    @staticmethod
    @override
    def detokenize(tokens: list[str]) -> str:
        return join_words([token for token in tokens if token != SENTENCE_END])


class SentenceWordTokenizerConfig(VocabularyTokenizerConfig):
    """Words with a mark between sentences, for `hierarchical` encoders."""

    tokenizer_class = SentenceWordTokenizer
    type: Literal["sentence-word"] = "sentence-word"
    open_vocabulary: Literal[False] = False
    """The mark is no word to copy."""

    @override
    def train(self, texts: Iterable[str]) -> VocabularyTokenizer:
        words = super().train(texts).vocabulary.tokens
        tokens = [SENTENCE_END, *(word for word in words if word != SENTENCE_END)]
        return self._build(Vocabulary(tokens[: self.max_vocab_size - NUM_SPECIAL_TOKENS]))


# ----- SMILES, the notation of molecules as text


class SMILESTokenizer(VocabularyTokenizer):
    """Atoms, bonds, branches and rings by the regular expression of Schwaller et al. 2019.

    "C[C@H](N)Cl" is C, [C@H], (, N, ), Cl.
    """

    tokenize = staticmethod(split_smiles)


class SMILESTokenizerConfig(VocabularyTokenizerConfig):
    """Atoms and other signs of molecules in SMILES notation (Schwaller et al. 2019)."""

    tokenizer_class = SMILESTokenizer
    type: Literal["smiles"] = "smiles"
    strict: bool = True
    """Whether other characters in the training texts are an error, as in the authors' code; if not,
    each is a token."""

    @override
    def train(self, texts: Iterable[str]) -> VocabularyTokenizer:
        return super().train(self._check(texts) if self.strict else texts)

    def _check(self, texts: Iterable[str]) -> Iterator[str]:
        for number, text in enumerate(texts, start=1):
            for match in SMILES_TOKEN.finditer(self.normalization.normalize(text)):
                if match[1] is None:
                    where = f"character {match.start() + 1} is {match[0]!r}"
                    hint = "remove it, or set `strict: false` in the tokenizer"
                    raise DataError(f"text {number}", f"{where}, which SMILES does not have", hint)
            yield text


# ----- positions in the source: targets of pointer networks


class PositionTokenizer(Tokenizer):
    """Positions in the source, from 1, as numbers: for output heads that point.

    An extended vocabulary without any words: position s, from 0, is NUM_SPECIAL_TOKENS + s.
    """

    is_open = True

    def __init__(self, num_positions: int | None = None) -> None:
        super().__init__(str, ())
        self.num_positions = num_positions

    @override
    def for_source(self, text: str, source: Tokenizer) -> "PositionTokenizer":
        return PositionTokenizer(len(source.encode(text)))

    @override
    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [[self._encode_position(word) for word in text.split()] for text in texts]

    def _encode_position(self, word: str) -> int:
        limit = self.num_positions or sys.maxsize
        message = f"{word!r} is no position of a source of {format_count(limit, 'token')}"
        is_valid = word.isascii() and word.isdecimal() and 1 <= int(word) <= limit
        check(is_valid, "target", message, f"write numbers from 1 to {limit}", DataError)
        return NUM_SPECIAL_TOKENS - 1 + int(word)

    @override
    def decode(self, ids: Iterable[int]) -> str:
        special = {UNK: " " + SPECIAL_TOKENS[UNK]}
        return join_words(
            [
                f" {token_id - NUM_SPECIAL_TOKENS + 1}"
                if token_id >= NUM_SPECIAL_TOKENS
                else special.get(token_id, "")
                for token_id in ids
            ]
        )

    @override
    def ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.decode([token_id]) or SPECIAL_TOKENS[token_id] for token_id in ids]

    @override
    def save(self, folder: Path) -> None:
        return


class PositionTokenizerConfig(TokenizerConfigBase):
    """Positions in the source, from 1: targets of pointer networks (Vinyals et al. 2015)."""

    type: Literal["position"] = "position"

    def train(self, texts: Iterable[str]) -> PositionTokenizer:
        """Return the tokenizer: there is nothing to train."""
        return PositionTokenizer()

    def load(self, folder: Path) -> PositionTokenizer:
        """Return the tokenizer: nothing was saved."""
        return PositionTokenizer()
