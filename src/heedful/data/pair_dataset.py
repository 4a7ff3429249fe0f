"""Parallel corpora as token ids: the `PairDataset` interface and its in-memory form.

A dataset has rows, and returns lengths and token ids of some of them; requests are never as long
as the corpus. Invariant: wrappers (cached, sharded, mixed, resegmented) keep source and target
of a row together, and what they return for a row does not depend on the other rows requested.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class Pair(NamedTuple):
    """A source text and its target text."""

    source: str
    target: str


class RaggedArray(NamedTuple):
    """Sequences of different lengths, concatenated."""

    values: NDArray[np.int32]
    offsets: Integers  # one more than there are sequences

    @classmethod
    def from_sequences(cls, sequences: Iterable[Sequence[int]]) -> RaggedArray:
        """Concatenate sequences."""
        listed = list(sequences)
        offsets = offsets_from_lengths(np.array([len(row) for row in listed], dtype=np.int64))
        values = np.fromiter(chain.from_iterable(listed), dtype=np.int32, count=offsets[-1])
        return cls(values, offsets)

    @classmethod
    def concatenate(cls, arrays: Sequence[RaggedArray]) -> RaggedArray:
        """Concatenate the sequences of several arrays."""
        lengths = np.concatenate([array.lengths for array in arrays])
        return cls(
            np.concatenate([array.values for array in arrays]), offsets_from_lengths(lengths)
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Integers:
        """The length of every sequence."""
        return np.diff(self.offsets)

    def get(self, index: int) -> list[int]:
        """Return one sequence."""
        return self.values[self.offsets[index] : self.offsets[index + 1]].tolist()

    def padded(self, rows: Integers, width: int, *, fill: int) -> Integers:
        """Return sequences as a matrix, padded on the right."""
        starts, lengths = self.offsets[rows], self.lengths_at(rows)
        columns = np.arange(width)
        inside = columns < lengths[:, None]
        matrix = np.full((len(rows), width), fill, dtype=np.int64)
        matrix[inside] = self.values[(starts[:, None] + columns)[inside]]
        return matrix

    def lengths_at(self, rows: Integers) -> Integers:
        """Return the lengths of these sequences."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def select(self, rows: Integers) -> RaggedArray:
        """Return these sequences, in this order."""
        lengths = self.lengths_at(rows)
        return RaggedArray(
            self.values[range_indices(self.offsets[rows], lengths)], offsets_from_lengths(lengths)
        )


class PairDataset(Protocol):
    """A tokenized parallel corpus, in memory or in files."""

    def __len__(self) -> int:
        """Return the number of rows of an epoch."""
        ...

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """Return the source and target lengths of these rows."""
        ...

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """Return these rows, in this order."""
        ...

    def for_epoch(self, epoch: int) -> PairDataset:
        """Return the rows of this epoch."""
        ...


class InMemoryPairDataset(NamedTuple):
    """A tokenized parallel corpus in memory, without BOS and EOS."""

    source: RaggedArray
    target: RaggedArray

    def __len__(self) -> int:
        return len(self.source)

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """Return the source and target lengths of these rows."""
        return self.source.lengths_at(rows), self.target.lengths_at(rows)

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """Return these rows, in this order."""
        return InMemoryPairDataset(self.source.select(rows), self.target.select(rows))

    def for_epoch(self, epoch: int) -> InMemoryPairDataset:
        """Return all rows: every epoch has the same."""
        del epoch
        return self

    def fingerprint(self) -> str:
        """Return a hash of all tokens."""
        digest = hashlib.blake2b(digest_size=16)
        for side in self:
            digest.update(side.offsets.tobytes())
            digest.update(side.values.tobytes())
        return digest.hexdigest()


class CachedDataset:
    """The rows of one epoch; those whose lengths were last requested are kept in memory.

    Batches are formed from a bucket of rows: reading the bucket once, in storage order, is
    faster than reading it batch by batch (measured on 80 shards: 3.2 ms a batch became 0.9 ms).
    """

    def __init__(self, dataset: PairDataset) -> None:
        self.dataset = dataset
        self._rows = np.empty(0, dtype=np.int64)
        self._cached = dataset.select(self._rows)

    def __len__(self) -> int:
        return len(self.dataset)

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """Return the source and target lengths of these rows, and cache the rows."""
        order = np.argsort(rows)
        self._rows, self._cached = rows[order], self.dataset.select(rows[order])
        return self._cached.sequence_lengths(np.argsort(order))

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """Return these rows, in this order."""
        positions = np.searchsorted(self._rows, rows)
        if len(self._rows) and (self._rows[positions % len(self._rows)] == rows).all():
            return self._cached.select(positions)
        return self.dataset.select(rows)

    def for_epoch(self, epoch: int) -> CachedDataset:
        """Return itself: it has one epoch."""
        del epoch
        return self


def concatenate_datasets(datasets: Sequence[InMemoryPairDataset]) -> InMemoryPairDataset:
    """Concatenate the rows of several datasets."""
    return InMemoryPairDataset(*map(RaggedArray.concatenate, zip(*datasets, strict=True)))


def deinterleave(values: NDArray[np.integer[Any]], lengths: Integers) -> InMemoryPairDataset:
    """Split an array in which sources and targets alternate."""
    offsets = offsets_from_lengths(lengths)
    sides = (
        RaggedArray(
            values[range_indices(offsets[side:-1:2], lengths[side::2])].astype(
                np.int32, copy=False
            ),
            offsets_from_lengths(lengths[side::2]),
        )
        for side in (0, 1)
    )
    return InMemoryPairDataset(*sides)


def offsets_from_lengths(lengths: Integers) -> Integers:
    """Return the start of every sequence in their concatenation, and its end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def range_indices(starts: Integers, lengths: Integers) -> Integers:
    """Concatenate the ranges with these starts and lengths."""
    offsets = offsets_from_lengths(lengths)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
