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

from heedful.config import BaseConfig
from heedful.data.batching import permute_indices
from heedful.data.pair_dataset import (
    InMemoryPairDataset,
    Integers,
    Pair,
    PairDataset,
    RaggedArray,
    offsets_from_lengths,
)
from heedful.data.sources import PairSourceConfig


class CorpusConfig(BaseConfig):
    """One of several corpora."""

    weight: PositiveFloat = 1.0
    """How many times an epoch goes through it; at 0.5, the other half comes in the next epoch."""
    source: PairSourceConfig
    """Where its pairs come from."""


class MixtureConfig(BaseConfig):
    """Several corpora, each gone through as often as its weight says."""

    type: Literal["mixture"] = "mixture"
    corpora: Annotated[list[CorpusConfig], Field(min_length=1)]
    """The corpora."""

    @property
    def weights(self) -> list[float]:
        """How many times an epoch goes through each part."""
        return [part.weight for part in self.corpora]

    def read(self) -> list[Pair]:
        """Read the pairs of all parts, each once."""
        return list(chain.from_iterable(part.source.read() for part in self.corpora))

    def stream(self) -> Iterator[Pair]:
        """Give the pairs of all parts, each once, as they are read."""
        return chain.from_iterable(part.source.stream() for part in self.corpora)

    def describe(self) -> str:
        """Name the source in a report."""
        return "; ".join(f"{part.weight:g} x {part.source.describe()}" for part in self.corpora)


class MixedDataset:
    """Several corpora as one, of which each epoch is another."""

    def __init__(
        self,
        datasets: Sequence[PairDataset],
        weights: Sequence[float],
        *,
        seed: int,
        epoch: int = 0,
    ) -> None:
        self.datasets = datasets
        self.weights = weights
        self.seed = seed
        self.epoch = epoch
        # As a decimal: ten epochs of weight 0.1 go through a part once, not a little more.
        per_epoch = [
            len(part) * Fraction(str(weight))
            for part, weight in zip(datasets, weights, strict=True)
        ]
        self._begins = [int(epoch * rows) for rows in per_epoch]
        ends = [int((epoch + 1) * rows) for rows in per_epoch]
        self._offsets = offsets_from_lengths(np.subtract(ends, self._begins))

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def for_epoch(self, epoch: int) -> MixedDataset:
        """What this epoch goes through."""
        if epoch == self.epoch:
            return self
        return MixedDataset(self.datasets, self.weights, seed=self.seed, epoch=epoch)

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """How long the sources and the targets of these rows are."""
        sources, targets = np.empty((2, len(rows)), dtype=np.int64)
        for part, here, found in self._locate_rows(rows):
            sources[here], targets[here] = part.sequence_lengths(found)
        return sources, targets

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """These rows, in this order."""
        taken = [(here, part.select(found)) for part, here, found in self._locate_rows(rows)]
        if not taken:
            return InMemoryPairDataset(
                RaggedArray.from_sequences([]), RaggedArray.from_sequences([])
            )
        back = np.argsort(np.concatenate([here for here, _ in taken]))
        return concatenate_datasets([pairs for _, pairs in taken]).select(back)

    def fingerprint(self, fingerprints: Sequence[str]) -> str:
        """Tell one mixture from another, by the fingerprints of its parts."""
        weighted_parts = [
            f"{weight} x {part}" for weight, part in zip(self.weights, fingerprints, strict=True)
        ]
        return blake2b("\n".join(weighted_parts).encode(), digest_size=16).hexdigest()

    def _locate_rows(self, rows: Integers) -> Iterator[tuple[PairDataset, Integers, Integers]]:
        """Give for each part which of these rows are its, and which of its own rows they are."""
        owners = np.searchsorted(self._offsets, rows, side="right") - 1
        for number, part in enumerate(self.datasets):
            here = np.flatnonzero(owners == number)
            if len(here):
                places = self._begins[number] + rows[here] - self._offsets[number]
                yield part, here, self._permute(places, len(part), number)

    def _permute(self, positions: Integers, size: int, number: int) -> Integers:
        """Say which row stands at each place of a part that is gone through again and again."""
        found = np.empty_like(positions)
        for time in np.unique(positions // size):
            now = positions // size == time
            # Each part has a key of its own, unlike the one that orders the epoch.
            found[now] = permute_indices(
                positions[now] % size, size, seed=self.seed + 1 + number, epoch=int(time)
            )
        return found


def concatenate_datasets(stores: Sequence[InMemoryPairDataset]) -> InMemoryPairDataset:
    """Put stores one after the other."""
    sides = zip(*stores, strict=True)
    return InMemoryPairDataset(*map(_concatenate_side, sides))


def _concatenate_side(sides: Sequence[RaggedArray]) -> RaggedArray:
    lengths = np.concatenate([side.lengths for side in sides])
    return RaggedArray(
        np.concatenate([side.values for side in sides]), offsets_from_lengths(lengths)
    )
