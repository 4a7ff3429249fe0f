"""Mixing: how often is each of several corpora gone through?

An epoch goes through each part `weight` times. A part of which an epoch takes a share is gone
through in a random order, and the next epoch goes on where this one stopped: nothing comes again
before all of it has come. Which row stands where follows from (seed, epoch) alone, so there is
nothing to be saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from hashlib import blake2b
from itertools import chain
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from heedful.config import Choice
from heedful.data.order import Integers, permute
from heedful.data.records import Pair
from heedful.data.sources import PairSourceConfig
from heedful.data.store import Pairs, PairStore, Ragged, offsets_of


class PartConfig(Choice):
    """One of several corpora."""

    weight: PositiveFloat = 1.0
    """How many times an epoch goes through it; at 0.5, the other half comes in the next epoch."""
    source: PairSourceConfig
    """Where its pairs come from."""


class SeveralConfig(Choice):
    """Several corpora, each gone through as often as its weight says."""

    kind: Literal["several"] = "several"
    parts: Annotated[list[PartConfig], Field(min_length=1)]
    """The corpora."""

    @property
    def weights(self) -> list[float]:
        """How many times an epoch goes through each part."""
        return [part.weight for part in self.parts]

    def read(self) -> list[Pair]:
        """Read the pairs of all parts, each once."""
        return list(chain.from_iterable(part.source.read() for part in self.parts))

    def stream(self) -> Iterator[Pair]:
        """Give the pairs of all parts, each once, as they are read."""
        return chain.from_iterable(part.source.stream() for part in self.parts)

    def describe(self) -> str:
        """Name the source in a report."""
        return "; ".join(f"{part.weight:g} x {part.source.describe()}" for part in self.parts)


class Mixed:
    """Several corpora as one, of which each epoch is another."""

    def __init__(
        self, parts: Sequence[Pairs], weights: Sequence[float], *, seed: int, epoch: int = 0
    ) -> None:
        self.parts = parts
        self.weights = weights
        self.seed = seed
        self.epoch = epoch
        # As a decimal: ten epochs of weight 0.1 go through a part once, not a little more.
        per_epoch = [
            len(part) * Fraction(str(weight)) for part, weight in zip(parts, weights, strict=True)
        ]
        self._begins = [int(epoch * rows) for rows in per_epoch]
        ends = [int((epoch + 1) * rows) for rows in per_epoch]
        self._offsets = offsets_of(np.subtract(ends, self._begins))

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def in_epoch(self, epoch: int) -> Mixed:
        """What this epoch goes through."""
        if epoch == self.epoch:
            return self
        return Mixed(self.parts, self.weights, seed=self.seed, epoch=epoch)

    def lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """How long the sources and the targets of these rows are."""
        sources, targets = np.empty((2, len(rows)), dtype=np.int64)
        for part, here, found in self._find(rows):
            sources[here], targets[here] = part.lengths(found)
        return sources, targets

    def take(self, rows: Integers) -> PairStore:
        """These rows, in this order."""
        taken = [(here, part.take(found)) for part, here, found in self._find(rows)]
        if not taken:
            return PairStore(Ragged.pack([]), Ragged.pack([]))
        back = np.argsort(np.concatenate([here for here, _ in taken]))
        return join([pairs for _, pairs in taken]).take(back)

    def fingerprint(self, of_parts: Sequence[str]) -> str:
        """Tell one mixture from another, by the fingerprints of its parts."""
        said = [f"{weight} x {part}" for weight, part in zip(self.weights, of_parts, strict=True)]
        return blake2b("\n".join(said).encode(), digest_size=16).hexdigest()

    def _find(self, rows: Integers) -> Iterator[tuple[Pairs, Integers, Integers]]:
        """Give for each part which of these rows are its, and which of its own rows they are."""
        owners = np.searchsorted(self._offsets, rows, side="right") - 1
        for number, part in enumerate(self.parts):
            here = np.flatnonzero(owners == number)
            if len(here):
                places = self._begins[number] + rows[here] - self._offsets[number]
                yield part, here, self._shuffle(places, len(part), number)

    def _shuffle(self, places: Integers, size: int, number: int) -> Integers:
        """Say which row stands at each place of a part that is gone through again and again."""
        found = np.empty_like(places)
        for time in np.unique(places // size):
            now = places // size == time
            # Each part has a key of its own, unlike the one that orders the epoch.
            found[now] = permute(
                places[now] % size, size, seed=self.seed + 1 + number, epoch=int(time)
            )
        return found


def join(stores: Sequence[PairStore]) -> PairStore:
    """Put stores one after the other."""
    sides = zip(*stores, strict=True)
    return PairStore(*map(_join, sides))


def _join(sides: Sequence[Ragged]) -> Ragged:
    lengths = np.concatenate([side.lengths for side in sides])
    return Ragged(np.concatenate([side.values for side in sides]), offsets_of(lengths))
