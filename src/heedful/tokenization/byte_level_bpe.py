"""Byte-level byte-pair encoding: the tokenizer of GPT-2, RoBERTa and BART (Radford et al. 2019).

A text is split into words, signs and white space, each with the space before it; the UTF-8 bytes of
each are then merged by a ranked list of pairs (Sennrich et al. 2016). A byte is written as a
printable character. Invariant: each text can be encoded and is decoded exactly, but for a space at
the start where `add_prefix_space` is set. BART reads and writes <s> before each text and </s>,
which is EOS here, after it (Lewis et al. 2020).
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

from typing_extensions import override

from heedful.tokenization.pretrained import PretrainedTokenizer, PretrainedTokenizerConfig
from heedful.tokenization.standalone import SPACE_MARK, VOCABULARY_FILE
from heedful.tokenization.vocabulary import (
    SPECIAL_TOKENS,
    UNK,
    Vocabulary,
    corrupt_file_error,
    read_saved_file,
)

MERGES_FILE = "merges.txt"
_NUM_BYTES = 256
_SPACES = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # of Unicode
_MAX_NUMBER = 0x20000  # all numbers of Unicode are below
Merge = tuple[str, str]


@cache
def byte_characters() -> list[str]:
    """Return the character that each byte is written as: itself if it is printable in Latin-1."""
    is_printable = [chr(byte).isprintable() and byte != ord(" ") for byte in range(_NUM_BYTES)]
    others = iter(range(_NUM_BYTES, 2 * _NUM_BYTES))
    return [chr(byte if is_printable[byte] else next(others)) for byte in range(_NUM_BYTES)]


@cache
def _split_pattern() -> re.Pattern[str]:
    """Return GPT-2's pattern of words, numbers, signs and white space."""
    letter, number = _letter_pattern().pattern, f"[{_numbers()}]"
    sign = rf"(?:[^{_SPACES}\w]|_)"
    space = f"[{_SPACES}]"
    endings, spaces = "'(?:s|t|re|ve|m|ll|d)", f"{space}+(?![^{_SPACES}])|{space}+"
    return re.compile(rf"{endings}| ?{letter}+| ?{number}+| ?{sign}+|{spaces}")


@cache
def _letter_pattern() -> re.Pattern[str]:
    return re.compile(rf"[^\W_{_numbers()}]")


def is_letter(char: str) -> bool:
    """Whether a character is part of a word of the pattern of GPT-2."""
    return bool(_letter_pattern().match(char))


@cache
def _numbers() -> str:
    """Return the numbers of Unicode (Nd, Nl, No) as the ranges of a regular expression."""
    codes = [code for code in range(_MAX_NUMBER) if unicodedata.category(chr(code)).startswith("N")]
    members = set(codes)
    starts = (code for code in codes if code - 1 not in members)
    ends = (code for code in codes if code + 1 not in members)
    return "".join(f"{chr(start)}-{chr(end)}" for start, end in zip(starts, ends, strict=True))


class ByteLevelBPETokenizer(PretrainedTokenizer):
    """Merged bytes of words."""

    config: "ByteLevelBPETokenizerConfig"
    has_line_breaks = True

    def __init__(
        self, vocabulary: Vocabulary, merges: Sequence[Merge], config: "ByteLevelBPETokenizerConfig"
    ) -> None:
        self.config = config
        self.merges = merges
        self._ranks = {merge: rank for rank, merge in enumerate(merges)}
        self._bytes = {char: byte for byte, char in enumerate(byte_characters())}
        self._pieces: dict[str, list[str]] = {}  # of words that were seen
        displayed = [self._display(token) for token in vocabulary.tokens]
        super().__init__(vocabulary, self._normalize, displayed, mark_words=config.mark_words)

    @override
    def tokenize(self, text: str) -> list[str]:
        if self.config.add_prefix_space and text and not text.startswith(" "):
            text = " " + text
        return [piece for word in _split_pattern().findall(text) for piece in self._merge(word)]

    @override
    def tokenize_word(self, word: str) -> list[str]:
        return self.tokenize(" " + word)

    @override
    def decode(self, ids: Iterable[int]) -> str:
        spelled = b"".join(self._spell(token % len(self)) for token in ids)
        return self._normalize(spelled.decode("utf-8", "replace"))

    def _normalize(self, text: str) -> str:
        has_prefix = self.config.add_prefix_space or self.mark_words
        return text.removeprefix(" ") if has_prefix else text

    @override
    def save(self, folder: Path) -> None:
        super().save(folder)
        text = "".join(f"{left} {right}\n" for left, right in self.merges)
        (folder / MERGES_FILE).write_text(text, encoding="utf-8", newline="\n")

    def _spell(self, token: int) -> bytes:
        spelling = self._spellings[token]
        return SPECIAL_TOKENS[UNK].encode() if token == UNK else self._to_bytes(spelling)

    def _to_bytes(self, token: str) -> bytes:
        """Return the bytes of a token; one that is no merged bytes is spelled as it is."""
        try:
            return bytes(self._bytes[char] for char in token)
        except KeyError:
            return token.encode()

    def _display(self, token: str) -> str:
        spelled = self._to_bytes(token)
        try:
            text = spelled.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in spelled)
        return SPACE_MARK + text[1:] if text.startswith(" ") else text

    def _merge(self, word: str) -> list[str]:
        if (pieces := self._pieces.get(word)) is None:
            characters = byte_characters()
            pieces = [characters[byte] for byte in word.encode("utf-8")]
            pieces = self._pieces[word] = apply_bpe(pieces, self._ranks)
        return pieces


