"""Chance: how are numbers drawn that follow from a key alone?

There is no generator whose state would have to be kept: a draw is a function of a key and a
number, so the same draw can be made again, alone or among others, in any order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

RESOLUTION = 2**32
"""Draws are whole numbers below this."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: numbers lie far apart


def draw(keys: Words, number: int | Integers) -> Words:
    """Draw once from each key; another number gives another draw, unrelated to the first."""
    return _stir(spread(keys, number)) >> np.uint64(32)


def spread(keys: Words, number: int | Integers) -> Words:
    """Make another key of each, by number."""
    numbers = np.atleast_1d(number).astype(np.uint64)  # a single number would warn of overflow
    return _stir(keys + (numbers + np.uint64(1)) * _GOLDEN)


def _stir(values: Words) -> Words:
    """The finaliser of MurmurHash3 (Appleby 2011): every bit in moves every bit out."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))
