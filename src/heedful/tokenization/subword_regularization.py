"""Subword regularization: BPE-dropout and sampling from a unigram model.

A text is split into spans, mostly words, at positions that no piece can cross; spans are
segmented independently, many at once. Invariants: a segmentation decodes to the same text and
depends only on its key; without dropout, BPE-dropout gives SentencePiece's segmentation.
"""

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from heedful.tokenization.ragged_array import Integers, RaggedArray, offsets_from_lengths

Keys = NDArray[np.uint64]

UNIFORM_RESOLUTION = 2**32
"""Random numbers are integers below this."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
_CODE_POINT_BITS = 21
_NO_CHARACTER = 2**_CODE_POINT_BITS - 1
_SENTINEL = 2**63 - 1  # ends a sorted array, so that searchsorted stays inside


# ----- keyed random numbers: there is no generator state, so any segmentation can be repeated


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


class Segmenter(ABC):
    """Random segmentation of spans into pieces; an id that is not a piece, a byte, is unchanged."""

    @abstractmethod
    def segment(self, spans: RaggedArray, keys: Keys) -> RaggedArray:
        """Segment each span as its key determines; no span is empty."""


class SubwordRegularizer:
    """Segments texts anew: other pieces, the same text."""

    def __init__(self, pieces: SubwordVocab, segmenter: Segmenter) -> None:
        missing = set("".join(pieces)) - pieces.keys()  # with none, every span can be segmented
        assert not missing, f"characters {sorted(missing)} of pieces are not pieces"
        self.segmenter = segmenter
        # Code points of the first and last character of each id.
        size = max(piece.id for piece in pieces.values()) + 1
        self._first_characters, self._last_characters = np.full((2, size), _NO_CHARACTER)
        for name, piece in pieces.items():
            self._first_characters[piece.id] = ord(name[0])
            self._last_characters[piece.id] = ord(name[-1])
        # Pairs of characters that are adjacent in a piece, as sorted integers.
        neighbors = set(chain.from_iterable(map(pairwise, pieces)))
        pairs = [(ord(left) << _CODE_POINT_BITS) | ord(right) for left, right in neighbors]
        self._adjacent_characters = np.array([*sorted(pairs), _SENTINEL])

    def resegment(self, texts: RaggedArray, keys: Keys) -> RaggedArray:
        """Segment each text as its key determines."""
        ids = texts.values
        if not len(ids):
            return texts
        text_indices = np.repeat(np.arange(len(keys)), texts.lengths)
        # A span starts with every text, and where no piece can cross.
        left, right = self._last_characters[ids[:-1]], self._first_characters[ids[1:]]
        pairs = (left << _CODE_POINT_BITS) | right
        indices = np.searchsorted(self._adjacent_characters, pairs)
        cannot_join = self._adjacent_characters[indices] != pairs
        is_start = cannot_join | (text_indices[1:] != text_indices[:-1])
        starts = np.flatnonzero(np.concatenate([[True], is_start]))
        text_indices = text_indices[starts]
        spans = RaggedArray(ids, np.append(starts, len(ids)))
        span_indices = np.arange(len(starts)) - np.searchsorted(text_indices, text_indices)
        segmented = self.segmenter.segment(spans, derive_keys(keys[text_indices], span_indices))
        lengths = np.bincount(text_indices, segmented.lengths, minlength=len(keys))
        return RaggedArray(segmented.values, offsets_from_lengths(lengths.astype(np.int64)))


# ----- BPE-dropout

_NO_RANK = 2**31 - 1  # of pairs that cannot be merged
_MAX_TABLE_CELLS = 2**16  # characters of one table, so that it fits into a cache


class BPEDropout(Segmenter):
    """At each step drop every possible merge with probability p and apply the best of the others.

    (Provilkov et al. 2020, algorithm 1; its word is a span here.) A span starts as characters
    and ends when all merges are dropped. Equal pairs are dropped independently; of equally good
    ones the leftmost is merged.
    """

    def __init__(self, pieces: SubwordVocab, p: float) -> None:
        self.p = p
        self._merges = _MergeRanks(pieces)
        # The characters of every id; an id that is not a piece is its own.
        characters = [[index] for index in range(max(piece.id for piece in pieces.values()) + 1)]
        for name, piece in pieces.items():
            characters[piece.id] = [pieces[character].id for character in name]
        self._characters = RaggedArray.from_sequences(characters)
        # The best i merges are all dropped with probability p^i; ascending, down to resolution.
        thresholds: list[int] = []
        while p > 0 and (threshold := int(p ** (len(thresholds) + 1) * UNIFORM_RESOLUTION)):
            thresholds.append(threshold)
        self._thresholds = np.array(thresholds[::-1], dtype=np.uint64)

    @override
    def segment(self, spans: RaggedArray, keys: Keys) -> RaggedArray:
        """Segment spans of SentencePiece again; half, for p = 0.1, lose no merge and stay."""
        sizes = np.add.reduceat(self._characters.lengths_at(spans.values), spans.offsets[:-1])
        num_merges = sizes - spans.lengths
        is_changed = np.zeros(len(keys), dtype=np.bool_)
        for step in range(num_merges.max(initial=0)):
            remaining = np.flatnonzero(~is_changed & (num_merges > step))
            is_changed[remaining] = self._num_dropped(keys[remaining], step) > 0
        order = [np.flatnonzero(~is_changed)]
        parts = [spans.select(order[0])]
        for indices in _group_by_size(np.flatnonzero(is_changed), sizes):
            order.append(indices)
            ids = self._characters.select(spans.select(indices).values).values
            characters = RaggedArray(ids, offsets_from_lengths(sizes[indices]))
            parts.append(self.merge_characters(characters, keys[indices]))
        return RaggedArray.concatenate(parts).select(np.argsort(np.concatenate(order)))

    def _num_dropped(self, keys: Keys, step: int) -> Integers:
        """Return how many of the best merges are dropped at a step."""
        samples = random_bits(keys, step)
        return len(self._thresholds) - np.searchsorted(self._thresholds, samples, side="right")

    def merge_characters(self, characters: RaggedArray, keys: Keys) -> RaggedArray:
        """Merge the characters of each span as its key determines."""
        table = _MergeTable(characters, self._merges)
        active, step = np.arange(len(keys)), 0
        while len(active):
            active = table.merge(active, self._num_dropped(keys[active], step))
            step += 1
        is_token = table.tokens >= 0
        offsets = offsets_from_lengths(is_token.sum(axis=1))
        return RaggedArray(table.tokens[is_token].astype(np.int32), offsets)


class _MergeRanks:
    """The rank and result of merging two pieces."""

    def __init__(self, pieces: SubwordVocab) -> None:
        ranked = sorted(pieces, key=lambda name: -pieces[name].score)
        self.ids = np.array([pieces[name].id for name in ranked])
        ranks = {
            (pieces[name[:split]].id << 32) | pieces[name[split:]].id: rank
            for rank, name in enumerate(ranked)
            for split in range(1, len(name))
            if name[:split] in pieces and name[split:] in pieces
        }
        self._pairs = np.array([*sorted(ranks), _SENTINEL])
        self._ranks = np.array([*(ranks[pair] for pair in sorted(ranks)), _NO_RANK])

    def rank(self, left: NDArray[Any], right: NDArray[Any]) -> Integers:
        """Return the rank of each merge, or `_NO_RANK`; negative ids cannot be merged."""
        pairs = (left.astype(np.int64) << 32) | right
        indices = np.searchsorted(self._pairs, pairs)
        return np.where(self._pairs[indices] == pairs, self._ranks[indices], _NO_RANK)


class _MergeTable:
    """Spans during merging: a row per span, a column per character.

    A merged piece is in the column of its left part; the last column is outside of the span.
    """

    def __init__(self, characters: RaggedArray, merges: _MergeRanks) -> None:
        num_rows, width = len(characters), int(characters.lengths.max())
        self.merges = merges
        self.tokens = characters.padded(width + 1, fill=-1)
        columns = np.arange(width + 1)
        self.left = np.tile(columns - 1, (num_rows, 1))  # -1, the last column, for the first
        self.right = np.tile(np.minimum(columns + 1, width), (num_rows, 1))
        self.ranks = np.full((num_rows, width + 1), _NO_RANK)  # of a token and its right neighbor
        self.ranks[:, :-1] = merges.rank(self.tokens[:, :-1], self.tokens[:, 1:])

    def merge(self, rows: Integers, num_dropped: Integers) -> Integers:
        """Apply the best merge of each row that is not dropped; return the rows that had one."""
        columns = self.ranks[rows].argmin(axis=1)
        dropping = np.flatnonzero(num_dropped)
        if len(dropping):
            order = self.ranks[rows[dropping]].argsort(axis=1, kind="stable")
            last = np.minimum(num_dropped[dropping], order.shape[1] - 1)
            columns[dropping] = order[np.arange(len(dropping)), last]
        can_merge = self.ranks[rows, columns] != _NO_RANK
        rows, columns = rows[can_merge], columns[can_merge]
        removed, before = self.right[rows, columns], self.left[rows, columns]
        after = self.right[rows, removed]
        merged = self.merges.ids[self.ranks[rows, columns]]
        self.tokens[rows, columns], self.tokens[rows, removed] = merged, -1
        self.right[rows, columns], self.left[rows, after] = after, columns
        self.ranks[rows, removed] = _NO_RANK
        self.ranks[rows, columns] = self.merges.rank(merged, self.tokens[rows, after])
        self.ranks[rows, before] = self.merges.rank(self.tokens[rows, before], merged)
        return rows


def _group_by_size(indices: Integers, sizes: Integers) -> Iterator[Integers]:
    """Group spans of similar size, so that tables have few empty cells."""
    indices = indices[np.argsort(sizes[indices], kind="stable")]
    while len(indices):
        fits = sizes[indices] * np.arange(1, len(indices) + 1) <= _MAX_TABLE_CELLS
        count = max(1, int(fits.sum()))
        yield indices[:count]
        indices = indices[count:]


# ----- sampling from a unigram model

MAX_CACHE_SIZE = 2**18
"""Maximum number of cached suffixes: 70 MB, measured."""


class UnigramSampler(Segmenter):
    """P(segmentation) ~ product of P(piece)^alpha  (Kudo 2018, section 3.3, l = infinity).

    Pieces are sampled from left to right. The probability of the next piece follows from a sum
    over all segmentations of the remaining suffix (forward filtering, backward sampling).
    Suffixes are cached and shared by all spans that end with them.
    """

    def __init__(
        self, pieces: SubwordVocab, alpha: float, *, max_cache_size: int = MAX_CACHE_SIZE
    ) -> None:
        self.pieces = pieces
        self.alpha = alpha
        self.max_cache_size = max_cache_size
        self._names = {piece.id: name for name, piece in pieces.items()}
        self._max_lengths: dict[str, int] = {}  # of the pieces that start with a character
        for name in pieces:
            self._max_lengths[name[0]] = max(self._max_lengths.get(name[0], 0), len(name))
        self._clear_cache()

    def _clear_cache(self) -> None:
        self._suffix_indices = {"": 0}
        self._log_sums = [0.0]  # of each suffix, over all its segmentations
        self._span_indices: dict[bytes, int] = {}  # suffix index by the ids of a span
        # Candidates for the next piece of a suffix are consecutive: cumulative probability with
        # the suffix index in the upper bits, id of the piece, index of the suffix that remains.
        # The first is that of the empty suffix and never sampled.
        self._bounds = array("Q", [UNIFORM_RESOLUTION])
        self._ids = array("i", [0])
        self._next_suffixes = array("q", [0])

    @override
    def segment(self, spans: RaggedArray, keys: Keys) -> RaggedArray:
        if len(self._suffix_indices) > self.max_cache_size:
            self._clear_cache()
        suffixes = np.fromiter(self._suffixes_of(spans), np.int64, len(keys))
        bounds = np.frombuffer(self._bounds, np.uint64)
        next_suffixes = np.frombuffer(self._next_suffixes, np.int64)
        active, step = np.arange(len(keys)), 0
        span_parts, choice_parts = [active[:0]], [active[:0]]
        while len(active):
            # Integers: the sample must not depend on the index that a suffix happens to have.
            samples = random_bits(keys[active], step)
            points = (suffixes.astype(np.uint64) << np.uint64(32)) | samples
            choices = np.searchsorted(bounds, points, side="right")
            span_parts.append(active)
            choice_parts.append(choices)
            suffixes = next_suffixes[choices]
            active, suffixes, step = active[suffixes > 0], suffixes[suffixes > 0], step + 1
        owners, choices = np.concatenate(span_parts), np.concatenate(choice_parts)
        choices = choices[np.argsort(owners, kind="stable")]
        lengths = np.bincount(owners, minlength=len(keys))
        ids = np.frombuffer(self._ids, np.int32)
        return RaggedArray(ids[choices], offsets_from_lengths(lengths))

    def _suffixes_of(self, spans: RaggedArray) -> Iterator[int]:
        """Yield the suffix index of each span."""
        ids = spans.values.astype(np.int32, copy=False)
        contents = ids.tobytes()
        for start, end in pairwise((spans.offsets * ids.itemsize).tolist()):
            span = contents[start:end]
            if span not in self._span_indices:
                self._span_indices[span] = self._cache_span(np.frombuffer(span, np.int32).tolist())
            yield self._span_indices[span]

    def _cache_span(self, ids: Sequence[int]) -> int:
        if ids[0] not in self._names:  # a byte; no piece contains a space, so no suffix is equal
            return self._append(f" {ids[0]}", [(0, ids[0], 0.0)])
        span = "".join(self._names[piece_id] for piece_id in ids)
        for suffix in accumulate(reversed(span), lambda end, character: character + end):
            if suffix not in self._suffix_indices:
                self._append(suffix, self._next_pieces(suffix))
        return self._suffix_indices[span]

    def _next_pieces(self, suffix: str) -> list[tuple[int, int, float]]:
        """Return the candidates: index of the next suffix, id, log of the unnormalized weight."""
        candidates = []
        for end in range(1, min(self._max_lengths[suffix[0]], len(suffix)) + 1):
            if piece := self.pieces.get(suffix[:end]):
                rest = self._suffix_indices[suffix[end:]]
                candidates.append((rest, piece.id, self.alpha * piece.score + self._log_sums[rest]))
        return candidates

    def _append(self, suffix: str, candidates: list[tuple[int, int, float]]) -> int:
        next_suffixes, ids, log_weights = zip(*candidates, strict=True)
        max_log = max(log_weights)
        sums = list(accumulate(math.exp(log_weight - max_log) for log_weight in log_weights))
        index = self._suffix_indices[suffix] = len(self._log_sums)
        self._log_sums.append(max_log + math.log(sums[-1]))
        bounds = [int(total / sums[-1] * UNIFORM_RESOLUTION) for total in sums[:-1]]
        self._bounds.extend([(index << 32) + bound for bound in (*bounds, UNIFORM_RESOLUTION)])
        self._ids.extend(ids)
        self._next_suffixes.extend(next_suffixes)
        return index