def apply_bpe(pieces: list[str], ranks: Mapping[Merge, int]) -> list[str]:
    """Merge all occurrences of the pair of the lowest rank, until no pair has a rank."""
    while len(pieces) > 1:
        best = min(pairwise(pieces), key=lambda pair: ranks.get(pair, math.inf))
        if best not in ranks:
            break
        merged: list[str] = []
        for piece in pieces:
            if merged and (merged[-1], piece) == best:
                merged[-1] += piece
            else:
                merged.append(piece)
        pieces = merged
    return pieces


class ByteLevelBPETokenizerConfig(PretrainedTokenizerConfig):
    """Byte-level BPE, with the merges of a pretrained model (GPT-2; Radford et al. 2019)."""

    type: Literal["byte-level-bpe"] = "byte-level-bpe"
    add_prefix_space: bool = False
    """Prepend a space to a text that has none, so that a word is the same at the start as within;
    one space at the start is then lost."""

    def load(self, folder: Path) -> ByteLevelBPETokenizer:
        """Load a saved tokenizer."""
        vocabulary = Vocabulary.load(folder / VOCABULARY_FILE)
        return ByteLevelBPETokenizer(vocabulary, read_merges(folder / MERGES_FILE), self)


class BartTokenizer(ByteLevelBPETokenizer):
    """Byte-level BPE with a token before each text; special tokens are decoded as nothing."""

    config: "BartTokenizerConfig"

    def __init__(
        self, vocabulary: Vocabulary, merges: Sequence[Merge], config: "BartTokenizerConfig"
    ) -> None:
        super().__init__(vocabulary, merges, config)
        names = (config.prefix_token, *config.special_tokens)
        ids = vocabulary.tokens_to_ids(names)
        self._prefix_id, self._special_ids = ids[0], {*ids}

    @override
    def encode_phrase(self, text: str) -> list[int]:
        return self.encode(text)[1:]

    @override
    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [[self._prefix_id, *ids] if ids else [] for ids in super()._encode(texts)]

    @override
    def _spell(self, token: int) -> bytes:
        return b"" if token in self._special_ids else super()._spell(token)


class BartTokenizerConfig(ByteLevelBPETokenizerConfig):
    """Byte-level BPE of an imported BART model, with <s> before each text."""

    type: Literal["bart"] = "bart"  # type: ignore[assignment]
    prefix_token: str = "<s>"
    """Token before each text."""
    special_tokens: tuple[str, ...] = ()
    """Further tokens that are decoded as nothing, such as <mask>."""

    @override
    def load(self, folder: Path) -> BartTokenizer:
        vocabulary = Vocabulary.load(folder / VOCABULARY_FILE)
        return BartTokenizer(vocabulary, read_merges(folder / MERGES_FILE), self)


def read_merges(path: Path) -> list[Merge]:
    """Read pairs, one per line; a first line that begins with "#version" is a comment."""
    try:
        lines = read_saved_file(path).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise corrupt_file_error(path, "not UTF-8") from None
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    if any(len(pair) != 2 for pair in pairs):
        raise corrupt_file_error(path, "contains a line that is not a pair of tokens")
    return [(left, right) for left, right in pairs]
