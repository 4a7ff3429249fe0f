"""Sequences of different lengths in one array: texts, spans of texts, sides of a corpus."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class RaggedArray(NamedTuple):
    """Sequences of different lengths, concatenated."""

    values: NDArray[np.int32]
    offsets: Integers  # one more than there are sequences

    @classmethod
    def from_sequences(cls, sequences: Iterable[Sequence[int]]) -> Self:
        """Concatenate sequences."""
        listed = list(sequences)
        offsets = offsets_from_lengths(np.array([len(row) for row in listed], dtype=np.int64))
        values = np.fromiter(chain.from_iterable(listed), dtype=np.int32, count=offsets[-1])
        return cls(values, offsets)

    @classmethod
    def concatenate(cls, arrays: Sequence[Self]) -> Self:
        """Concatenate the sequences of multiple arrays."""
        values = np.concatenate([array.values for array in arrays])
        lengths = np.concatenate([array.lengths for array in arrays])
        return cls(values, offsets_from_lengths(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Integers:
        """The length of each sequence."""
        return np.diff(self.offsets)

    def get(self, index: int) -> list[int]:
        """Return one sequence."""
        return self.values[self.offsets[index] : self.offsets[index + 1]].tolist()

    def padded(self, width: int, *, fill: int) -> Integers:
        """Return all sequences as a matrix, padded on the right."""
        matrix = np.full((len(self), width), fill, dtype=np.int64)
        matrix[np.arange(width) < self.lengths[:, None]] = self.values
        return matrix

    def lengths_at(self, rows: NDArray[np.integer[Any]]) -> Integers:
        """Return the lengths of these sequences."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def select(self, rows: NDArray[np.integer[Any]]) -> Self:
        """Return these sequences, in this order."""
        lengths = self.lengths_at(rows)
        indices = range_indices(self.offsets[rows], lengths)
        return type(self)(self.values[indices], offsets_from_lengths(lengths))


def offsets_from_lengths(lengths: Integers) -> Integers:
    """Return the start of each sequence in their concatenation, and its end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def range_indices(starts: Integers, lengths: Integers) -> Integers:
    """Concatenate the ranges with these starts and lengths."""
    offsets = offsets_from_lengths(lengths)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
