"""WordPiece: each word is split into the longest pieces of a vocabulary, from left to right.

This is the tokenizer of BERT, DistilBERT and MiniLM (Devlin et al. 2019), with its normalization
and its rules for words. A piece that continues a word begins with "##".
"""

import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt
from typing_extensions import override

from heedful.tokenization.pretrained import PretrainedTokenizer, PretrainedTokenizerConfig
from heedful.tokenization.standalone import VOCABULARY_FILE
from heedful.tokenization.vocabulary import Vocabulary

CONTINUATION = "##"
_UNKNOWN = ""  # no vocabulary has it
_REPLACEMENT_CHARACTER = "\ufffd"
# Blocks of Chinese characters, not of all scripts without spaces. Hugging Face has 0x2B920 where
# BERT's own code has 0x2B820; models were trained with either.
_CHINESE = (
    *(range(0x4E00, 0xA000), range(0x3400, 0x4DC0), range(0x20000, 0x2A6E0)),
    *(range(0x2A700, 0x2B740), range(0x2B740, 0x2B820), range(0x2B920, 0x2CEB0)),
    *(range(0xF900, 0xFB00), range(0x2F800, 0x2FA20)),
)


class WordPieceTokenizer(PretrainedTokenizer):
    """Pieces of words, by greedy search for the longest one."""

    config: "WordPieceTokenizerConfig"

    def __init__(self, vocabulary: Vocabulary, config: "WordPieceTokenizerConfig") -> None:
        self.config = config
        tokens = vocabulary.tokens
        super().__init__(vocabulary, self._normalize, tokens, mark_words=config.mark_words)
        self._pieces: dict[str, list[str]] = {}  # of words that were seen

    @override
    def tokenize(self, text: str) -> list[str]:
        return [piece for word in self._split(text) for piece in self._split_word(word)]

    @override
    def tokenize_word(self, word: str) -> list[str]:
        return self.tokenize(word)

    @override
    def decode(self, ids: Iterable[int]) -> str:
        spellings = [self._spellings[token % len(self)] for token in ids]
        parts = [
            text.removeprefix(CONTINUATION) if text.startswith(CONTINUATION) else " " + text
            for text in spellings
            if text
        ]
        return "".join(parts).removeprefix(" ")

    def _normalize(self, text: str) -> str:
        return " ".join(self._split(text))

    def _split(self, text: str) -> list[str]:
        """Normalize a text and split it at white space and around punctuation."""
        config = self.config
        if config.clean_text:
            text = "".join(map(_clean, text))
        if config.split_chinese:
            text = "".join(f" {char} " if is_chinese(char) else char for char in text)
        if config.strip_accents:
            decomposed = unicodedata.normalize("NFD", text)
            text = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
        if config.lowercase:
            text = "".join(map(str.lower, text))  # by character: no final sigma
        return "".join(f" {char} " if is_punctuation(char) else char for char in text).split()

    def _split_word(self, word: str) -> list[str]:
        if (pieces := self._pieces.get(word)) is None:
            pieces = self._pieces[word] = self._match_greedily(word)
        return pieces

    def _match_greedily(self, word: str) -> list[str]:
        if len(word) > self.config.max_word_length:
            return [_UNKNOWN]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = CONTINUATION if start else ""
            for end in range(len(word), start, -1):
                if (piece := prefix + word[start:end]) in self.vocabulary:
                    break
            else:
                return [_UNKNOWN]  # the whole word
            pieces.append(piece)
            start = end
        return pieces


@cache
def _clean(char: str) -> str:
    """Return white space as a space, and control characters as nothing."""
    if char in "\t\n\r" or unicodedata.category(char) == "Zs":
        return " "
    is_control = unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs")
    return "" if is_control or char == _REPLACEMENT_CHARACTER else char


@cache
def is_chinese(char: str) -> bool:
    """Whether a character is a word of its own."""
    return any(ord(char) in block for block in _CHINESE)


@cache
def is_punctuation(char: str) -> bool:
    """Whether a character is punctuation: of Unicode, or a sign of ASCII such as "$"."""
    is_ascii_sign = char.isascii() and char.isprintable() and not char.isalnum() and char != " "
    return is_ascii_sign or unicodedata.category(char).startswith("P")


class WordPieceTokenizerConfig(PretrainedTokenizerConfig):
    """WordPiece, with the vocabulary of a pretrained model (BERT; Devlin et al. 2019)."""

    type: Literal["wordpiece"] = "wordpiece"
    lowercase: bool = True
    """Convert to lower case."""
    strip_accents: bool = True
    """Remove accents: e for U+00E9."""
    clean_text: bool = True
    """Remove control characters."""
    split_chinese: bool = True
    """Make each Chinese character a word."""
    max_word_length: PositiveInt = 100
    """Characters of a word; longer ones are unknown."""

    def load(self, folder: Path) -> WordPieceTokenizer:
        """Load a saved tokenizer."""
        return WordPieceTokenizer(Vocabulary.load(folder / VOCABULARY_FILE), self)
