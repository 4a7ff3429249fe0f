"""Chance: how are numbers drawn that follow from a key alone?

There is no generator whose state would have to be kept: a draw is a function of a key and a
number, so the same draw can be made again, alone or among others, in any order.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Keys = NDArray[np.uint64]

UNIFORM_RESOLUTION = 2**32
"""Draws are whole numbers below this."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: numbers lie far apart


def random_bits(keys: Keys, index: int | Integers) -> Keys:
    """Draw once from each key; another number gives another draw, unrelated to the first."""
    return _mix_bits(derive_keys(keys, index)) >> np.uint64(32)


def derive_keys(keys: Keys, index: int | Integers) -> Keys:
    """Make another key of each, by number."""
    numbers = np.atleast_1d(index).astype(np.uint64)  # a single number would warn of overflow
    return _mix_bits(keys + (numbers + np.uint64(1)) * _GOLDEN)


def _mix_bits(values: Keys) -> Keys:
    """The finaliser of MurmurHash3 (Appleby 2011): every bit in moves every bit out."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))


# Cuts: what a stretch of text in pieces is, and what it is to cut it anew by chance.
#
# A character that is part of any piece is a piece by itself, so every stretch can be cut. How a
# stretch is cut follows from its key alone, whatever is cut beside it or was cut before.


class SubwordPiece(NamedTuple):
    """An entry of a subword vocabulary."""

    id: int
    score: float  # log-probability of a unigram model; minus the rank of a merge


SubwordVocab = Mapping[str, SubwordPiece]


class IdSequences(NamedTuple):
    """Ids of stretches or texts, one after the other."""

    ids: NDArray[np.int32]
    lengths: Integers

    @property
    def offsets(self) -> Integers:
        """Where each of them begins."""
        return self.lengths.cumsum() - self.lengths


class Segmenter(ABC):
    """A way to cut stretches anew by chance; what is no piece, a byte, stands alone and stays."""

    @abstractmethod
    def segment(self, spans: IdSequences, keys: Keys) -> IdSequences:
        """Cut each stretch as its key decides; none of them is empty."""


def select_sequences(sequences: IdSequences, indices: Integers) -> IdSequences:
    """Put some of the sequences one after the other, in this order."""
    lengths = sequences.lengths[indices]
    begins = sequences.offsets[indices] - (lengths.cumsum() - lengths)
    places = np.arange(lengths.sum()) + np.repeat(begins, lengths)
    return IdSequences(sequences.ids[places], lengths)


# Escapes: how SentencePiece reads text that holds its own marks.
#
# It writes a space as U+2581, and skips a training line that holds U+2585. A text may hold both.
# So each of them, and the character that announces an escape, is written as two characters of
# the private use area before SentencePiece sees it, and written back after. No two texts are
# escaped alike, and an escaped text holds no mark of SentencePiece.

SPACE_MARK = "\u2581"
RESERVED_MARK = "\u2585"
"""A character no escaped text holds; the special symbols are spelled with it."""

_ESCAPE = "\ue000"
_ESCAPED = {
    _ESCAPE: _ESCAPE + "\ue000",
    SPACE_MARK: _ESCAPE + "\ue001",
    RESERVED_MARK: _ESCAPE + "\ue002",
}
_PLAIN = {escaped: plain for plain, escaped in _ESCAPED.items()}
_TO_RESTORE = re.compile("|".join(_PLAIN))


def escape(text: str) -> str:
    """Write a text without the marks of SentencePiece."""
    for plain, escaped in _ESCAPED.items():  # the escape character comes first, before it is used
        text = text.replace(plain, escaped)
    return text


def unescape(text: str) -> str:
    """Undo `escape`; a half escape, which only a model can write, stays as it is."""
    return _TO_RESTORE.sub(lambda found: _PLAIN[found[0]], text)
