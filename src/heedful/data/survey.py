"""Survey: how much data is there, and what does a fair sample of it look like?

Data too large for memory is gone through twice: once to see that it is sound, to count it and to
draw what tokenizers learn from, and once to be cut. Both times it comes in the same chunks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import count, islice
from random import Random
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from heedful.data.cutting import CHUNK

Example = TypeVar("Example")


class Source(Protocol):
    """Where examples come from, whether pairs or lines."""

    def stream(self) -> Iterator[Any]:
        """Give the examples as they are read."""
        ...

    def describe(self) -> str:
        """Name the source in a report."""
        ...


class Stretch(NamedTuple):
    """Some examples that follow one another, all of one shard."""

    shard: int
    part: int  # the source they are of
    first: int  # their first row among all there are
    examples: list[Any]
    texts: bytes  # the same as JSON


class ShardPlan(NamedTuple):
    """Which examples a shard is made of."""

    part: int
    rows: int
    digest: str  # of their texts


def stretches(sources: Sequence[Source], shard_size: int) -> Iterator[Stretch]:
    """Go through sources one after the other; no shard is of two."""
    shard = row = 0
    for part, source in enumerate(sources):
        stream = source.stream()
        for _ in count():
            left = shard_size
            while some := list(islice(stream, min(left, CHUNK))):
                texts = json.dumps(some, ensure_ascii=False).encode()
                yield Stretch(shard, part, row, some, texts)
                row += len(some)
                left -= len(some)
            if left < shard_size:
                shard += 1
            if left:
                break


class Reservoir(Generic[Example]):
    """At most so many of the examples that come, each with the same chance (Vitter 1985)."""

    def __init__(self, size: int, *, seed: int) -> None:
        self.size = size
        self._drawn = list[tuple[int, Example]]()
        self._chance = Random(seed)

    def add(self, first: int, examples: Sequence[Example]) -> None:
        """Let some more examples come, which stand in this row and those after it."""
        for row, example in enumerate(examples, first):
            if row < self.size:
                self._drawn.append((row, example))
            elif (place := int(self._chance.random() * (row + 1))) < self.size:
                self._drawn[place] = row, example

    def without(self, rows: Sequence[int]) -> list[Example]:
        """What was drawn, but for these rows, in the order in which it came."""
        others = set(rows)
        drawn = sorted(self._drawn, key=lambda each: each[0])
        return [example for row, example in drawn if row not in others]


class Tally:
    """Counts rows and takes the digest of each shard's texts."""

    def __init__(self) -> None:
        self.rows = 0
        self.plans = list[ShardPlan]()
        self._shard = -1

    def add(self, stretch: Stretch) -> None:
        """Count one more stretch."""
        if stretch.shard != self._shard:
            self._shard, self._digest = stretch.shard, blake2b(digest_size=16)
            self.plans.append(ShardPlan(stretch.part, 0, ""))
        self._digest.update(stretch.texts)
        self.rows += len(stretch.examples)
        part, rows, _ = self.plans[-1]
        self.plans[-1] = ShardPlan(part, rows + len(stretch.examples), self._digest.hexdigest())
