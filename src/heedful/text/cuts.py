"""Cuts: what a stretch of text in pieces is, and what it is to cut it anew by chance.

A character that is part of any piece is a piece by itself, so every stretch can be cut. How a
stretch is cut follows from its key alone, whatever is cut beside it or was cut before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.text.chance import Integers, Words


class Piece(NamedTuple):
    """An entry of a subword vocabulary."""

    id: int
    score: float  # log-probability of a unigram model; minus the rank of a merge


Pieces = Mapping[str, Piece]


class Sequences(NamedTuple):
    """Ids of stretches or texts, one after the other."""

    ids: NDArray[np.int32]
    lengths: Integers

    @property
    def begins(self) -> Integers:
        """Where each of them begins."""
        return self.lengths.cumsum() - self.lengths


class Cuts(ABC):
    """A way to cut stretches anew by chance; what is no piece, a byte, stands alone and stays."""

    @abstractmethod
    def cut(self, stretches: Sequences, keys: Words) -> Sequences:
        """Cut each stretch as its key decides; none of them is empty."""


def take(sequences: Sequences, which: Integers) -> Sequences:
    """Put some of the sequences one after the other, in this order."""
    lengths = sequences.lengths[which]
    begins = sequences.begins[which] - (lengths.cumsum() - lengths)
    places = np.arange(lengths.sum()) + np.repeat(begins, lengths)
    return Sequences(sequences.ids[places], lengths)
