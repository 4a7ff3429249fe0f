"""Endless training batches of a parallel corpus, resumable at any batch.

Invariant: a stream started from the cursor of another continues it exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from heedful.data.batching import Batch, BatchingConfig, collate, epoch_batches, with_last_flag
from heedful.data.pair_dataset import CachedDataset, PairDataset


class DataCursor(NamedTuple):
    """The position of training in its data."""

    epoch: int
    batch: int  # batches of the epoch already used
    bucket: int = 0  # of the last of them: earlier buckets need not be read again
    batches_before_bucket: int = 0  # batches of the epoch before that bucket


class BatchStream:
    """Batches of one epoch after another; `cursor` is where to resume."""

    def __init__(
        self, dataset: PairDataset, config: BatchingConfig, *, seed: int, cursor: DataCursor
    ) -> None:
        self.dataset = dataset
        self.config = config
        self.seed = seed
        self.cursor = cursor

    def __iter__(self) -> Iterator[Batch]:
        while True:
            start, epoch = self.cursor, self.cursor.epoch
            dataset = CachedDataset(self.dataset.for_epoch(epoch))
            specs = epoch_batches(
                dataset, self.config, seed=self.seed, epoch=epoch, bucket=start.bucket
            )
            remaining = islice(
                enumerate(specs, start.batches_before_bucket),
                start.batch - start.batches_before_bucket,
                None,
            )
            for (index, (spec, bucket, batch_index)), is_last in with_last_flag(remaining):
                cursor = DataCursor(epoch, index + 1, bucket, index - batch_index)
                self.cursor = DataCursor(epoch + 1, 0) if is_last else cursor
                yield collate(dataset, spec)
            self.cursor = DataCursor(epoch + 1, 0)  # an epoch of a mixture may have no rows
