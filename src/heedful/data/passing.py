"""Passing: the second time that data is gone through, to be cut.

It must be what it was the first time: whatever has changed in between is refused before any
tokens of it take their place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.cutting import Chunk, Cut
from heedful.data.survey import ShardPlan, Source, Stretch, Tally, stretches
from heedful.errors import DataError

Flags = NDArray[np.uint8]


class Plan(NamedTuple):
    """What a corpus will be cut into."""

    num_rows: int  # pairs or lines
    held_out: list[int]  # which of them are only validated on
    shards: list[ShardPlan]


class Passing:
    """Goes through the data and has some of its shards cut."""

    def __init__(
        self,
        sources: Sequence[Source],
        plan: Plan,
        missing: Collection[int],
        *,
        shard_size: int,
        repeats: Flags,
        watch: Callable[[int], None],
    ) -> None:
        self.held_out = list[Any]()
        self._sources = sources
        self._plan = plan
        self._missing = missing
        self._shard_size = shard_size
        self._repeats = repeats
        self._watch = watch
        self._tally = Tally()
        self._asked = deque[int]()

    def cut_by(self, cut: Callable[[Iterable[Chunk]], Iterator[Cut]]) -> Iterator[tuple[int, Cut]]:
        """Have what is missing cut, and say of each cut which shard it is of."""
        for each in cut(self._chunks()):
            yield self._asked.popleft(), each

    def _chunks(self) -> Iterator[Chunk]:
        for stretch in stretches(self._sources, self._shard_size):
            self._tally.add(stretch)
            end = stretch.first + len(stretch.examples)
            rows = within(self._plan.held_out, stretch.first, end)
            self.held_out += [stretch.examples[row] for row in rows]
            if stretch.shard in self._missing:
                self._asked.append(stretch.shard)
                yield self._chunk(stretch, rows)
            self._watch(end)

    def _chunk(self, stretch: Stretch, held_out: list[int]) -> Chunk:
        end = stretch.first + len(stretch.examples)
        repeated = np.flatnonzero(self._repeats[stretch.first : end]).tolist()
        learned_before = stretch.first - bisect_left(self._plan.held_out, stretch.first)
        return Chunk(stretch.texts, learned_before, held_out, repeated)

    def unchanged(self, shard: int, cuts: Iterable[Cut]) -> Iterator[Cut]:
        """Give the cuts of a shard, and refuse it in the end if its texts were not as before."""
        yield from cuts
        if self._tally.plans[shard : shard + 1] != self._plan.shards[shard : shard + 1]:
            raise self._changed()

    def refuse_changes(self) -> None:
        """Refuse data that is not what it was when it was first read."""
        if self._tally.plans != self._plan.shards:
            raise self._changed()

    def _changed(self) -> DataError:
        both = zip(self._tally.plans, self._plan.shards, strict=False)
        differing = (number for number, (now, then) in enumerate(both) if now != then)
        same = next(differing, min(len(self._tally.plans), len(self._plan.shards)))
        first = 1 + sum(shard.rows for shard in self._plan.shards[:same])
        return DataError(
            "; ".join(source.describe() for source in self._sources),
            f"the data has changed since it was first read, at number {first} or after it",
            "put it back, or delete what was made of it and give the same command again",
        )


def within(rows: Sequence[int], first: int, end: int) -> list[int]:
    """Of sorted rows those from `first` to `end`, counted from `first`."""
    return [row - first for row in rows[bisect_left(rows, first) : bisect_left(rows, end)]]
