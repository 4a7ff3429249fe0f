"""Mixtures of parallel corpora with weights.

An epoch covers each corpus `weight` times. A corpus with a fractional weight is read in random
order, and the next epoch continues where this one stopped: no row repeats before all have come.
Invariant: the rows of an epoch depend only on (seed, epoch), so no state needs saving.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import blake2b
from itertools import chain
from operator import mul
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, PositiveFloat
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.shuffling import permute_indices
from heedful.data.sources import SourceConfig
from heedful.data.text.pair_dataset import (
    InMemoryPairDataset,
    Pair,
    PairDataset,
    concatenate_datasets,
)
from heedful.data.text.pair_files import PairSourceConfig
from heedful.tokenization.ragged_array import Integers, RaggedArray, offsets_from_lengths


class CorpusConfig(BaseConfig):
    """A corpus of a mixture."""

    weight: PositiveFloat = 1.0
    """Passes over the corpus per epoch; with 0.5, the next epoch has the other half."""
    source: PairSourceConfig
    """Where its pairs come from."""


class MixtureConfig(SourceConfig):
    """Multiple parallel corpora with weights."""

    type: Literal["mixture"] = "mixture"
    corpora: Annotated[list[CorpusConfig], Field(min_length=1)]
    """The corpora."""

    @property
    def weights(self) -> list[float]:
        """Passes over each corpus per epoch."""
        return [corpus.weight for corpus in self.corpora]

    @override
    def stream(self) -> Iterator[Pair]:
        """Yield the pairs of all corpora, each once."""
        return chain.from_iterable(corpus.source.stream() for corpus in self.corpora)

    @property
    @override
    def paths(self) -> list[str]:
        return [path for corpus in self.corpora for path in corpus.source.paths]

    @override
    def describe(self) -> str:
        return "; ".join(f"{part.weight:g} x {part.source.describe()}" for part in self.corpora)


@dataclass
class MixedDataset:
    """Multiple datasets as one with different rows in each epoch."""

    datasets: Sequence[PairDataset]
    weights: Sequence[float]
    seed: int
    epoch: int = 0

    def __post_init__(self) -> None:
        # As a decimal: ten epochs of weight 0.1 are one pass, not slightly more.
        weights = [Fraction(str(weight)) for weight in self.weights]
        rows_per_epoch = list(map(mul, map(len, self.datasets), weights))
        self._starts = [int(self.epoch * rows) for rows in rows_per_epoch]
        ends = [int((self.epoch + 1) * rows) for rows in rows_per_epoch]
        self._offsets = offsets_from_lengths(np.subtract(ends, self._starts))

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def for_epoch(self, epoch: int) -> Self:
        """Return the rows of this epoch."""
        return self if epoch == self.epoch else replace(self, epoch=epoch)

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """Return the source and target lengths of these rows."""
        sources, targets = np.empty((2, len(rows)), dtype=np.int64)
        for dataset, positions, dataset_rows in self._locate(rows):
            sources[positions], targets[positions] = dataset.sequence_lengths(dataset_rows)
        return sources, targets

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """Return these rows, in this order."""
        empty = RaggedArray.from_sequences([])
        parts, order = [InMemoryPairDataset(empty, empty)], [np.empty(0, np.int64)]
        for dataset, positions, dataset_rows in self._locate(rows):
            parts.append(dataset.select(dataset_rows))
            order.append(positions)
        return concatenate_datasets(parts).select(np.argsort(np.concatenate(order)))

    def fingerprint(self, fingerprints: Sequence[str]) -> str:
        """Return a hash of the weights and of the fingerprints of the datasets."""
        weighted = zip(self.weights, fingerprints, strict=True)
        text = "\n".join(f"{weight} x {fingerprint}" for weight, fingerprint in weighted)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def _locate(self, rows: Integers) -> Iterator[tuple[PairDataset, Integers, Integers]]:
        """Yield each dataset with the positions of its rows in `rows` and its own row numbers."""
        dataset_indices = np.searchsorted(self._offsets, rows, side="right") - 1
        for index, dataset in enumerate(self.datasets):
            positions = np.flatnonzero(dataset_indices == index)
            if not len(positions):
                continue
            # Offsets in an endless sequence of shuffled passes over the dataset.
            offsets = self._starts[index] + rows[positions] - self._offsets[index]
            passes, offsets = np.divmod(offsets, len(dataset))
            dataset_rows = np.empty_like(offsets)
            for number in np.unique(passes):
                is_in_pass, seed = passes == number, self.seed + 1 + index  # a key of its own
                dataset_rows[is_in_pass] = permute_indices(
                    offsets[is_in_pass], len(dataset), seed=seed, epoch=int(number)
                )
            yield dataset, positions, dataset_rows
