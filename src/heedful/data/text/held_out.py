"""Held-out examples: the dev set of a run whose recipe names none.

Invariant: no held-out pair has a text in common with a training pair, on the sides that count, as
long as that costs few training pairs; else `DevSplit.note` names what they have in common.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from heedful.data.shuffling import permute_indices
from heedful.data.text.pair_dataset import Hashes, TextHashes
from heedful.errors import format_count
from heedful.tokenization.ragged_array import Integers

MAX_HELD_OUT_PAIRS = 1000
MAX_HELD_OUT_LINES = 5000
HELD_OUT_DIVISOR = 20  # at most one example in 20 is held out
_CANDIDATES = 8  # pairs to choose from, per pair to be held out
_MAX_EXCLUDED = 10  # training pairs that may be lost, per pair to be held out
_SIDES = ("source", "target")
_BLOCK_SIZE = 1 << 20  # rows compared at once


class DevSplit(NamedTuple):
    """Rows of a corpus that are not trained on."""

    rows: Sequence[int]  # of the dev set, sorted
    excluded: Sequence[int] = ()  # of pairs that share a text with it, sorted
    note: str = ""  # what the user should know about them
    is_shared: bool = False  # the dev rows are trained on, too, apart from their held-out end

    @property
    def all_rows(self) -> list[int]:
        """All rows that are not trained on, sorted."""
        return sorted({*([] if self.is_shared else self.rows), *self.excluded})


def choose_pairs(hashes: TextHashes, num_held_out: int, *, seed: int, sides: int) -> DevSplit:
    """Choose random pairs whose texts occur nowhere else, or as few times as possible.

    Texts of the first `sides` sides may not be shared with training pairs: what shares one is
    excluded, at most one pair in 10. Where this excludes more, fewer sides count.
    """
    count, permuted = len(hashes), np.arange(min(len(hashes), _CANDIDATES * num_held_out))
    candidates = permute_indices(permuted, count, seed=seed, epoch=-1)
    budget = min(2 * count // HELD_OUT_DIVISOR, _MAX_EXCLUDED * num_held_out)
    num_others = np.zeros(len(candidates), dtype=np.int64)
    costs = [num_others]  # by the number of sides that count
    for side in range(sides):
        num_others = num_others + _count(hashes, hashes[candidates, side], side) - 1
        costs.append(num_others)
    for num_sides in range(sides, -1, -1):
        order = np.argsort(costs[num_sides], kind="stable")[:num_held_out]
        order = order[np.cumsum(costs[num_sides][order]) <= budget]
        if 2 * len(order) >= num_held_out or not num_sides:
            rows = np.sort(candidates[order])
            excluded = np.setdiff1d(_sharing(hashes, hashes[rows], num_sides), rows)
            return DevSplit(
                rows.tolist(), excluded.tolist(), _note(len(excluded), num_sides, sides)
            )
    raise AssertionError(sides)


def _note(num_excluded: int, num_sides: int, sides: int) -> str:
    if num_sides < sides:
        shared = " and ".join(f"{side}s" for side in _SIDES[num_sides:sides])
        return f"most {shared} occur repeatedly, so that dev and training pairs have some in common"
    if not num_excluded:
        return ""
    texts = " or ".join(f"a {side}" for side in _SIDES[:sides])
    return f"{format_count(num_excluded, 'pair')} left out: {texts} in common with a dev pair"


def _blocks(hashes: TextHashes) -> Iterator[tuple[int, TextHashes]]:
    for start in range(0, len(hashes), _BLOCK_SIZE):  # a corpus may be larger than memory
        yield start, np.asarray(hashes[start : start + _BLOCK_SIZE])


def _count(hashes: TextHashes, queries: Hashes, side: int) -> Integers:
    """Return how often each of these hashes occurs."""
    unique, inverse = np.unique(queries, return_inverse=True)
    counts = np.zeros(len(unique), dtype=np.int64)
    for _, block in _blocks(hashes):
        slots = np.searchsorted(unique, block[:, side]).clip(max=len(unique) - 1)
        counts += np.bincount(slots[unique[slots] == block[:, side]], minlength=len(unique))
    return counts[inverse]


def _sharing(hashes: TextHashes, held_out: TextHashes, num_sides: int) -> Integers:
    """Return the rows that have a text in common with held-out pairs."""
    rows = [np.empty(0, dtype=np.int64)]
    for start, block in _blocks(hashes) if num_sides else ():
        matches = [np.isin(block[:, side], held_out[:, side]) for side in range(num_sides)]
        rows.append(start + np.flatnonzero(np.logical_or.reduce(matches)))
    return np.concatenate(rows)
