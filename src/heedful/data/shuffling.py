"""The order of an epoch: a keyed permutation that needs no table, and a position in it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from heedful.tokenization.ragged_array import Integers

Item = TypeVar("Item")
_UInt64s = NDArray[np.uint64]
_NUM_ROUNDS = 6
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: the increment of splitmix64


def permute_indices(indices: Integers, size: int, *, seed: int, epoch: int) -> Integers:
    """Map positions of an epoch to example indices: a keyed permutation of `range(size)`.

    A Feistel network over the smallest even number of bits that holds `size`; results outside
    the range are permuted again (cycle walking), which keeps it a permutation.
    """
    half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    start = np.array([seed % 2**64], dtype=np.uint64)
    base = mix_bits(mix_bits(start) + np.uint64(epoch % 2**64))
    keys = mix_bits(base + np.arange(_NUM_ROUNDS, dtype=np.uint64) * np.uint64(_GOLDEN))
    values = _feistel(indices.astype(np.uint64), half_bits, keys)
    while (outside := values >= size).any():
        values[outside] = _feistel(values[outside], half_bits, keys)
    return values.astype(np.int64)


def _feistel(values: _UInt64s, half_bits: int, keys: _UInt64s) -> _UInt64s:
    bits, mask = np.uint64(half_bits), np.uint64(2**half_bits - 1)
    left, right = values >> bits, values & mask
    for key in keys:
        left, right = right, left ^ (mix_bits(right + key) & mask)
    return (left << bits) | right


def mix_bits(values: _UInt64s) -> _UInt64s:
    """The finalizer of splitmix64 (Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class DataCursor(NamedTuple):
    """The position of training in its data."""

    epoch: int
    batch: int  # batches of the epoch already used
    bucket: int = 0  # of the last of them: earlier buckets need not be read again
    batches_before_bucket: int = 0  # batches of the epoch before that bucket


def shuffled_rows(
    count: int, batch_size: int, *, seed: int, cursor: DataCursor
) -> Iterator[tuple[Integers, DataCursor, DataCursor]]:
    """Yield the rows of each batch with its position and the next: epochs in random order."""
    num_batches = -(-count // batch_size)
    while True:
        order = permute_indices(np.arange(count), count, seed=seed, epoch=cursor.epoch)
        for batch in range(cursor.batch, num_batches):
            position = DataCursor(cursor.epoch, batch)
            is_last = batch + 1 == num_batches
            cursor = DataCursor(cursor.epoch + is_last, 0 if is_last else batch + 1)
            yield order[batch * batch_size : (batch + 1) * batch_size], position, cursor


@dataclass
class RowBatches:
    """Batches of one epoch after another, in random order; `cursor` is where to resume."""

    dataset: Any  # with `len` and `collate(rows)`
    batch_size: int
    seed: int
    cursor: DataCursor

    def __iter__(self) -> Iterator[Any]:
        count, size = len(self.dataset), self.batch_size
        batches = shuffled_rows(count, size, seed=self.seed, cursor=self.cursor)
        for rows, position, self.cursor in batches:
            yield self.collate(rows, position)

    def collate(self, rows: Integers, position: DataCursor) -> Any:
        """Return the batch of these rows at a position."""
        return self.dataset.collate(rows)


def with_last_flag(items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
    """Yield each item with whether it is the last."""
    previous: list[Item] = []
    for item in items:
        for earlier in previous:
            yield earlier, False
        previous = [item]
    for last in previous:
        yield last, True
