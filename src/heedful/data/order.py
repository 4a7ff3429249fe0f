"""Order: in which order are the examples of an epoch seen?

The order is a function of (seed, epoch): a keyed permutation that gives the example at any
position without a table of all of them. Where training stands is therefore one integer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Member = TypeVar("Member")
_Words = NDArray[np.uint64]

_NUM_ROUNDS = 6
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: splitmix64's increment


def permute(positions: Integers, size: int, *, seed: int, epoch: int) -> Integers:
    """Say which of `size` examples stands at each position in this epoch.

    A Feistel network over the smallest even number of bits that holds `size`; what falls outside
    is sent through again until it falls inside, which keeps it a permutation.
    """
    half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    keys = _round_keys(seed, epoch)
    values = _feistel(positions.astype(np.uint64), half_bits, keys)
    while (outside := values >= size).any():
        values[outside] = _feistel(values[outside], half_bits, keys)
    return values.astype(np.int64)


def marking_last(members: Iterable[Member]) -> Iterator[tuple[Member, bool]]:
    """Give members on, and with each whether it is the last: an epoch must know its end."""
    held = list[Member]()
    for member in members:
        for earlier in held:
            yield earlier, False
        held = [member]
    for last in held:
        yield last, True


def _round_keys(seed: int, epoch: int) -> _Words:
    start = np.array([seed % 2**64], dtype=np.uint64)
    base = _mix(_mix(start) + np.uint64(epoch % 2**64))
    return _mix(base + np.arange(_NUM_ROUNDS, dtype=np.uint64) * np.uint64(_GOLDEN))


def _feistel(values: _Words, half_bits: int, keys: _Words) -> _Words:
    bits = np.uint64(half_bits)
    mask = np.uint64(2**half_bits - 1)
    left, right = values >> bits, values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right + key) & mask)
    return (left << bits) | right


def _mix(values: _Words) -> _Words:
    """The finaliser of splitmix64 (Steele et al. 2014): every bit in moves every bit out."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
