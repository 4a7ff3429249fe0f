"""Sequences: how much do two of them have in common, and how far are they apart?

Items may be anything that can be compared and hashed: words, characters, tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Fewest insertions, deletions and substitutions from one to the other (Levenshtein 1966)."""
    numbers = {item: number for number, item in enumerate({*one, *other})}
    columns = np.array([numbers[item] for item in other], dtype=np.int64)
    places = np.arange(len(other) + 1)
    row = places.copy()
    for item in one:
        kept = row[:-1] + (columns != numbers[item])
        reached = np.concatenate([row[:1] + 1, np.minimum(kept, row[1:] + 1)])
        # Insertions go on from the cheapest place to the left, one for each place between.
        row = np.minimum.accumulate(reached - places) + places
    return int(row[-1])


def common_length(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Length of the longest sequence that is in both, gaps allowed (Hyyro 2004, bits of a row)."""
    places: dict[Hashable, int] = {}
    for place, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << place
    everywhere = unmatched = (1 << len(one)) - 1
    for item in other:
        met = unmatched & places.get(item, 0)
        unmatched = ((unmatched + met) | (unmatched - met)) & everywhere
    return len(one) - unmatched.bit_count()


def in_common(one: Iterable[Hashable], other: Iterable[Hashable]) -> int:
    """How many items are in both, in any order, each as often as in the one that has fewer."""
    return (Counter(one) & Counter(other)).total()


def n_grams(items: Sequence[Hashable], order: int) -> list[tuple[Hashable, ...]]:
    """Every run of `order` items."""
    return list(zip(*(items[start:] for start in range(order)), strict=False))
