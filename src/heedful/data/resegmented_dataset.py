"""Subword regularization of a dataset: texts are segmented anew in every epoch.

The text stays the same, its segmentation is random (Kudo 2018; Provilkov et al. 2020). Invariant:
a segmentation depends on (seed, epoch, row, side) alone, not on the batch, on earlier requests or
on the number of readers.
"""

from __future__ import annotations

import numpy as np

from heedful.data.pair_dataset import (
    InMemoryPairDataset,
    Integers,
    PairDataset,
    RaggedArray,
    concatenate_datasets,
    offsets_from_lengths,
)
from heedful.data.permutation import permute_indices
from heedful.tokenization.segments import IdSequences
from heedful.tokenization.tokenizer_pair import RegularizerPair

_ROWS_PER_CALL = 1024  # bounds the memory of one call of a regularizer
_NUM_KEYS = 2**62


class ResegmentedDataset:
    """A dataset whose texts are segmented anew in every epoch.

    Lengths follow from the segmentation, so they cost as much as the tokens; `BatchStream`
    caches a bucket of rows.
    """

    def __init__(
        self, dataset: PairDataset, regularizers: RegularizerPair, *, seed: int, epoch: int = 0
    ) -> None:
        self.dataset = dataset.for_epoch(epoch)
        self.regularizers = regularizers
        self.seed = seed
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.dataset)

    def for_epoch(self, epoch: int) -> ResegmentedDataset:
        """Return the same texts in the segmentation of this epoch."""
        if epoch == self.epoch:
            return self
        return ResegmentedDataset(self.dataset, self.regularizers, seed=self.seed, epoch=epoch)

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """Return the source and target lengths of these rows."""
        return self.select(rows).sequence_lengths(np.arange(len(rows)))

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """Return these rows, in this order."""
        starts = range(0, max(1, len(rows)), _ROWS_PER_CALL)
        return concatenate_datasets(
            [self._resegment(rows[start : start + _ROWS_PER_CALL]) for start in starts]
        )

    def _resegment(self, rows: Integers) -> InMemoryPairDataset:
        sides = list(self.dataset.select(rows))
        for side, regularizer in enumerate(self.regularizers):
            if regularizer is not None:
                # The order of an epoch is drawn with epochs from 0, the held-out rows with -1.
                key_epoch = -2 - (2 * self.epoch + side)
                keys = permute_indices(rows, _NUM_KEYS, seed=self.seed, epoch=key_epoch)
                sequences = IdSequences(sides[side].values, sides[side].lengths)
                ids, lengths = regularizer.resegment(sequences, keys.astype(np.uint64))
                sides[side] = RaggedArray(ids, offsets_from_lengths(lengths))
        return InMemoryPairDataset(*sides)
