"""Preparation: from pairs of texts to a store of tokens, and from a store to its batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from heedful.data.batching import (
    Batch,
    BatchingConfig,
    BatchSpec,
    collate,
    epoch_batches,
    permute_indices,
    with_last_flag,
)
from heedful.data.chunk_tokenizer import CHUNK_SIZE, TokenizedChunk, deinterleave, tokenize_pairs
from heedful.data.filtering import (
    FilterConfig,
    FilterReport,
    SeenPairs,
    check_not_empty,
    merge_reports,
)
from heedful.data.mixing import concatenate_datasets
from heedful.data.pair_dataset import (
    CachedDataset,
    InMemoryPairDataset,
    Integers,
    Pair,
    PairDataset,
    RaggedArray,
    offsets_from_lengths,
)
from heedful.errors import DataError
from heedful.tokenization.segments import IdSequences, Keys
from heedful.tokenization.subword_regularization import SubwordRegularizer
from heedful.tokenization.tokenizer_pair import RegularizerPair, TokenizerPair

MAX_HELD_OUT = 1000
HELD_OUT_DIVISOR = 20  # one pair in so many


class DataCursor(NamedTuple):
    """Where training stands in its data."""

    epoch: int
    batch: int  # batches of the epoch already seen
    bucket: int = 0  # which the last of them was of: what lies before need not be cut again
    batches_before_bucket: int = 0  # batches of the epoch before that window


def choose_held_out_rows(count: int, *, seed: int, location: str) -> list[int]:
    """Choose the few of so many pairs that are validated on."""
    if count < 2:
        raise DataError(
            location,
            "one pair is too few: one is needed to learn from and one to validate on",
            "give more lines, or files to validate on: --dev-source FILE --dev-target FILE",
        )
    few = max(1, min(MAX_HELD_OUT, count // HELD_OUT_DIVISOR))
    return sorted(permute_indices(np.arange(few), count, seed=seed, epoch=-1).tolist())


def split_held_out(
    pairs: Sequence[Pair], *, seed: int, location: str
) -> tuple[list[Pair], list[Pair]]:
    """Part pairs into those to learn from and a few to validate on."""
    rows = choose_held_out_rows(len(pairs), seed=seed, location=location)
    chosen = set(rows)
    learned = [pair for row, pair in enumerate(pairs) if row not in chosen]
    return learned, [pairs[row] for row in rows]


def tokenize_pairs_in_memory(
    pairs: Sequence[Pair], tokenizers: TokenizerPair, config: FilterConfig, *, location: str
) -> tuple[InMemoryPairDataset, FilterReport]:
    """Turn pairs into tokens and leave out those that are not fit."""
    (store,), report = tokenize_corpora([pairs], tokenizers, config, location=location)
    return store, report


def tokenize_corpora(
    corpora: Sequence[Sequence[Pair]],
    tokenizers: TokenizerPair,
    config: FilterConfig,
    *,
    location: str,
) -> tuple[list[InMemoryPairDataset], FilterReport]:
    """Turn the pairs of several sources into tokens; they are numbered through."""
    seen, number = SeenPairs(), 1
    stores, reports = list[InMemoryPairDataset](), list[FilterReport]()
    for pairs in corpora:
        cuts = list[TokenizedChunk]()
        for start in range(0, max(1, len(pairs)), CHUNK_SIZE):
            some = pairs[start : start + CHUNK_SIZE]
            cut, report = tokenize_pairs(
                some, tokenizers, config, location=location, first_row=number, seen_pairs=seen
            )
            cuts.append(cut)
            reports.append(report)
            number += len(some)
        values = np.concatenate([cut.values for cut in cuts])
        stores.append(deinterleave(values, np.concatenate([cut.lengths for cut in cuts])))
    whole = merge_reports(reports)
    check_not_empty(whole, location=location)
    return stores, whole


def fingerprint(dataset: InMemoryPairDataset) -> str:
    """Tell one corpus from another."""
    digest = hashlib.blake2b(digest_size=16)
    for side in dataset:
        digest.update(side.offsets.tobytes())
        digest.update(side.values.tobytes())
    return digest.hexdigest()


def epoch_batch_specs(
    dataset: PairDataset, config: BatchingConfig, *, seed: int, epoch: int
) -> Iterator[BatchSpec]:
    """The batches of an epoch, before they are tensors."""
    for placed in epoch_batches(dataset, config, seed=seed, epoch=epoch):
        yield placed.spec


class BatchStream:
    """Batches without end, epoch after epoch; `cursor` says where to go on."""

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
            store = CachedDataset(self.dataset.for_epoch(epoch))
            placed = epoch_batches(
                store, self.config, seed=self.seed, epoch=epoch, bucket=start.bucket
            )
            left = islice(
                enumerate(placed, start.batches_before_bucket),
                start.batch - start.batches_before_bucket,
                None,
            )
            for (number, (shape, window, cursor)), is_last in with_last_flag(left):
                here = DataCursor(epoch, number + 1, window, number - cursor)
                self.cursor = DataCursor(epoch + 1, 0) if is_last else here
                yield collate(store, shape)
            self.cursor = DataCursor(epoch + 1, 0)  # a mixture may have an epoch of no rows


# Regularisation: which pieces are the texts of an epoch cut into?
#
# A store is seen through a chance that cuts its texts anew in every epoch (Kudo 2018; Provilkov et
# al. 2020). The text stays the same, and how it is cut follows from (seed, epoch, row, side) alone:
# not from who else is in the batch, what was cut before, or how many read the store.

_ROWS_PER_BATCH = 1024  # so that what is kept of a text to cut it quickly stays bounded
_KEYS = 2**62


class ResegmentedDataset:
    """A store whose texts are cut anew in every epoch.

    Batches are planned by the lengths that the texts then have, so these must be known a window
    at a time. What was cut to know them is kept until the next window is asked for.
    """

    def __init__(
        self, dataset: PairDataset, regularizers: RegularizerPair, *, seed: int, epoch: int = 0
    ) -> None:
        self.dataset = dataset.for_epoch(epoch)
        self.regularizers = regularizers
        self.seed = seed
        self.epoch = epoch
        self._cached_rows = np.empty(0, dtype=np.int64)
        self._cached = self._resegment(self._cached_rows)

    def __len__(self) -> int:
        return len(self.dataset)

    def for_epoch(self, epoch: int) -> ResegmentedDataset:
        """The same texts, cut as they are in this epoch."""
        if epoch == self.epoch:
            return self
        return ResegmentedDataset(self.dataset, self.regularizers, seed=self.seed, epoch=epoch)

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """How long the sources and the targets of these rows are."""
        order = np.argsort(rows)
        self._cached_rows, self._cached = rows[order], self._resegment(rows[order])
        back = np.argsort(order)
        return self._cached.sequence_lengths(back)

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """These rows, in this order."""
        positions = np.searchsorted(self._cached_rows, rows)
        is_kept = positions < len(self._cached_rows)
        if is_kept.all() and (self._cached_rows[positions] == rows).all():
            return self._cached.select(positions)
        return self._resegment(rows)

    def _resegment(self, rows: Integers) -> InMemoryPairDataset:
        starts = range(0, max(1, len(rows)), _ROWS_PER_BATCH)
        return concatenate_datasets(
            [self._resegment_rows(rows[start : start + _ROWS_PER_BATCH]) for start in starts]
        )

    def _resegment_rows(self, rows: Integers) -> InMemoryPairDataset:
        sides = zip(self.dataset.select(rows), self.regularizers, strict=True)
        return InMemoryPairDataset(
            *(
                _resegment_side(side, recutter, self._keys(rows, number)) if recutter else side
                for number, (side, recutter) in enumerate(sides)
            )
        )

    def _keys(self, rows: Integers, side: int) -> Keys:
        # The order of an epoch is drawn with epochs from 0, and what is held out with -1.
        number = -2 - (2 * self.epoch + side)
        return permute_indices(rows, _KEYS, seed=self.seed, epoch=number).astype(np.uint64)


def _resegment_side(side: RaggedArray, regularizer: SubwordRegularizer, keys: Keys) -> RaggedArray:
    cut = regularizer.resegment(IdSequences(side.values, side.lengths), keys)
    return RaggedArray(cut.ids, offsets_from_lengths(cut.lengths))
