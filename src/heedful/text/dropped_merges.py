"""Dropped merges: how is a stretch cut if some of its merges are left out by chance?

A stretch begins as characters. At every step each pair that could be merged is dropped with
probability p, and the best of those left is merged; if none is left, that is the end. Many
stretches take their steps at once. Law: with p = 0 the cut is the one SentencePiece gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.text.chance import RESOLUTION, Integers, Words, draw
from heedful.text.cuts import Cuts, Pieces, Sequences, take

_NEVER = 2**31 - 1  # the rank of what cannot be merged
_MAX_CELLS = 2**16  # characters that are worked on together, so that they fit a cache


class DroppedMerges(Cuts):
    """Merge the best pair that is not dropped, again and again (Provilkov et al. 2020, alg. 1).

    The paper's word is a stretch here. Pairs that look alike are dropped apart from one another,
    and of equally good pairs the leftmost is merged.
    """

    def __init__(self, pieces: Pieces, p: float) -> None:
        self.p = p
        self._merges = _Merges(pieces)
        self._spelled = _spell(pieces)
        # The best i are all dropped with probability p^i: rarest first, down to what can be drawn.
        bounds = list[int]()
        while p > 0 and (bound := int(p ** (len(bounds) + 1) * RESOLUTION)):
            bounds.append(bound)
        self._bounds = np.array(bounds[::-1], dtype=np.uint64)

    def cut(self, stretches: Sequences, keys: Words) -> Sequences:
        """Cut stretches anew; they must come as SentencePiece cuts them.

        Those that lose none of the merges by which they became so stay as they are, which spares
        the work on about half of them where p is 0.1.
        """
        sizes = np.add.reduceat(self._spelled.lengths[stretches.ids], stretches.begins)
        is_new = self._loses_merges(sizes - stretches.lengths, keys)
        order = [np.flatnonzero(~is_new)]
        parts = [take(stretches, order[0])]
        for which in _groups(np.flatnonzero(is_new), sizes):
            order.append(which)
            ids = take(stretches, which).ids.astype(np.int64)
            characters = take(self._spelled, ids).ids
            parts.append(self.merge(Sequences(characters, sizes[which]), keys[which]))
        joined = Sequences(*map(np.concatenate, zip(*parts, strict=True)))
        return take(joined, np.argsort(np.concatenate(order)))

    def _loses_merges(self, num_merges: Integers, keys: Words) -> NDArray[np.bool_]:
        """Say which stretches lose any of the merges that made them what they are."""
        loses = np.zeros(len(keys), dtype=np.bool_)
        for step in range(num_merges.max(initial=0)):
            left = np.flatnonzero(~loses & (num_merges > step))
            loses[left] = self._drops(keys[left], step) > 0
        return loses

    def _drops(self, keys: Words, step: int) -> Integers:
        """Say how many of the best pairs are dropped at a step."""
        return len(self._bounds) - np.searchsorted(self._bounds, draw(keys, step), side="right")

    def merge(self, characters: Sequences, keys: Words) -> Sequences:
        """Merge characters as the key of their stretch decides."""
        table = _Table(characters, self._merges)
        going, step = np.arange(len(keys)), 0
        while len(going):
            going = table.merge(going, self._drops(keys[going], step))
            step += 1
        return table.read()


class _Merges:
    """What comes of two pieces side by side, and how late it was learned."""

    def __init__(self, pieces: Pieces) -> None:
        ranked = sorted(pieces, key=lambda name: -pieces[name].score)
        self.ids = np.array([pieces[name].id for name in ranked])
        found = {
            (pieces[name[:at]].id << 32) | pieces[name[at:]].id: rank
            for rank, name in enumerate(ranked)
            for at in range(1, len(name))
            if name[:at] in pieces and name[at:] in pieces
        }
        self._pairs = np.array([*sorted(found), 2**63 - 1])
        self._ranks = np.array([*(found[pair] for pair in sorted(found)), _NEVER])

    def rank(self, left: NDArray[Any], right: NDArray[Any]) -> Integers:
        """Say the rank of what each two give, or `_NEVER`; what is negative gives nothing."""
        pairs = (left.astype(np.int64) << 32) | right
        places = np.searchsorted(self._pairs, pairs)
        return np.where(self._pairs[places] == pairs, self._ranks[places], _NEVER)


class _Table:
    """Stretches being merged: a row for each, a column for each character it had at first.

    What is merged stands in the column of its left part. The last column is the world outside.
    """

    def __init__(self, characters: Sequences, merges: _Merges) -> None:
        num_rows, width = len(characters.lengths), int(characters.lengths.max())
        self.merges = merges
        self.tokens = np.full((num_rows, width + 1), -1)
        columns = np.arange(width + 1)
        self.tokens[columns < characters.lengths[:, None]] = characters.ids
        self.left = np.tile(columns - 1, (num_rows, 1))  # of the first, -1: the last column
        self.right = np.tile(np.minimum(columns + 1, width), (num_rows, 1))
        self.ranks = np.full((num_rows, width + 1), _NEVER)  # of a token and the one to its right
        self.ranks[:, :-1] = merges.rank(self.tokens[:, :-1], self.tokens[:, 1:])

    def merge(self, rows: Integers, drops: Integers) -> Integers:
        """Merge in each row the best pair but so many; give the rows where there was one."""
        columns = self._columns(rows, drops)
        found = columns >= 0
        rows, columns = rows[found], columns[found]
        gone, before = self.right[rows, columns], self.left[rows, columns]
        after = self.right[rows, gone]
        new = self.merges.ids[self.ranks[rows, columns]]
        self.tokens[rows, columns], self.tokens[rows, gone] = new, -1
        self.right[rows, columns], self.left[rows, after] = after, columns
        self.ranks[rows, gone] = _NEVER
        self.ranks[rows, columns] = self.merges.rank(new, self.tokens[rows, after])
        self.ranks[rows, before] = self.merges.rank(self.tokens[rows, before], new)
        return rows

    def _columns(self, rows: Integers, drops: Integers) -> Integers:
        """Say where the best pair but so many stands, or -1."""
        columns = self.ranks[rows].argmin(axis=1)
        some = np.flatnonzero(drops)
        if len(some):
            order = self.ranks[rows[some]].argsort(axis=1, kind="stable")
            last = np.minimum(drops[some], order.shape[1] - 1)
            columns[some] = order[np.arange(len(some)), last]
        return np.where(self.ranks[rows, columns] == _NEVER, -1, columns)

    def read(self) -> Sequences:
        """Give what the characters have become."""
        real = self.tokens >= 0
        return Sequences(self.tokens[real].astype(np.int32), real.sum(axis=1))


def _spell(pieces: Pieces) -> Sequences:
    """Give the characters of every id; of what is no piece, itself."""
    size = max(piece.id for piece in pieces.values()) + 1
    spelled = [[each] for each in range(size)]
    for name, piece in pieces.items():
        spelled[piece.id] = [pieces[character].id for character in name]
    ids = np.array([each for ids in spelled for each in ids], dtype=np.int32)
    return Sequences(ids, np.array([len(ids) for ids in spelled]))


def _groups(which: Integers, sizes: Integers) -> Iterator[Integers]:
    """Part stretches into groups of much the same size, so that tables have few empty cells."""
    which = which[np.argsort(sizes[which], kind="stable")]
    while len(which):
        fits = sizes[which] * np.arange(1, len(which) + 1) <= _MAX_CELLS
        count = max(1, int(fits.sum()))
        yield which[:count]
        which = which[count:]
