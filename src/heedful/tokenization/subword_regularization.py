"""Dropped merges: how is a stretch cut if some of its merges are left out by chance?

A stretch begins as characters. At every step each pair that could be merged is dropped with
probability p, and the best of those left is merged; if none is left, that is the end. Many
stretches take their steps at once. Law: with p = 0 the cut is the one SentencePiece gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.tokenization.segments import (
    RESERVED_MARK,
    UNIFORM_RESOLUTION,
    IdSequences,
    Integers,
    Keys,
    Segmenter,
    SubwordVocab,
    derive_keys,
    random_bits,
    select_sequences,
)

_NO_RANK = 2**31 - 1  # the rank of what cannot be merged
_MAX_TABLE_CELLS = 2**16  # characters that are worked on together, so that they fit a cache


class BPEDropout(Segmenter):
    """Merge the best pair that is not dropped, again and again (Provilkov et al. 2020, alg. 1).

    The paper's word is a stretch here. Pairs that look alike are dropped apart from one another,
    and of equally good pairs the leftmost is merged.
    """

    def __init__(self, pieces: SubwordVocab, p: float) -> None:
        self.p = p
        self._merges = _MergeRanks(pieces)
        self._spelled = _split_into_characters(pieces)
        # The best i are all dropped with probability p^i: rarest first, down to what can be drawn.
        bounds = list[int]()
        while p > 0 and (bound := int(p ** (len(bounds) + 1) * UNIFORM_RESOLUTION)):
            bounds.append(bound)
        self._bounds = np.array(bounds[::-1], dtype=np.uint64)

    def segment(self, spans: IdSequences, keys: Keys) -> IdSequences:
        """Cut stretches anew; they must come as SentencePiece cuts them.

        Those that lose none of the merges by which they became so stay as they are, which spares
        the work on about half of them where p is 0.1.
        """
        sizes = np.add.reduceat(self._spelled.lengths[spans.ids], spans.offsets)
        is_new = self._has_dropped_merges(sizes - spans.lengths, keys)
        order = [np.flatnonzero(~is_new)]
        parts = [select_sequences(spans, order[0])]
        for which in _group_by_size(np.flatnonzero(is_new), sizes):
            order.append(which)
            ids = select_sequences(spans, which).ids.astype(np.int64)
            characters = select_sequences(self._spelled, ids).ids
            parts.append(self.merge_characters(IdSequences(characters, sizes[which]), keys[which]))
        joined = IdSequences(*map(np.concatenate, zip(*parts, strict=True)))
        return select_sequences(joined, np.argsort(np.concatenate(order)))

    def _has_dropped_merges(self, num_merges: Integers, keys: Keys) -> NDArray[np.bool_]:
        """Say which stretches lose any of the merges that made them what they are."""
        loses = np.zeros(len(keys), dtype=np.bool_)
        for step in range(num_merges.max(initial=0)):
            left = np.flatnonzero(~loses & (num_merges > step))
            loses[left] = self._num_dropped(keys[left], step) > 0
        return loses

    def _num_dropped(self, keys: Keys, step: int) -> Integers:
        """Say how many of the best pairs are dropped at a step."""
        return len(self._bounds) - np.searchsorted(
            self._bounds, random_bits(keys, step), side="right"
        )

    def merge_characters(self, characters: IdSequences, keys: Keys) -> IdSequences:
        """Merge characters as the key of their stretch decides."""
        table = _MergeTable(characters, self._merges)
        going, step = np.arange(len(keys)), 0
        while len(going):
            going = table.merge(going, self._num_dropped(keys[going], step))
            step += 1
        return table.to_sequences()


class _MergeRanks:
    """What comes of two pieces side by side, and how late it was learned."""

    def __init__(self, pieces: SubwordVocab) -> None:
        ranked = sorted(pieces, key=lambda name: -pieces[name].score)
        self.ids = np.array([pieces[name].id for name in ranked])
        found = {
            (pieces[name[:at]].id << 32) | pieces[name[at:]].id: rank
            for rank, name in enumerate(ranked)
            for at in range(1, len(name))
            if name[:at] in pieces and name[at:] in pieces
        }
        self._pairs = np.array([*sorted(found), 2**63 - 1])
        self._ranks = np.array([*(found[pair] for pair in sorted(found)), _NO_RANK])

    def rank(self, left: NDArray[Any], right: NDArray[Any]) -> Integers:
        """Say the rank of what each two give, or `_NEVER`; what is negative gives nothing."""
        pairs = (left.astype(np.int64) << 32) | right
        places = np.searchsorted(self._pairs, pairs)
        return np.where(self._pairs[places] == pairs, self._ranks[places], _NO_RANK)


class _MergeTable:
    """Stretches being merged: a row for each, a column for each character it had at first.

    What is merged stands in the column of its left part. The last column is the world outside.
    """

    def __init__(self, characters: IdSequences, merges: _MergeRanks) -> None:
        num_rows, width = len(characters.lengths), int(characters.lengths.max())
        self.merges = merges
        self.tokens = np.full((num_rows, width + 1), -1)
        columns = np.arange(width + 1)
        self.tokens[columns < characters.lengths[:, None]] = characters.ids
        self.left = np.tile(columns - 1, (num_rows, 1))  # of the first, -1: the last column
        self.right = np.tile(np.minimum(columns + 1, width), (num_rows, 1))
        self.ranks = np.full((num_rows, width + 1), _NO_RANK)  # of a token and the one to its right
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
        self.ranks[rows, gone] = _NO_RANK
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
        return np.where(self.ranks[rows, columns] == _NO_RANK, -1, columns)

    def to_sequences(self) -> IdSequences:
        """Give what the characters have become."""
        real = self.tokens >= 0
        return IdSequences(self.tokens[real].astype(np.int32), real.sum(axis=1))


def _split_into_characters(pieces: SubwordVocab) -> IdSequences:
    """Give the characters of every id; of what is no piece, itself."""
    size = max(piece.id for piece in pieces.values()) + 1
    spelled = [[each] for each in range(size)]
    for name, piece in pieces.items():
        spelled[piece.id] = [pieces[character].id for character in name]
    ids = np.array([each for ids in spelled for each in ids], dtype=np.int32)
    return IdSequences(ids, np.array([len(ids) for ids in spelled]))


def _group_by_size(which: Integers, sizes: Integers) -> Iterator[Integers]:
    """Part stretches into groups of much the same size, so that tables have few empty cells."""
    which = which[np.argsort(sizes[which], kind="stable")]
    while len(which):
        fits = sizes[which] * np.arange(1, len(which) + 1) <= _MAX_TABLE_CELLS
        count = max(1, int(fits.sum()))
        yield which[:count]
        which = which[count:]


# Recutting: how is a text in pieces cut into other pieces by chance?
#
# A text is first parted where no piece can lie across: between two characters that stand side by
# side in no piece. What lies between two such places is a stretch, mostly a word. Stretches are
# cut apart from one another, so what was found out about one serves wherever it comes again.

_BITS = 21  # hold any code point
_NO_CHARACTER = 2**_BITS - 1


class SubwordRegularizer:
    """Cuts texts anew: other pieces, the same text."""

    def __init__(self, pieces: SubwordVocab, segmenter: Segmenter) -> None:
        lone = {character for name in pieces for character in name} - pieces.keys()
        assert not lone, f"characters {sorted(lone)} are in pieces, but are none"
        self.segmenter = segmenter
        self._firsts, self._lasts = _edge_characters(pieces)
        self._adjacent_characters = _adjacent_characters(pieces)

    def resegment(self, texts: IdSequences, keys: Keys) -> IdSequences:
        """Cut each text as its key decides."""
        if not len(texts.ids):
            return texts
        owners = np.repeat(np.arange(len(keys)), texts.lengths)
        begins = self._span_starts(texts.ids, owners)
        owners = owners[begins]
        spans = IdSequences(texts.ids, np.diff(begins, append=len(texts.ids)))
        numbers = np.arange(len(begins)) - np.searchsorted(owners, owners)  # within their text
        new = self.segmenter.segment(spans, derive_keys(keys[owners], numbers))
        lengths = np.bincount(owners, new.lengths, minlength=len(keys))
        return IdSequences(new.ids, lengths.astype(np.int64))

    def _span_starts(self, ids: NDArray[np.int32], owners: Integers) -> Integers:
        """Say where stretches begin: with every text, and where no piece can lie across."""
        around = (self._lasts[ids[:-1]] << _BITS) | self._firsts[ids[1:]]
        joint_indices = np.searchsorted(self._adjacent_characters, around)
        apart = (self._adjacent_characters[joint_indices] != around) | (owners[1:] != owners[:-1])
        return np.flatnonzero(np.concatenate([[True], apart]))


def _edge_characters(pieces: SubwordVocab) -> tuple[Integers, Integers]:
    """Give the code points of the first and last character of each id."""
    size = max(piece.id for piece in pieces.values()) + 1
    firsts, lasts = np.full((2, size), _NO_CHARACTER)
    for name, piece in pieces.items():
        firsts[piece.id], lasts[piece.id] = ord(name[0]), ord(name[-1])
    return firsts, lasts


def _adjacent_characters(pieces: SubwordVocab) -> Integers:
    """List the pairs of characters that stand side by side in a piece, as sorted numbers."""
    found = {(ord(one) << _BITS) | ord(other) for name in pieces for one, other in pairwise(name)}
    return np.array([*sorted(found), 2**63 - 1])


# Sampled cuts: how is a stretch cut by how likely its pieces are?
#
# Pieces are drawn from left to right. How likely each is to come first in what is left to be cut
# follows from a sum over all cuts of what would then be left, so no cut is left out and none is
# drawn in vain. What was found out about a rest is kept, and serves every stretch that ends in it.

MAX_CACHE_SIZE = 2**18
"""Most rests that are kept: measured, 70 MB."""


class UnigramSampler(Segmenter):
    """P(cut) ~ product of P(piece)^alpha over its pieces (Kudo 2018, section 3.3, l = infinity)."""

    def __init__(
        self, pieces: SubwordVocab, alpha: float, *, max_cache_size: int = MAX_CACHE_SIZE
    ) -> None:
        self.pieces = pieces
        self.alpha = alpha
        self.max_cache_size = max_cache_size
        self._names = {piece.id: name for name, piece in pieces.items()}
        self._longest = dict[str, int]()  # of the pieces that begin with a character
        for name in pieces:
            self._longest[name[0]] = max(self._longest.get(name[0], 0), len(name))
        self._clear_cache()

    def _clear_cache(self) -> None:
        self._numbers = {"": 0}  # of each rest
        self._sums = [0.0]  # of each rest: the log of the sum over all its cuts
        self._stretches = dict[bytes, int]()  # the number of each stretch, by the ids it came in
        # The ways to go on from a rest stand one after the other.
        self._bounds = _GrowableArray(
            np.uint64
        )  # the number of the rest, then where its chances end
        self._ids = _GrowableArray(np.int32)  # the piece that comes first
        self._leads = _GrowableArray(np.int64)  # the number of the rest that is then left
        self._bounds.extend(
            [UNIFORM_RESOLUTION]
        )  # nothing can be cut no further: a way never taken
        self._ids.extend([0])
        self._leads.extend([0])

    def segment(self, spans: IdSequences, keys: Keys) -> IdSequences:
        """Draw a cut of each stretch."""
        if len(self._numbers) > self.max_cache_size:
            self._clear_cache()
        rests = np.fromiter(self._span_numbers(spans), np.int64, len(keys))
        going, step = np.arange(len(keys)), 0
        who, took = [going[:0]], [going[:0]]
        while len(going):
            # Whole numbers: the draw must not depend on the number that a rest has got.
            wanted = (rests.astype(np.uint64) << np.uint64(32)) | random_bits(keys[going], step)
            ways = np.searchsorted(self._bounds.values, wanted, side="right")
            who.append(going)
            took.append(ways)
            rests = self._leads.values[ways]
            going, rests, step = going[rests > 0], rests[rests > 0], step + 1
        owners, ways = np.concatenate(who), np.concatenate(took)
        ways = ways[np.argsort(owners, kind="stable")]
        return IdSequences(self._ids.values[ways], np.bincount(owners, minlength=len(keys)))

    def _span_numbers(self, spans: IdSequences) -> Iterator[int]:
        """Give the number of each stretch."""
        ids = spans.ids.astype(np.int32, copy=False)
        written = ids.tobytes()
        ends = [0, *(spans.lengths.cumsum() * ids.itemsize).tolist()]
        known = self._stretches
        for begin, end in pairwise(ends):
            span = written[begin:end]
            number = known.get(span)
            if number is None:
                number = known[span] = self._cache_span(np.frombuffer(span, np.int32).tolist())
            yield number

    def _cache_span(self, ids: Sequence[int]) -> int:
        if ids[0] not in self._names:
            return self._append(f"{RESERVED_MARK}{ids[0]}", [(0, ids[0], 0.0)])
        span = "".join(self._names[each] for each in ids)
        number = 0
        for start in reversed(range(len(span))):
            rest = span[start:]
            found = self._numbers.get(rest)
            number = self._append(rest, self._next_pieces(rest)) if found is None else found
        return number

    def _next_pieces(self, suffix: str) -> list[tuple[int, int, float]]:
        """List what may come first: what it leaves, its id, and the log of its share of the sum."""
        found = []
        for end in range(1, min(self._longest[suffix[0]], len(suffix)) + 1):
            piece = self.pieces.get(suffix[:end])
            if piece is not None:
                left = self._numbers[suffix[end:]]
                found.append((left, piece.id, self.alpha * piece.score + self._sums[left]))
        return found

    def _append(self, suffix: str, candidates: list[tuple[int, int, float]]) -> int:
        leads, ids, logs = zip(*candidates, strict=True)
        most = max(logs)
        ends = list(accumulate(math.exp(each - most) for each in logs))
        number = self._numbers[suffix] = len(self._sums)
        self._sums.append(most + math.log(ends[-1]))
        shares = [int(end / ends[-1] * UNIFORM_RESOLUTION) for end in ends[:-1]]
        self._bounds.extend([(number << 32) + share for share in (*shares, UNIFORM_RESOLUTION)])
        self._ids.extend(ids)
        self._leads.extend(leads)
        return number


class _GrowableArray:
    """An array that grows at its end."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._buffer = np.empty(1024, dtype=dtype)
        self._size = 0

    @property
    def values(self) -> NDArray[Any]:
        return self._buffer[: self._size]

    def extend(self, values: Sequence[int]) -> None:
        size = self._size + len(values)
        if size > len(self._buffer):
            grown = np.empty(2 * size, dtype=self._buffer.dtype)
            grown[: self._size] = self.values
            self._buffer = grown
        self._buffer[self._size : size] = values
        self._size = size
