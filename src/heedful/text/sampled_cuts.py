"""Sampled cuts: how is a stretch cut by how likely its pieces are?

Pieces are drawn from left to right. How likely each is to come first in what is left to be cut
follows from a sum over all cuts of what would then be left, so no cut is left out and none is
drawn in vain. What was found out about a rest is kept, and serves every stretch that ends in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.text.chance import RESOLUTION, Words, draw
from heedful.text.cuts import Cuts, Pieces, Sequences
from heedful.text.escapes import NOT_IN_TEXT

MAX_RESTS = 2**18
"""Most rests that are kept: measured, 70 MB."""


class SampledCuts(Cuts):
    """P(cut) ~ product of P(piece)^alpha over its pieces (Kudo 2018, section 3.3, l = infinity)."""

    def __init__(self, pieces: Pieces, alpha: float, *, max_rests: int = MAX_RESTS) -> None:
        self.pieces = pieces
        self.alpha = alpha
        self.max_rests = max_rests
        self._names = {piece.id: name for name, piece in pieces.items()}
        self._longest = dict[str, int]()  # of the pieces that begin with a character
        for name in pieces:
            self._longest[name[0]] = max(self._longest.get(name[0], 0), len(name))
        self._forget()

    def _forget(self) -> None:
        self._numbers = {"": 0}  # of each rest
        self._sums = [0.0]  # of each rest: the log of the sum over all its cuts
        self._stretches = dict[bytes, int]()  # the number of each stretch, by the ids it came in
        # The ways to go on from a rest stand one after the other.
        self._bounds = _Growing(np.uint64)  # the number of the rest, then where its chances end
        self._ids = _Growing(np.int32)  # the piece that comes first
        self._leads = _Growing(np.int64)  # the number of the rest that is then left
        self._bounds.extend([RESOLUTION])  # nothing can be cut no further: a way never taken
        self._ids.extend([0])
        self._leads.extend([0])

    def cut(self, stretches: Sequences, keys: Words) -> Sequences:
        """Draw a cut of each stretch."""
        if len(self._numbers) > self.max_rests:
            self._forget()
        rests = np.fromiter(self._find(stretches), np.int64, len(keys))
        going, step = np.arange(len(keys)), 0
        who, took = [going[:0]], [going[:0]]
        while len(going):
            # Whole numbers: the draw must not depend on the number that a rest has got.
            wanted = (rests.astype(np.uint64) << np.uint64(32)) | draw(keys[going], step)
            ways = np.searchsorted(self._bounds.values, wanted, side="right")
            who.append(going)
            took.append(ways)
            rests = self._leads.values[ways]
            going, rests, step = going[rests > 0], rests[rests > 0], step + 1
        owners, ways = np.concatenate(who), np.concatenate(took)
        ways = ways[np.argsort(owners, kind="stable")]
        return Sequences(self._ids.values[ways], np.bincount(owners, minlength=len(keys)))

    def _find(self, stretches: Sequences) -> Iterator[int]:
        """Give the number of each stretch."""
        ids = stretches.ids.astype(np.int32, copy=False)
        written = ids.tobytes()
        ends = [0, *(stretches.lengths.cumsum() * ids.itemsize).tolist()]
        known = self._stretches
        for begin, end in pairwise(ends):
            stretch = written[begin:end]
            number = known.get(stretch)
            if number is None:
                number = known[stretch] = self._learn(np.frombuffer(stretch, np.int32).tolist())
            yield number

    def _learn(self, ids: Sequence[int]) -> int:
        if ids[0] not in self._names:
            return self._add(f"{NOT_IN_TEXT}{ids[0]}", [(0, ids[0], 0.0)])
        stretch = "".join(self._names[each] for each in ids)
        number = 0
        for start in reversed(range(len(stretch))):
            rest = stretch[start:]
            found = self._numbers.get(rest)
            number = self._add(rest, self._ways(rest)) if found is None else found
        return number

    def _ways(self, rest: str) -> list[tuple[int, int, float]]:
        """List what may come first: what it leaves, its id, and the log of its share of the sum."""
        found = []
        for end in range(1, min(self._longest[rest[0]], len(rest)) + 1):
            piece = self.pieces.get(rest[:end])
            if piece is not None:
                left = self._numbers[rest[end:]]
                found.append((left, piece.id, self.alpha * piece.score + self._sums[left]))
        return found

    def _add(self, rest: str, ways: list[tuple[int, int, float]]) -> int:
        leads, ids, logs = zip(*ways, strict=True)
        most = max(logs)
        ends = list(accumulate(math.exp(each - most) for each in logs))
        number = self._numbers[rest] = len(self._sums)
        self._sums.append(most + math.log(ends[-1]))
        shares = [int(end / ends[-1] * RESOLUTION) for end in ends[:-1]]
        self._bounds.extend([(number << 32) + share for share in (*shares, RESOLUTION)])
        self._ids.extend(ids)
        self._leads.extend(leads)
        return number


class _Growing:
    """An array that grows at its end."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._room = np.empty(1024, dtype=kind)
        self._size = 0

    @property
    def values(self) -> NDArray[Any]:
        return self._room[: self._size]

    def extend(self, values: Sequence[int]) -> None:
        size = self._size + len(values)
        if size > len(self._room):
            grown = np.empty(2 * size, dtype=self._room.dtype)
            grown[: self._size] = self.values
            self._room = grown
        self._room[self._size : size] = values
        self._size = size
