""""""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


# Records: what one example is, before it is tokens.


class Pair(NamedTuple):
    """A text and what should become of it."""

    source: str
    target: str


# Store: the tokens of a corpus, packed into flat arrays.
#
# Whatever holds a parallel corpus is asked three things: how many rows it has, how long some of them
# are, and for some of them to be taken out. What is asked for is never as long as the corpus.


class RaggedArray(NamedTuple):
    """Sequences of unlike lengths, one after the other in one array."""

    values: NDArray[np.int32]
    offsets: Integers  # one more than there are sequences

    @classmethod
    def from_sequences(cls, sequences: Iterable[Sequence[int]]) -> RaggedArray:
        """Put sequences into one array."""
        listed = list(sequences)
        offsets = offsets_from_lengths(np.array([len(each) for each in listed], dtype=np.int64))
        values = np.fromiter(chain.from_iterable(listed), dtype=np.int32, count=offsets[-1])
        return cls(values, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Integers:
        """How long each sequence is."""
        return np.diff(self.offsets)

    def get(self, index: int) -> list[int]:
        """One sequence."""
        return self.values[self.offsets[index] : self.offsets[index + 1]].tolist()

    def padded(self, rows: Integers, width: int, *, fill: int) -> NDArray[np.int64]:
        """Some sequences as a rectangle, filled up at the right."""
        starts, lengths = self.offsets[rows], self.lengths_at(rows)
        columns = np.arange(width)
        inside = columns < lengths[:, None]
        rectangle = np.full((len(rows), width), fill, dtype=np.int64)
        rectangle[inside] = self.values[(starts[:, None] + columns)[inside]]
        return rectangle

    def lengths_at(self, rows: Integers) -> Integers:
        """How long these sequences are."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def select(self, rows: Integers) -> RaggedArray:
        """These sequences, in this order."""
        lengths = self.lengths_at(rows)
        return RaggedArray(
            self.values[range_indices(self.offsets[rows], lengths)], offsets_from_lengths(lengths)
        )


class PairDataset(Protocol):
    """A parallel corpus in tokens, wherever they lie."""

    def __len__(self) -> int:
        """Count the rows of an epoch."""
        ...

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """How long the sources and the targets of these rows are."""
        ...

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """These rows, in this order, in memory."""
        ...

    def for_epoch(self, epoch: int) -> PairDataset:
        """What this epoch goes through, once."""
        ...


class InMemoryPairDataset(NamedTuple):
    """A tokenised parallel corpus in memory; neither side holds begin or end symbols."""

    source: RaggedArray
    target: RaggedArray

    def __len__(self) -> int:
        return len(self.source)

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """How long the sources and the targets of these rows are."""
        return self.source.lengths_at(rows), self.target.lengths_at(rows)

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """These rows, in this order."""
        return InMemoryPairDataset(self.source.select(rows), self.target.select(rows))

    def for_epoch(self, epoch: int) -> InMemoryPairDataset:
        """All of it, in every epoch."""
        del epoch
        return self


class CachedDataset:
    """What an epoch goes through, of which the rows last looked at are held in memory.

    Batches are cut from a window of rows at a time: to read it once, in the order in which it
    lies, is quicker than batch by batch (measured on 80 shards: 3.2 ms a batch became 0.9 ms).
    """

    def __init__(self, dataset: PairDataset) -> None:
        self.store = dataset
        self._rows = np.empty(0, dtype=np.int64)
        self._cached = dataset.select(self._rows)

    def __len__(self) -> int:
        return len(self.store)

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """How long the sources and the targets of these rows are; from now on they are held."""
        order = np.argsort(rows)
        self._rows, self._cached = rows[order], self.store.select(rows[order])
        return self._cached.sequence_lengths(np.argsort(order))

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """These rows, in this order."""
        found = np.searchsorted(self._rows, rows)
        if len(self._rows) and (self._rows[found % len(self._rows)] == rows).all():
            return self._cached.select(found)
        return self.store.select(rows)

    def for_epoch(self, epoch: int) -> CachedDataset:
        """Itself: it is of one epoch."""
        del epoch
        return self


def offsets_from_lengths(lengths: Integers) -> Integers:
    """Where each of some sequences begins when they stand one after the other, and the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def range_indices(starts: Integers, lengths: Integers) -> Integers:
    """List the places of stretches that begin here and are so long, one after the other."""
    offsets = offsets_from_lengths(lengths)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
