"""Recutting: how is a text in pieces cut into other pieces by chance?

A text is first parted where no piece can lie across: between two characters that stand side by
side in no piece. What lies between two such places is a stretch, mostly a word. Stretches are
cut apart from one another, so what was found out about one serves wherever it comes again.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from heedful.text.chance import Integers, Words, spread
from heedful.text.cuts import Cuts, Pieces, Sequences

_BITS = 21  # hold any code point
_NO_CHARACTER = 2**_BITS - 1


class Recutter:
    """Cuts texts anew: other pieces, the same text."""

    def __init__(self, pieces: Pieces, cuts: Cuts) -> None:
        lone = {character for name in pieces for character in name} - pieces.keys()
        assert not lone, f"characters {sorted(lone)} are in pieces, but are none"
        self.cuts = cuts
        self._firsts, self._lasts = _ends(pieces)
        self._joints = _joints(pieces)

    def cut(self, texts: Sequences, keys: Words) -> Sequences:
        """Cut each text as its key decides."""
        if not len(texts.ids):
            return texts
        owners = np.repeat(np.arange(len(keys)), texts.lengths)
        begins = self._part(texts.ids, owners)
        owners = owners[begins]
        stretches = Sequences(texts.ids, np.diff(begins, append=len(texts.ids)))
        numbers = np.arange(len(begins)) - np.searchsorted(owners, owners)  # within their text
        new = self.cuts.cut(stretches, spread(keys[owners], numbers))
        lengths = np.bincount(owners, new.lengths, minlength=len(keys))
        return Sequences(new.ids, lengths.astype(np.int64))

    def _part(self, ids: NDArray[np.int32], owners: Integers) -> Integers:
        """Say where stretches begin: with every text, and where no piece can lie across."""
        around = (self._lasts[ids[:-1]] << _BITS) | self._firsts[ids[1:]]
        places = np.searchsorted(self._joints, around)
        apart = (self._joints[places] != around) | (owners[1:] != owners[:-1])
        return np.flatnonzero(np.concatenate([[True], apart]))


def _ends(pieces: Pieces) -> tuple[Integers, Integers]:
    """Give the code points of the first and last character of each id."""
    size = max(piece.id for piece in pieces.values()) + 1
    firsts, lasts = np.full((2, size), _NO_CHARACTER)
    for name, piece in pieces.items():
        firsts[piece.id], lasts[piece.id] = ord(name[0]), ord(name[-1])
    return firsts, lasts


def _joints(pieces: Pieces) -> Integers:
    """List the pairs of characters that stand side by side in a piece, as sorted numbers."""
    found = {(ord(one) << _BITS) | ord(other) for name in pieces for one, other in pairwise(name)}
    return np.array([*sorted(found), 2**63 - 1])
