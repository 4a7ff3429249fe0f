"""Store: the tokens of a corpus, packed into flat arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.order import Integers


class Ragged(NamedTuple):
    """Sequences of unlike lengths, one after the other in one array."""

    values: NDArray[np.int32]
    offsets: Integers  # one more than there are sequences

    @classmethod
    def pack(cls, sequences: Iterable[Sequence[int]]) -> Ragged:
        """Put sequences into one array."""
        arrays = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        values = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int32)
        return cls(values, np.concatenate([np.zeros(1, np.int64), lengths.cumsum()]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Integers:
        """How long each sequence is."""
        return np.diff(self.offsets)

    def row(self, index: int) -> list[int]:
        """One sequence."""
        return self.values[self.offsets[index] : self.offsets[index + 1]].tolist()

    def padded(self, rows: Integers, width: int, *, fill: int) -> NDArray[np.int64]:
        """Some sequences as a rectangle, filled up at the right."""
        starts, lengths = self.offsets[rows], self.lengths_of(rows)
        columns = np.arange(width)
        inside = columns < lengths[:, None]
        rectangle = np.full((len(rows), width), fill, dtype=np.int64)
        rectangle[inside] = self.values[(starts[:, None] + columns)[inside]]
        return rectangle

    def lengths_of(self, rows: Integers) -> Integers:
        """How long these sequences are."""
        return self.offsets[rows + 1] - self.offsets[rows]


class PairStore(NamedTuple):
    """A tokenised parallel corpus; neither side holds begin or end symbols."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source)
