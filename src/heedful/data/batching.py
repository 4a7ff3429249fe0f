"""Batching: which examples are learned from together?

Examples are drawn in the epoch's order, a window at a time; a window is sorted by length, cut
into batches that fit a budget of padded tokens, and its batches are shuffled. Lengths are
rounded up to a few widths, so that shapes recur and what was made for a shape serves again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from pydantic import PositiveInt

from heedful.config import Choice
from heedful.data.order import Integers, permute
from heedful.data.store import Pairs


class BatchingConfig(Choice):
    """How examples are grouped into batches."""

    max_tokens: PositiveInt = 4096
    """Most tokens in a batch, both sides and padding counted."""
    window: PositiveInt = 16384
    """How many examples are sorted by length together."""


class Shape(NamedTuple):
    """A batch to be: which examples, and how wide each side is."""

    rows: Integers
    source_width: int
    target_width: int

    @property
    def num_tokens(self) -> int:
        """Tokens of both sides, padding counted."""
        return len(self.rows) * (self.source_width + self.target_width)


def widths(longest: int) -> Integers:
    """The widths that lengths are rounded up to: steps of 2 at first, then of about an eighth."""
    steps = [2]
    while steps[-1] < longest:
        steps.append(steps[-1] + max(2, 2 ** (steps[-1].bit_length() - 4)))
    return np.array(steps)


class Placed(NamedTuple):
    """A batch to be, and where in its epoch it stands."""

    shape: Shape
    window: int  # which it is of
    place: int  # among the batches of its window


def epoch_batches(
    store: Pairs, config: BatchingConfig, *, seed: int, epoch: int, window: int = 0
) -> Iterator[Placed]:
    """Give the batches of one epoch, from this window on."""
    store = store.in_epoch(epoch)
    size = len(store)
    for number in range(window, -(-size // config.window)):
        start = number * config.window
        positions = np.arange(start, min(start + config.window, size))
        rows = permute(positions, size, seed=seed, epoch=epoch)
        # Each side has one symbol more: the source its end, the target its begin or its end.
        source_lengths, target_lengths = (lengths + 1 for lengths in store.lengths(rows))
        cuts = list(cut(rows, source_lengths, target_lengths, config.max_tokens))
        numbers = np.arange(len(cuts))
        order = permute(numbers, len(cuts), seed=seed, epoch=epoch + (number << 32))
        for place, chosen in enumerate(order):
            yield Placed(cuts[chosen], number, place)


def cut(
    rows: Integers, source_lengths: Integers, target_lengths: Integers, max_tokens: int
) -> Iterator[Shape]:
    """Sort examples by length and cut them into batches of at most `max_tokens`."""
    if not len(rows):
        return
    allowed = widths(int(max(source_lengths.max(), target_lengths.max())))
    source_widths = allowed[np.searchsorted(allowed, source_lengths)]
    target_steps = np.searchsorted(allowed, target_lengths)
    target_widths = allowed[target_steps]
    # Back and forth like an ox at the plough: where the target grows a step, the source stays.
    turning = np.where(target_steps % 2 == 0, source_lengths, -source_lengths)
    order = np.lexsort((turning, target_steps))
    sides = zip(source_widths[order].tolist(), target_widths[order].tolist(), strict=True)
    start, source_width, target_width = 0, 0, 0
    for end, (source, target) in enumerate(sides):
        wider = max(source_width, source), max(target_width, target)
        if end > start and (end - start + 1) * sum(wider) > max_tokens:
            yield Shape(rows[order[start:end]], source_width, target_width)
            start, wider = end, (source, target)
        source_width, target_width = wider
    yield Shape(rows[order[start:]], source_width, target_width)
