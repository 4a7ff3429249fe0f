"""Foundations of subword segmentation: keyed random numbers, id sequences, escaping.

Random numbers are a function of a key and an index; there is no generator state, so a
segmentation can be computed again, alone or among others, in any order.
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
"""Random numbers are integers below this."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio


def random_bits(keys: Keys, index: int | Integers) -> Keys:
    """Return a random integer for each key; different indices give independent numbers."""
    return _mix_bits(derive_keys(keys, index)) >> np.uint64(32)


def derive_keys(keys: Keys, index: int | Integers) -> Keys:
    """Return a new key for each key and index."""
    indices = np.atleast_1d(index).astype(np.uint64)  # a scalar would warn of overflow
    return _mix_bits(keys + (indices + np.uint64(1)) * _GOLDEN)


def _mix_bits(values: Keys) -> Keys:
    """The finalizer of MurmurHash3 (Appleby 2011)."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))


class SubwordPiece(NamedTuple):
    """An entry of a subword vocabulary."""

    id: int
    score: float  # log-probability of a unigram model; minus the rank of a merge


SubwordVocab = Mapping[str, SubwordPiece]


class IdSequences(NamedTuple):
    """Ids of spans or texts, concatenated."""

    ids: NDArray[np.int32]
    lengths: Integers

    @property
    def offsets(self) -> Integers:
        """Start of each sequence."""
        return self.lengths.cumsum() - self.lengths


class Segmenter(ABC):
    """Random segmentation of spans; an id that is not a piece, a byte, is unchanged.

    Every character of a piece is a piece, so every span can be segmented.
    """

    @abstractmethod
    def segment(self, spans: IdSequences, keys: Keys) -> IdSequences:
        """Segment each span as its key determines; no span is empty."""


def select_sequences(sequences: IdSequences, indices: Integers) -> IdSequences:
    """Return these sequences, in this order."""
    lengths = sequences.lengths[indices]
    shifts = sequences.offsets[indices] - (lengths.cumsum() - lengths)
    positions = np.arange(lengths.sum()) + np.repeat(shifts, lengths)
    return IdSequences(sequences.ids[positions], lengths)


# ----- escaping of SentencePiece's marks
#
# SentencePiece writes a space as U+2581 and skips training lines that contain U+2585. A text may
# contain both. They, and the escape character, are written as two private use characters before
# SentencePiece sees them. Invariant: `unescape` inverts `escape`, and an escaped text has no mark.

SPACE_MARK = "\u2581"
RESERVED_MARK = "\u2585"
"""A character that no escaped text contains; names of special tokens start with it."""

_ESCAPE = "\ue000"
_ESCAPED = {
    _ESCAPE: _ESCAPE + "\ue000",
    SPACE_MARK: _ESCAPE + "\ue001",
    RESERVED_MARK: _ESCAPE + "\ue002",
}
_UNESCAPED = {escaped: plain for plain, escaped in _ESCAPED.items()}
_ESCAPED_PATTERN = re.compile("|".join(_UNESCAPED))


def escape(text: str) -> str:
    """Return the text without SentencePiece's marks."""
    for plain, escaped in _ESCAPED.items():  # the escape character first
        text = text.replace(plain, escaped)
    return text


def unescape(text: str) -> str:
    """Undo `escape`; an incomplete escape, which only a model can generate, is unchanged."""
    return _ESCAPED_PATTERN.sub(lambda match: _UNESCAPED[match[0]], text)
